"""gather and scatter with random dim numbers, against loops written from the specification."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from meshjit.core.op import REGISTRY, MissingRule
from meshjit.core.types import TensorType, type_of
from meshjit.ops.index.gather import fill_of, gather
from meshjit.ops.index.scatter import scatter
from meshjit.ops.index.take import gather_windows, scatter_windows, take_along
from tests.tools.op_harness import assert_close, build, evaluated, module, run, run_xla

Array = np.ndarray[Any, Any]
RENAMED = {
    "offset_dims": "update_window_dims",
    "collapsed_slice_dims": "inserted_window_dims",
    "operand_batching_dims": "input_batching_dims",
    "start_indices_batching_dims": "scatter_indices_batching_dims",
    "start_index_map": "scatter_dims_to_operand_dims",
}
COMBINE = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "min": min, "max": max, "set": lambda a, b: b}


@st.composite
def gathers(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of operand and indices, and params of a gather, of any kind that is legal."""
    rank = draw(st.integers(0, 4))
    roles = [draw(st.sampled_from(["window", "one", "dropped", "batching", "part"])) for _ in range(rank)]
    shape = tuple(draw(st.integers(1, 4)) for _ in roles)
    batching = [d for d, role in enumerate(roles) if role == "batching"]
    dropped = [d for d, role in enumerate(roles) if role == "dropped"]
    kept = [d for d in range(rank) if d not in batching and d not in dropped]
    free = [d for d in range(rank) if d not in batching]
    columns = draw(st.permutations(free))[: draw(st.integers(0, len(free)))]
    outer_rank = len(batching) + draw(st.integers(0, 2))
    outer = [draw(st.integers(1, 3)) for _ in range(outer_rank)]
    index_batching = draw(st.permutations(range(outer_rank)))[: len(batching)]
    for d, i in zip(batching, index_batching, strict=True):
        outer[i] = shape[d]
    part = {"window": lambda n: n, "part": lambda n: draw(st.integers(1, n))}
    sizes = tuple(part.get(role, lambda n: 1)(n) for role, n in zip(roles, shape, strict=True))
    places = sorted(draw(st.permutations(range(outer_rank + len(kept))))[: len(kept)])
    params = {
        "offset_dims": tuple(places),
        "collapsed_slice_dims": tuple(dropped),
        "operand_batching_dims": tuple(batching),
        "start_indices_batching_dims": tuple(index_batching),
        "start_index_map": tuple(columns),
        "slice_sizes": sizes,
    }
    return shape, (*outer, len(columns)), params


def windows(shape: Any, indices: Array, params: dict[str, Any], clip: bool) -> Any:
    """(outer place, its window's place in the operand, None if out of bounds), one after another."""
    for outer in np.ndindex(*indices.shape[:-1]):
        start = [0] * len(shape)
        for k, d in enumerate(params["start_index_map"]):
            start[d] = int(indices[outer][k])
        last = [n - m for n, m in zip(shape, params["slice_sizes"], strict=True)]
        if clip:
            start = [min(max(s, 0), n) for s, n in zip(start, last, strict=True)]
        inside = all(0 <= s <= n for s, n in zip(start, last, strict=True))
        for d, i in zip(params["operand_batching_dims"], params["start_indices_batching_dims"], strict=True):
            start[d] = outer[i]
        yield outer, start if inside else None


def elements(shape: Any, indices: Array, params: dict[str, Any], clip: bool) -> Any:
    """(place in the result, place in the operand or None) of every element of every window."""
    gone = (*params["collapsed_slice_dims"], *params["operand_batching_dims"])
    kept = [d for d in range(len(shape)) if d not in gone]
    rank = indices.ndim - 1 + len(kept)
    outer_dims = [d for d in range(rank) if d not in params["offset_dims"]]
    for outer, start in windows(shape, indices, params, clip):
        for inner in itertools.product(*(range(params["slice_sizes"][d]) for d in kept)):
            out = [0] * rank
            for d, i in [*zip(outer_dims, outer, strict=True), *zip(params["offset_dims"], inner, strict=True)]:
                out[d] = i
            place = None
            if start is not None:
                steps = dict(zip(kept, inner, strict=True))
                place = tuple(s + steps.get(d, 0) for d, s in enumerate(start))
            yield tuple(out), place


@given(gathers(), st.sampled_from(["clip", "fill"]), st.integers(0, 2**32 - 1))
def test_gather_is_its_loop(call: Any, mode: str, seed: int) -> None:
    shape, index_shape, dims = call
    generator = np.random.default_rng(seed)
    operand = generator.integers(-9, 9, shape).astype(np.float32)
    indices = generator.integers(-2, 6, index_shape).astype(np.int32)
    params = {**dims, "mode": mode, "fill_value": -100.0, "indices_are_sorted": False}
    (got,) = evaluated(gather, [operand, indices], params)
    want = np.full(got.shape, np.nan, np.float32)
    for out, place in elements(shape, indices, dims, mode == "clip"):
        want[out] = -100.0 if place is None else operand[place]
    np.testing.assert_array_equal(got, want)


@given(gathers(), st.sampled_from(["clip", "fill"]), st.sampled_from(sorted(COMBINE)), st.integers(0, 2**32 - 1))
def test_scatter_is_its_loop(call: Any, mode: str, kind: str, seed: int) -> None:
    shape, index_shape, dims = call
    generator = np.random.default_rng(seed)
    operand = generator.integers(-9, 9, shape).astype(np.int32)
    indices = generator.integers(-2, 6, index_shape).astype(np.int64)
    options = {"mode": mode, "indices_are_sorted": False}
    taking = {**dims, **options, "fill_value": 0}
    (out,) = gather.type_rule((type_of(operand), type_of(indices)), taking)
    updates = generator.integers(-9, 9, out.shape).astype(np.int32)
    params = {RENAMED[name]: dims[name] for name in RENAMED} | options | {"kind": kind, "unique_indices": False}
    (got,) = evaluated(scatter, [operand, indices, updates], params)
    want = operand.copy()
    for source, place in elements(shape, indices, dims, mode == "clip"):
        if place is not None:
            want[place] = COMBINE[kind](want[place], updates[source])
    np.testing.assert_array_equal(got, want)


# -- fill


@pytest.mark.parametrize(
    ("dtype", "fill"), [("float32", np.nan), ("int8", -128), ("uint16", 65535), ("bool", True), ("complex64", np.nan)]
)
def test_default_fill_is_that_of_jax(dtype: str, fill: Any) -> None:
    np.testing.assert_array_equal(fill_of(np.dtype(dtype)), np.asarray(fill).astype(dtype))


ROWS = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "operand_batching_dims": (),
    "start_indices_batching_dims": (),
    "start_index_map": (0,),
    "slice_sizes": (1, 2),
    "indices_are_sorted": False,
}


@pytest.mark.parametrize("index_dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_extreme_indices_are_out_of_bounds_on_xla_too(index_dtype: str) -> None:
    """None may wrap around into the operand, whatever the index dtype's width and sign."""
    operand = np.arange(600, dtype=np.float32).reshape(300, 2)
    info = np.iinfo(index_dtype)
    indices = np.array([[info.min], [0], [100], [info.max]], index_dtype)
    types = (type_of(operand), type_of(indices))
    calls = []
    for mode in ("clip", "fill"):
        params = {**ROWS, "mode": mode, "fill_value": -1}
        calls.append((gather, types, gather.type_rule(types, params), params))
    outs = tuple(t for call in calls for t in call[2])
    results = run_xla(module(calls), [[operand], [indices]] * 2, outs)
    for (_, _, _, params), (got,) in zip(calls, results, strict=True):
        assert_close(got, evaluated(gather, [operand, indices], params)[0])


# -- everyday forms


def test_gather_windows_and_scatter_windows_are_slices_per_member() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(3, 6, 5)).astype(np.float32)
    starts = np.array([[0, 0], [5, 2], [2, 9]], np.int32)
    types = [type_of(x), type_of(starts), TensorType((3, 2, 3), x.dtype)]
    updates = generator.normal(size=(3, 2, 3)).astype(np.float32)

    def body(inputs: list[Any]) -> list[Any]:
        return [gather_windows(inputs[0], 0, inputs[1], (2, 3)), scatter_windows(inputs[0], inputs[2], inputs[1])]

    taken, written = run(build(types, body), [x, starts, updates])
    for i, (a, b) in enumerate([(0, 0), (4, 2), (2, 2)]):
        np.testing.assert_array_equal(taken[i], x[i, a : a + 2, b : b + 3])
        np.testing.assert_array_equal(written[i, a : a + 2, b : b + 3], updates[i])
    assert (written != x).sum() == updates.size


def test_take_along_is_numpys() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(3, 4, 5)).astype(np.float32)
    for dim in range(3):
        indices = generator.integers(0, x.shape[dim], (3, 4, 5)).astype(np.int32)
        body = build([type_of(x), type_of(indices)], lambda v, dim=dim: [take_along(v[0], v[1], dim)])
        np.testing.assert_array_equal(run(body, [x, indices])[0], np.take_along_axis(x, indices, dim))


# -- rules and errors


def rule_text(name: str, types: str, params: dict[str, Any]) -> str:
    op = REGISTRY[name]
    ins = tuple(TensorType.parse(t) for t in types.split())
    return str(op.factor_rule(ins, op.type_rule(ins, params), params))


def test_factor_rules_of_an_embedding_and_its_gradient() -> None:
    params = {**ROWS, "mode": "clip", "fill_value": None}
    assert rule_text("gather", "f32[9,2] i32[4,1]", params) == "b c, a 1 -> a c | sum b"
    assert rule_text("gather", "bool[9,2] i32[4,1]", params) == "b c, a 1 -> a c | or b"
    back = {RENAMED[k]: v for k, v in ROWS.items() if k in RENAMED}
    back |= {"indices_are_sorted": False, "unique_indices": False}
    for kind, reduced in (("add", "sum"), ("max", "max"), ("mul", "prod"), ("set", "sum")):
        text = rule_text("scatter", "f32[9,2] i32[4,1] f32[4,2]", {**back, "mode": "clip", "kind": kind})
        assert text == f"b c, a 1, a c -> b c | {reduced} a"


def test_errors_name_the_param_and_both_sides() -> None:
    params = {**ROWS, "mode": "clip", "fill_value": None}
    types = (TensorType.parse("f32[9,2]"), TensorType.parse("i32[4,1]"))
    with pytest.raises(TypeError, match=r"param start_index_map is \(0, 1\): indices i32\[4,1\] hold 1 columns"):
        gather.type_rule(types, {**params, "start_index_map": (0, 1)})
    with pytest.raises(TypeError, match=r"param slice_sizes is \(1, 3\): no window of operand f32\[9,2\]"):
        gather.type_rule(types, {**params, "slice_sizes": (1, 3)})
    with pytest.raises(TypeError, match=r"gather: indices must be integers, got f32\[4,1\]"):
        gather.type_rule((types[0], TensorType.parse("f32[4,1]")), params)


def test_multiplying_updates_that_may_meet_have_no_derivative() -> None:
    sample = next(s for s in scatter.samples() if s.params["kind"] == "mul" and not s.params["unique_indices"])
    types = [t.with_dtype(np.float32) if t.dtype.kind != "u" else t for t in sample.types]

    def body(inputs: list[Any]) -> list[Any]:
        return scatter.jvp(inputs, [None, None, inputs[2]], [inputs[0]], sample.params)

    with pytest.raises(MissingRule, match="pass unique_indices=True if they do not"):
        build(types, body)
