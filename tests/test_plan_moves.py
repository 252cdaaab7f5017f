"""What is moved: a merged dim's axes go to its major factor, what a value is made of before it is widened."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from tests.tools.wire import Specs, check_function, traffic

MESH = AbstractMesh((8,), ("x",))
GRID = AbstractMesh((4, 2), ("x", "y"))
CUBE = AbstractMesh((2, 2, 2), ("x", "y", "z"))
SIZE = 32 * 64 * 128 * 4  # bytes of f32[32, 64, 128]


def on_tpu(fun: Any, types: list[str], mesh: AbstractMesh, inputs: Specs, outputs: Specs) -> dict[str, float]:
    """What is sent where links are slow beside memory; on CPUs, where bytes cost little, it may be another plan."""
    return traffic(fun, types, mesh, inputs, outputs, target_of(mesh, ("tpu",)))


# -- reshapes that merge


def test_the_minor_dim_of_a_merged_one_is_exchanged_and_not_gathered() -> None:
    found = traffic(lambda x: mnp.sin(x).reshape(-1, 128), ["f32[32, 64, 128]"], MESH, [P(None, "x")], [None])
    assert found == {"all_to_all": SIZE / 8 * 7 / 8}


def test_so_are_dims_that_changed_places() -> None:
    def turned(x: Any) -> Any:
        return x.reshape(32, 64, 128).transpose(1, 0, 2).reshape(2048, 128)

    assert traffic(turned, ["f32[2048, 128]"], MESH, [P("x")], [None]) == {"all_to_all": SIZE / 8 * 7 / 8}


def test_axes_go_on_behind_a_major_dim_that_is_too_short() -> None:
    """Of 8 rows over x, y cuts the rows further; of 4 rows in part, of 2 it cuts columns, and nothing has to move."""
    mesh = AbstractMesh((2, 4), ("x", "y"))

    def found(rows: int) -> Any:
        return on_tpu(lambda x: mnp.sin(x.reshape(-1, 128)), [f"f32[{rows}, 4096, 128]"], mesh, [P("x", "y")], [None])

    assert found(2) == {}
    assert found(8) == {"all_to_all": 8 * 4096 * 128 * 4 / 8 * 3 / 4}
    assert found(4) == {"all_to_all": 4 * 4096 * 128 * 4 / 8 / 2, "collective_permute": 4 * 4096 * 128 * 4 / 8}


def test_a_product_comes_before_its_rows_are_exchanged() -> None:
    """Dims stay apart that need not be merged: fewer columns travel."""
    mesh = AbstractMesh((2, 4), ("x", "y"))
    product = lambda x, w: x.reshape(-1, 128) @ w  # noqa: E731
    found = traffic(product, ["f32[8, 256, 128]", "f32[128, 32]"], mesh, [P("x", "y"), P()], [None])
    assert found == {"all_to_all": 8 * 256 * 32 * 4 / 8 * 3 / 4}


def test_what_is_needed_whole_anyway_is_gathered_at_once() -> None:
    def f(x: Any) -> Any:
        flat = x.reshape(-1)
        return lax.with_sharding_constraint(flat, mj.NamedSharding(MESH, P(None)))

    assert traffic(f, ["f32[32, 512]"], MESH, [P(None, "x")], [None]) == {"all_gather": 32 * 512 * 4 / 8 * 7}


def test_on_two_devices_an_exchange_before_a_gather_is_not_worth_it() -> None:
    """Both factors of the product are needed whole along the merged dim: gathered once, not exchanged and then gathered."""
    mesh = AbstractMesh((2,), ("x",))
    f = lambda x, w: mnp.tanh(x.reshape(-1)) @ w  # noqa: E731
    found = traffic(f, ["f32[64, 64]", "f32[4096, 32]"], mesh, [P(None, "x"), P(None, "x")], [P("x")])
    assert found == {"all_gather": 64 * 64 * 4 / 2}


@pytest.mark.parametrize("mesh", [MESH, GRID, CUBE], ids=str)
@pytest.mark.parametrize("shape", [(4, 6, 5), (8, 12, 3), (3, 8, 4), (2, 7, 4), (16, 16, 2), (1, 9, 4), (0, 4, 4)], ids=str)
def test_merging_is_right_wherever_the_dims_lie(mesh: AbstractMesh, shape: tuple[int, ...]) -> None:
    x = (np.arange(np.prod(shape), dtype=np.float32) % 7).reshape(shape)
    axes = mesh.axis_names
    specs = [P(None, axes[0]), P(None, axes), *([P(axes[-1], axes[0]), P(axes[0], None, axes[-1])] if len(axes) > 1 else [])]
    for spec in specs:
        for f in (
            lambda x: mnp.cos(x).reshape(-1, x.shape[-1]),
            lambda x: x.transpose(1, 0, 2).reshape(-1, x.shape[-1]) * 2,
            lambda x: x.reshape(-1),
            lambda x: mnp.sum(x.reshape(-1, x.shape[-1]) ** 2, 0),
            mj.grad(lambda x: mnp.sum(x.reshape(-1, x.shape[-1])[1:] ** 3)),
        ):
            check_function(f, [x], mesh, [spec], [None])


# -- what is widened


def test_numbers_of_few_bits_are_gathered_before_they_are_widened() -> None:
    f = lambda x, w: x @ w.astype(mnp.float32)  # noqa: E731
    found = on_tpu(f, ["f32[8192, 1024]", "bf16[1024, 1024]"], MESH, [P("x"), P("x")], [P("x")])
    assert found == {"all_gather": 1024 * 1024 * 2 / 8 * 7}


@pytest.mark.parametrize("grouped", [False, True])
def test_weights_of_eight_bits_with_scales(grouped: bool) -> None:
    def f(x: Any, w: Any, scale: Any) -> Any:
        if grouped:
            w = (w.reshape(8, 128, 1024).astype(mnp.float32) * scale[:, None]).reshape(1024, 1024)
        else:
            w = w.astype(mnp.float32) * scale[0]
        return x @ w

    types = ["f32[8192, 1024]", "i8[1024, 1024]", "f32[8, 1024]"]
    found = on_tpu(f, types, MESH, [P("x"), P("x"), P("x") if grouped else P()], [P("x")])
    assert found == {"all_gather": 1024 * 1024 / 8 * 7 + (8 * 1024 * 4 / 8 * 7 if grouped else 0)}


def test_a_little_less_is_less() -> None:
    """Of a short message hardly any time goes with its bytes."""
    f = lambda x, w: x @ w.astype(mnp.float32)  # noqa: E731
    found = on_tpu(f, ["f32[8192, 64]", "bf16[64, 64]"], MESH, [P("x"), P("x")], [P("x")])
    assert found == {"all_gather": 64 * 64 * 2 / 8 * 7}


def test_the_work_of_widening_counts_too() -> None:
    """Three operands are gathered for 8 % less than their sum; but then each device makes all of it, in six steps."""

    def f(x: Any, a: Any, b: Any, c: Any) -> Any:
        return x @ (a.astype(mnp.float32) * b.astype(mnp.float32) + mnp.repeat(c, 6, axis=0))

    types = ["f32[76800, 7680]", "bf16[7680, 8192]", "i8[7680, 8192]", "f32[1280, 8192]"]
    found = on_tpu(f, types, MESH, [P("x"), P(None, "x"), P(None, "x"), P(None, "x")], [P("x")])
    assert found == {"all_gather": 7680 * 8192 * 4 / 8 * 7}


def test_in_a_loop_over_layers() -> None:
    def f(x: Any, ws: Any) -> Any:
        return lax.scan(lambda x, w: (mnp.tanh(x @ w.astype(mnp.float32)), None), x, ws)[0]

    found = on_tpu(f, ["f32[8192, 1024]", "bf16[4, 1024, 1024]"], MESH, [P("x"), P(None, "x")], [P("x")])
    assert found == {"all_gather": 4 * 1024 * 1024 * 2 / 8 * 7}


def test_what_is_narrowed_is_gathered_afterwards() -> None:
    f = lambda x, w: x @ w.astype(mnp.bfloat16)  # noqa: E731
    found = on_tpu(f, ["bf16[8192, 1024]", "f32[1024, 1024]"], MESH, [P("x"), P("x")], [P("x")])
    assert found == {"all_gather": 1024 * 1024 * 2 / 8 * 7}


def test_a_value_that_is_read_where_it_is_made_too_stays_there() -> None:
    """The widened weights are also an output, sharded: each device converts all of them, and keeps its own part."""

    def f(x: Any, w: Any) -> Any:
        wide = w.astype(mnp.float32)
        return x @ wide, wide * 2

    found = on_tpu(f, ["f32[8192, 1024]", "bf16[1024, 1024]"], MESH, [P("x"), P("x")], [P("x"), P("x")])
    assert found == {"all_gather": 1024 * 1024 * 2 / 8 * 7}


@pytest.mark.parametrize("mesh", [MESH, GRID, CUBE], ids=str)
@pytest.mark.parametrize("rows", [16, 13])
def test_widening_is_right_wherever_the_weights_lie(mesh: AbstractMesh, rows: int) -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-3, 4, (9, rows)).astype(np.float32)
    w, scale = generator.integers(-9, 9, (rows, 6)).astype(np.int8), np.array([1, 2, 4, 1, 2, 4], np.float32)
    half = generator.integers(-9, 9, (rows, 6)).astype(ml_dtypes.bfloat16)
    first = mesh.axis_names[0]

    def f(x: Any, w: Any, scale: Any, half: Any) -> Any:
        wide = (w.astype(mnp.float32) * scale) * half.astype(mnp.float32)
        return x @ wide, mnp.sum(wide, 0), mj.grad(lambda s: mnp.sum((x @ (w.astype(mnp.float32) * s)) ** 2))(scale)

    for spec in (P(first), P(None, first), P(mesh.axis_names)):
        check_function(f, [x, w, scale, half], mesh, [P(first), spec, P(), spec], [P(first), None, None])


# -- layers one behind the other


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("count", [2, 8, 16])
def test_weights_of_all_layers_are_gathered_and_no_activations(count: int, flat: bool) -> None:
    """Weights over both axes offer these to features of every layer before the input's reach them; they are turned together."""

    def f(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = mnp.tanh((x.reshape(-1, 128) if flat else x) @ w).reshape(x.shape)
        return x

    types, specs = ["f32[8, 256, 128]", *["f32[128, 128]"] * count], [P("x", "y")] * (count + 1)
    assert traffic(f, types, GRID, specs, [None]) == {"all_gather": count * 128 * 128 * 4 / 8 * 7}


@pytest.mark.parametrize("mesh", [GRID, CUBE], ids=str)
def test_turned_layers_are_right_on_uneven_shards(mesh: AbstractMesh) -> None:
    def f(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = mnp.maximum(x @ w, 0) % 5
        return x

    generator = np.random.default_rng(0)
    arrays = [generator.integers(-2, 3, shape).astype(np.float32) for shape in ((5, 7, 6), *[(6, 6)] * 5)]
    check_function(f, arrays, mesh, [P("x", "y")] * 6, [None])


VARIOUS = [P(None, ("x", "y")), P("x"), P("y", "x"), P(("x", "y")), P(None, "y"), P("y"), P("x", "y"), P(None, "x")]


@pytest.mark.parametrize("count", [4, 8])
def test_so_are_weights_of_which_each_lies_otherwise(count: int) -> None:
    """Of such layers each has conflicts of its own: what is largest spreads first."""

    def f(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = mnp.tanh(x @ w)
        return x

    types, specs = ["f32[64, 512, 512]", *["f32[512, 512]"] * count], VARIOUS[:count]
    shards = [8, 4, 8, 8, 2, 2, 8, 4]
    found = on_tpu(f, types, GRID, [P("y", "x"), *specs], [None])
    assert found == {"all_gather": sum(512 * 512 * 4 * (n - 1) / n for n in shards[:count])}


@pytest.mark.parametrize("mesh", [GRID, CUBE], ids=str)
@pytest.mark.parametrize("kind", ["plain", "loop", "flat"])
def test_what_spreads_first_is_right_on_uneven_shards(mesh: AbstractMesh, kind: str) -> None:
    def f(x: Any, *weights: Any) -> Any:
        for w in weights:
            if kind == "loop":
                x = lax.fori_loop(0, 2, lambda i, x, w=w: mnp.maximum(x @ w, 0) % 5, x)
            else:
                x = mnp.maximum((x.reshape(-1, 6) if kind == "flat" else x) @ w, 0).reshape(x.shape) % 5
        return x, mj.grad(lambda w: mnp.sum(x @ w))(weights[0])

    generator = np.random.default_rng(0)
    arrays = [generator.integers(-2, 3, shape).astype(np.float32) for shape in ((5, 7, 6), *[(6, 6)] * 5)]
    check_function(f, arrays, mesh, [P("y", "x"), *VARIOUS[:5]], [None, None])

def test_an_operand_is_gathered_where_the_sum_of_a_wider_product_would_be_larger() -> None:
    """Rows of 512 features over y, four times as wide behind a weight that all devices have whole."""

    def f(x: Any, up: Any, down: Any) -> Any:
        return mnp.tanh(x @ up) @ down

    types = ["f32[32768, 512]", "f32[512, 2048]", "f32[2048, 512]"]
    found = on_tpu(f, types, GRID, [P(None, "y"), P(), P(None, "y")], [P(None, "y")])
    assert found == {"all_gather": 32768 * 512 * 4 / 2}


def test_sums_that_are_collected_stay_sums() -> None:
    """Gathering operands in every iteration would be cheaper than a sum in every iteration, but there is one for all."""

    def f(xs: Any, ys: Any) -> Any:
        start = mnp.zeros((xs.shape[2], ys.shape[2]))
        return lax.scan(lambda total, each: (total + each[0].T @ each[1], None), start, (xs, ys))[0]

    found = on_tpu(f, ["f32[16, 256, 512]", "f32[16, 256, 512]"], MESH, [P(None, "x"), P(None, "x")], [P()])
    assert found == {"all_reduce": 2 * 512 * 512 * 4 / 8 * 7}


@pytest.mark.parametrize("backward", [False, True])
def test_lone_sums_are_not_made_where_their_operands_are_less_to_gather(backward: bool) -> None:
    """What the gate lets through is added to x, which has no sum to share; x is whole along its features for the gate."""

    def f(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return x + (mnp.tanh(x @ gate) * (x @ up)) @ down

    def gradient(x: Any, *weights: Any) -> Any:
        return mj.grad(lambda x: mnp.sum(f(x, *weights) ** 2))(x)

    types = ["f32[64, 512, 512]", "f32[512, 2048]", "f32[512, 2048]", "f32[2048, 512]"]
    specs = [P(None, "x", "y"), P(None, "x"), P("x"), P("x", "y")]
    found = on_tpu(gradient if backward else f, types, GRID, specs, [specs[0]])
    wide = 64 * 512 * 2048 * 4 / 4
    assert sum(found.values()) < wide / 2 and "all_reduce" not in found


@pytest.mark.parametrize("mesh", [GRID, CUBE], ids=str)
def test_lone_sums_are_right_on_uneven_shards(mesh: AbstractMesh) -> None:
    def f(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return x + (mnp.maximum(x @ gate, 0) % 3 * (x @ up)) @ down

    generator = np.random.default_rng(0)
    arrays = [generator.integers(-2, 3, shape).astype(np.float32) for shape in ((5, 7, 6), (6, 9), (6, 9), (9, 6))]
    check_function(f, arrays, mesh, [P(None, "x", "y"), P(None, "x"), P("x"), P("x", "y")], [None])


# -- what does not change in a loop


def test_weights_are_gathered_before_a_loop_and_no_states_in_it() -> None:
    """All of the weight is more than what a step has of x, and less than that of all steps."""

    def f(h: Any, xs: Any, w: Any) -> Any:
        return lax.scan(lambda h, x: (mnp.tanh(h + x @ w), None), h, xs)[0]

    types = ["f32[32, 512]", "f32[64, 32, 512]", "f32[512, 512]"]
    found = on_tpu(f, types, MESH, [P("x"), P(None, "x"), P(None, "x")], [P("x")])
    assert found == {"all_gather": 512 * 512 * 4 / 8 * 7}


@pytest.mark.parametrize("mesh", [GRID, CUBE], ids=str)
def test_what_is_brought_before_a_loop_is_right_on_uneven_shards(mesh: AbstractMesh) -> None:
    def f(h: Any, xs: Any, w: Any, v: Any, b: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = mnp.maximum(h @ v + x @ w + b, 0) % 5
            return h, mnp.sum(h * b, 0)

        return lax.scan(step, h, xs), mj.grad(lambda w: mnp.sum(lax.scan(lambda h, x: (h + x @ w, None), h, xs)[0]))(w)

    generator = np.random.default_rng(0)
    shapes = (7, 6), (5, 7, 6), (6, 6), (6, 6), (6,)
    arrays = [generator.integers(-2, 3, shape).astype(np.float32) for shape in shapes]
    both = [P("x", "y"), P(None, "y", "x"), P(None, ("x", "y")), P("y"), P("x")]
    for specs in (both, [P("y"), P("x"), P("x"), P(None, "y"), P()]):
        check_function(f, arrays, mesh, specs, [None, None, None])


SQUARE = AbstractMesh((4, 4), ("data", "model"))
ENDS: tuple[Specs, Specs] = [P(None, "model"), P("data"), P("data", "model")], [P(None, "model")]


def descended(w: Any, x: Any, g: Any) -> Any:
    """Batches lie over `data`, features over `model`."""
    return w - mnp.float32(0.5) * (x.T @ g).astype(mnp.float32)


@pytest.mark.parametrize("detour, sent", [(None, {"all_reduce": 576000.0}), (0.0, {"all_gather": 390912.0})])
def test_small_sums_are_reduced_on_tpus(detour: float | None, sent: dict[str, float]) -> None:
    """Their compiler puts off a gradient until its operands are gathered, and holds what it does not do meanwhile."""
    target = target_of(SQUARE, ("tpu",), model="v5e")
    if detour is not None:
        target = dataclasses.replace(target, topology=dataclasses.replace(target.topology, detour=detour))
    assert traffic(descended, ["f32[768, 1000]", "bf16[256, 768]", "bf16[256, 1000]"], SQUARE, *ENDS, target) == sent


def test_large_operands_are_gathered_on_tpus_where_that_is_less() -> None:
    types, target = ["f32[8192, 8192]", "bf16[256, 8192]", "bf16[256, 8192]"], target_of(SQUARE, ("tpu",), model="v5e")
    assert traffic(descended, types, SQUARE, *ENDS, target) == {"all_gather": 3932160.0}
