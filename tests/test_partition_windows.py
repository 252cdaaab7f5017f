"""Sliding windows over sharded dims: random ones under random placements, and what shards exchange for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meshjit.core.program import Program, Var
from meshjit.core.types import TensorType
from meshjit.ops.window.convolution import convolution
from meshjit.ops.window.reduce_window import reduce_window
from meshjit.ops.window.select_and_gather import select_and_gather
from meshjit.ops.window.select_and_scatter import select_and_scatter
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P
from tests.tools.laws import MESHES, check_law, random_spec
from tests.tools.op_harness import build

X8 = AbstractMesh((8,), ("x",))


def exchanged(program: Program, mesh: AbstractMesh, inputs: Any, outputs: Any) -> list[str]:
    """The collectives of the simplified local program, as `name elements`; and the law holds."""
    generator = np.random.default_rng(7)
    arrays = [generator.integers(0, 9, t.shape).astype(t.dtype) for t in program.input_types]
    _, local = check_law(program, mesh, inputs, outputs, arrays)
    eqns = [eqn for eqn in simplify(local).eqns if eqn.op.simulate is not None and eqn.inputs]
    return [f"{eqn.op.name} {math.prod(eqn.inputs[0].shape)}" for eqn in eqns]


def conv_params(rank: int, **changes: Any) -> dict[str, Any]:
    return {
        "window_strides": (1,) * rank,
        "padding": ((1, 1),) * rank,
        "lhs_dilation": (1,) * rank,
        "rhs_dilation": (1,) * rank,
        "dimension_numbers": (tuple(range(rank + 2)),) * 3,
        "feature_group_count": 1,
        "batch_group_count": 1,
        "precision": None,
        "preferred": None,
    } | changes


def conv(lhs: str, rhs: str, **changes: Any) -> Program:
    types = [TensorType.parse(lhs), TensorType.parse(rhs)]
    params = conv_params(types[0].rank - 2, **changes)
    return build(types, lambda inputs: [convolution(*inputs, **params)])


def drawn_conv(generator: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes and params of a random convolution of rank 1 or 2, in random orders of dims."""
    rank = int(generator.integers(1, 3))
    groups, batches = [(1, 1), (1, 1), (2, 1), (1, 2)][generator.integers(4)]

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in generator.integers(low, high, rank))

    n, c, o = 2 * batches, int(generator.integers(1, 4)), 2 * groups * batches
    lhs, rhs = (n, c * groups, *numbers(1, 14)), (o, c, *numbers(1, 6))
    orders = tuple(tuple(int(d) for d in generator.permutation(rank + 2)) for _ in range(3))
    params = conv_params(
        rank,
        window_strides=numbers(1, 4),
        padding=tuple(zip(numbers(-2, 5), numbers(-2, 5), strict=True)),
        lhs_dilation=numbers(1, 4),
        rhs_dilation=numbers(1, 3),
        dimension_numbers=orders,
        feature_group_count=groups,
        batch_group_count=batches,
    )
    placed = [tuple(s[order.index(d)] for d in range(rank + 2)) for s, order in zip((lhs, rhs), orders, strict=False)]
    return placed[0], placed[1], params


@pytest.mark.parametrize("seed", range(40))
def test_a_random_convolution_and_its_gradients(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lhs, rhs, params = drawn_conv(generator)
    types = [TensorType(lhs, np.dtype(np.float32)), TensorType(rhs, np.dtype(np.float32))]
    (out,) = convolution.type_rule(tuple(types), params)

    def body(inputs: list[Var]) -> list[Var]:
        x, kernel, ct = inputs
        back = convolution.transpose([ct], [None, kernel], tuple(types), params)[0]
        return [convolution(x, kernel, **params), back, convolution.transpose([ct], [x, None], tuple(types), params)[1]]

    program = build([*types, out], body)
    arrays = [generator.integers(-3, 4, t.shape).astype(np.float32) for t in program.input_types]
    for _ in range(2):
        mesh = MESHES[int(generator.integers(len(MESHES)))]
        given, wanted = ([random_spec(generator, v.rank, mesh) for v in side] for side in (program.inputs, program.outputs))
        check_law(program, mesh, given, wanted, arrays)


ROWS, IMAGE = P(None, None, "x"), "f32[2,3,64,10]"


def test_a_convolution_exchanges_border_rows() -> None:
    """3 x 3, "SAME": one row of 10 with 3 features in 2 images to each side."""
    program = conv(IMAGE, "f32[4,3,3,3]")
    assert exchanged(program, X8, [ROWS, P()], [ROWS]) == ["collective_permute 60"] * 2


def test_gradients_of_a_convolution_exchange_border_rows_and_one_sum() -> None:
    """The lhs's gradient is a convolution again; the kernel's one of local images, added up over the shards."""
    types = tuple(TensorType.parse(t) for t in (IMAGE, "f32[4,3,3,3]", "f32[2,4,64,10]"))
    params = conv_params(2)

    def body(inputs: list[Var]) -> list[Var]:
        x, kernel, ct = inputs
        both = ([None, kernel], [x, None])
        return [v for o in both for v in convolution.transpose([ct], o, types[:2], params) if v is not None]

    found = exchanged(build(types, body), X8, [ROWS, P(), ROWS], [ROWS, P()])
    assert found == [*["collective_permute 140"] * 2, "all_reduce 108"]


@pytest.mark.parametrize(
    ("call", "collectives"),
    [
        (conv(IMAGE, "f32[4,3,2,2]", window_strides=(2, 2), padding=((0, 0),) * 2), []),
        (conv(IMAGE, "f32[4,3,3,3]", window_strides=(2, 2), padding=((0, 1), (0, 1))), ["collective_permute 60"]),
        (conv(IMAGE, "f32[4,3,3,3]", rhs_dilation=(2, 1), padding=((2, 2), (1, 1))), ["collective_permute 120"] * 2),
        (conv("f32[2,4,64,10]", "f32[4,1,3,3]", feature_group_count=4), ["collective_permute 80"] * 2),
        (conv(IMAGE, "f32[4,3,2,2]", lhs_dilation=(2, 2), padding=((1, 1),) * 2), ["collective_permute 60"]),
        (conv("f32[1,1,8]", "f32[1,1,3]"), ["collective_permute 1"] * 2),
    ],
    ids=["patches", "stride 2", "dilated", "depthwise", "transposed", "one element each"],
)
def test_halos_are_no_wider_than_needed(call: Program, collectives: list[str]) -> None:
    spec = P(None, None, "x")
    assert exchanged(call, X8, [spec, P()], [spec]) == collectives


def test_a_convolution_of_both_spatial_dims() -> None:
    mesh = AbstractMesh((4, 2), ("x", "y"))
    spec = P(None, None, "x", "y")
    found = exchanged(conv("f32[1,1,16,8]", "f32[1,1,3,3]"), mesh, [spec, P()], [spec])
    assert found == [*["collective_permute 4"] * 2, "collective_permute 6"]  # of two shards, each sends to the other


# -- reduce_window and the ops of its derivative


def drawn_windows(generator: np.random.Generator) -> tuple[tuple[int, ...], dict[str, Any]]:
    rank = int(generator.integers(1, 3))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in generator.integers(low, high, rank))

    params = {
        "window": numbers(1, 5),
        "strides": numbers(1, 4),
        "padding": tuple(zip(numbers(-2, 4), numbers(-2, 4), strict=True)),
        "base_dilation": numbers(1, 3) if generator.random() < 0.5 else (1,) * rank,
        "window_dilation": numbers(1, 3),
    }
    return numbers(1, 14), params


@pytest.mark.parametrize("seed", range(40))
def test_random_pools_and_their_gradients(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape, params = drawn_windows(generator)
    kinds = ["sum", "prod", "max", "min"]
    type = TensorType(shape, np.dtype(np.float32))
    params["kind"] = kinds[seed % 4]
    (out,) = reduce_window.type_rule((type,), params)
    if out.size == 0:
        return
    choice = {name: value for name, value in params.items() if name != "base_dilation"}

    def body(inputs: list[Var]) -> list[Var]:
        x, moved, ct = inputs
        results = [reduce_window(x, **params), *reduce_window.jvp([x], [moved], [ct], params)]
        if params["kind"] == "sum":
            results += reduce_window.transpose([ct], [None], (type,), params)
        elif params["kind"] != "prod" and set(params["base_dilation"]) == {1}:
            results.append(select_and_scatter(x, ct, **choice))
        return results

    program = build([type, type, out], body)
    arrays = [generator.integers(-3, 4, t.shape).astype(np.float32) for t in program.input_types]
    for _ in range(3):
        mesh = MESHES[int(generator.integers(len(MESHES)))]
        given, wanted = ([random_spec(generator, v.rank, mesh) for v in side] for side in (program.inputs, program.outputs))
        check_law(program, mesh, given, wanted, arrays)


def pool(type: str, kind: str = "max", **changes: Any) -> Program:
    rank = TensorType.parse(type).rank
    steps = {name: (1,) * rank for name in ("window", "strides", "base_dilation", "window_dilation")}
    params = steps | {"padding": ((0, 0),) * rank, "kind": kind} | changes
    return build([TensorType.parse(type)], lambda inputs: [reduce_window(*inputs, **params)])


@pytest.mark.parametrize(
    ("call", "wanted", "collectives"),
    [
        (pool("f32[64,10]", window=(2, 2), strides=(2, 2)), P("x"), []),
        (pool("f32[64,10]", window=(3, 1), padding=((1, 1), (0, 0))), P("x"), ["collective_permute 10"] * 2),
        (pool("f32[64,10]", window=(3, 1), strides=(2, 1), padding=((0, 1), (0, 0))), P("x"), ["collective_permute 10"]),
        (pool("f32[64,10]", window=(64, 1)), P(), ["all_reduce 10"]),
        (pool("f32[60,10]", "sum", window=(60, 10)), P(), ["all_reduce 1"]),
    ],
    ids=["apart", "same", "stride 2", "one window", "global sum"],
)
def test_pools_exchange_border_rows(call: Program, wanted: P, collectives: list[str]) -> None:
    assert exchanged(call, X8, [P("x")], [wanted]) == collectives


def test_the_gradient_of_a_max_pool_exchanges_border_rows() -> None:
    """Windows of 2, 2 apart, need nothing; windows of 3 the rows and the cotangents of the windows that they share."""
    types = {2: "f32[32]", 3: "f32[64]"}
    found = {}
    for size, out in types.items():
        params = {"window": (size,), "strides": (1 + (size == 2),), "padding": ((0, 0) if size == 2 else (1, 1),)}
        params |= {"window_dilation": (1,), "kind": "max"}
        program = one(select_and_scatter, "f32[64]", out, **params)
        found[size] = exchanged(program, X8, [P("x"), P("x")], [P("x")])
    assert found[2] == []
    assert found[3] == ["collective_permute 3"] * 2


def one(op: Any, *types: str, **params: Any) -> Program:
    return build([TensorType.parse(t) for t in types], lambda inputs: [op(*inputs, **params)])


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P(("x", "y")), P("y", "x")], ids=str)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_where_a_global_pool_chose_is_settled_among_shards(kind: str, spec: P) -> None:
    """Of equal elements the first in the order of the whole operand, whichever dim is sharded; unevenly, too."""
    params = {"window": (11, 7), "strides": (1, 1), "padding": ((0, 0),) * 2, "window_dilation": (1, 1), "kind": kind}
    type, out = TensorType.parse("f32[11,7]"), TensorType.parse("f32[1,1]")
    calls = [(select_and_gather, 1, 0), (select_and_scatter, 0, 2)]
    program = build([type, type, out], lambda v: [op(v[i], v[j], **params) for op, i, j in calls])
    generator = np.random.default_rng(3)
    for high in (1, 2, 4):  # with 1 all elements are equal
        arrays = [generator.integers(0, high, t.shape).astype(np.float32) for t in program.input_types]
        arrays[1] = np.arange(77, dtype=np.float32).reshape(11, 7)
        check_law(program, AbstractMesh((3, 2), ("x", "y")), [spec, spec, P()], [P(), spec], arrays)


def test_the_gradient_of_a_global_pool_sends_one_element_a_window() -> None:
    """Of a pool over few rows it is quicker to gather the rows."""
    params = {"window": (16384, 1), "strides": (1, 1), "padding": ((0, 0),) * 2, "window_dilation": (1, 1), "kind": "max"}
    back = one(select_and_scatter, "f32[16384,10]", "f32[1,10]", **params)
    assert exchanged(back, X8, [P("x"), P()], [P("x")]) == ["all_reduce 10"] * 2  # the value, and which of equal ones is first
    along = one(select_and_gather, "f32[16384,10]", "f32[16384,10]", **params)
    assert exchanged(along, X8, [P("x"), P("x")], [P()]) == ["all_reduce 10"] * 3
