"""Stencils: aligned Programs mean the same, and exchange one border per side."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.constants import full, scalar
from meshjit.ops.base.reduction import reduce_max, reduce_sum
from meshjit.ops.base.shape import broadcast_in_dim, transpose
from meshjit.ops.reduce.contraction import dot_general
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.slicing.update_slice import update_slice
from meshjit.plan.cost import Machine
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from meshjit.transform.align import align
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P
from tests.tools.laws import MESHES, check_law, random_spec
from tests.tools.wire import check_function, partitioned_program, traced, traffic

X8, XY = AbstractMesh((8,), ("x",)), AbstractMesh((4, 4), ("x", "y"))
PRICES = Machine(X8, target_of(X8)).border_prices


class _Writer:
    """A random Program of slices, sums, products, pads, updates and reductions of grids of one shape."""

    def __init__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> None:
        self.generator, self.shape = generator, shape
        self.inner = tuple(int(n - generator.integers(1, 3)) for n in shape)

    def pick(self, values: list[Var]) -> Var:
        return values[int(self.generator.integers(len(values)))]

    def start(self) -> tuple[int, ...]:
        return tuple(int(self.generator.integers(n - m + 1)) for n, m in zip(self.shape, self.inner, strict=True))

    def slice(self, x: Var) -> Var:
        start = self.start()
        limit = tuple(a + m for a, m in zip(start, self.inner, strict=True))
        return slice_(x, start=start, limit=limit, strides=(1,) * len(start))

    def exit(self, wholes: list[Var], v: Var) -> Var:
        start = self.start()
        if self.generator.random() < 0.5:
            return update_slice(self.pick(wholes), v, start=start)
        high = tuple(n - m - a for n, m, a in zip(self.shape, self.inner, start, strict=True))
        return pad(v, scalar(3, v.dtype), low=start, high=high, interior=(0,) * len(start))

    def joined(self, wholes: list[Var], parts: list[Var]) -> Var:
        """An interior between borders of wholes, along dim 0."""
        part, x = self.pick(parts), self.pick(wholes)
        rank, missing = x.rank, self.shape[0] - self.inner[0]
        if rank == 2:
            part = pad(part, scalar(1, x.dtype), low=(0, 0), high=(0, self.shape[1] - self.inner[1]), interior=(0, 0))
        before = int(self.generator.integers(missing + 1))
        ends = []
        for n in (before, missing - before):
            start = (int(self.generator.integers(self.shape[0] - n + 1)), *(0,) * (rank - 1))
            ends.append(slice_(x, start=start, limit=(start[0] + n, *x.shape[1:]), strides=(1,) * rank))
        return concatenate(ends[0], part, ends[1], dimension=0)

    def write(self) -> Program:
        type, inner = TensorType(self.shape, np.dtype(np.float32)), TensorType(self.inner, np.dtype(np.float32))
        rank, results = len(self.shape), []
        with Builder() as builder:
            wholes, parts = [builder.input(type)], [builder.input(inner)]
            for _ in range(int(self.generator.integers(4, 12))):
                match int(self.generator.integers(8)):
                    case 0 if self.generator.random() < 0.3:
                        wholes.append(self.joined(wholes, parts))
                    case 0 | 1 | 2:
                        parts.append(self.slice(self.pick(wholes)))
                    case 3:
                        parts.append(add(self.pick(parts), self.pick(parts)))
                    case 4:
                        row = reduce_max(self.pick(parts), axes=(0,))
                        wide = broadcast_in_dim(row, shape=self.inner, dimensions=tuple(range(1, rank)))
                        parts.append(multiply(full(inner, 2), add(wide, self.pick(parts))))
                    case 5 | 6:
                        wholes.append(self.exit(wholes, self.pick(parts)))
                    case _:
                        results.append(self.reduced(parts))
            return builder.build([*results, wholes[-1], parts[-1]])

    def reduced(self, parts: list[Var]) -> Var:
        a, b = self.pick(parts), self.pick(parts)
        if len(self.shape) == 1 or self.generator.random() < 0.3:
            return reduce_sum(multiply(a, b), axes=(0,))
        b = transpose(b, permutation=(1, 0)) if self.generator.random() < 0.5 and self.inner[0] == self.inner[1] else b
        return dot_general(a, b, contract=((0,), (0,)), batch=((), ()), precision=None, preferred=None)


@pytest.mark.parametrize("seed", range(60))
def test_aligned_programs_mean_the_same(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = tuple(int(n) for n in generator.integers(5, 14, generator.integers(1, 3)))
    program = _Writer(generator, shape).write()
    arrays = [generator.integers(-2, 3, t.shape).astype(np.float32) for t in program.input_types]
    aligned = verify(align(program, lambda var, dim: 4, PRICES))
    for got, want in zip(evaluate(aligned, arrays), evaluate(program, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    for _ in range(2):
        mesh = MESHES[int(generator.integers(len(MESHES)))]
        given, wanted = ([random_spec(generator, v.rank, mesh) for v in side] for side in (program.inputs, program.outputs))
        check_law(program, mesh, given, wanted, arrays)


def heat(u: Any) -> Any:
    return u.at[1:-1].set(u[1:-1] + 0.125 * (u[2:] + u[:-2] - 2 * u[1:-1]))


def added(u: Any) -> Any:
    return u.at[1:-1].add(0.125 * (u[2:] + u[:-2] - 2 * u[1:-1]))


def padded(u: Any) -> Any:
    return mnp.pad(u[2:] + u[:-2] - 2 * u[1:-1], ((1, 1), (0, 0)))


def zeros_around(u: Any) -> Any:
    wide = mnp.pad(u, ((1, 1), (0, 0)))
    return wide[2:] + wide[:-2] - 2 * u


def wide_stencil(u: Any) -> Any:
    return u.at[2:-2].set(u[4:] + u[:-4] - 4 * (u[3:-1] + u[1:-3]) + 6 * u[2:-2])


def shifted(u: Any) -> Any:
    return u.at[:-1].set(u[1:])


def edges(u: Any) -> Any:
    wide = mnp.pad(u, ((1, 1), (0, 0)), mode="edge")
    return wide[2:] + wide[:-2] - 2 * u


def ring(u: Any) -> Any:
    wide = mnp.pad(u, ((1, 1), (0, 0)), mode="wrap")
    return wide[2:] + wide[:-2] - 2 * u


def mirrored(u: Any) -> Any:
    wide = mnp.pad(u, ((1, 1), (0, 0)), mode="reflect")
    return wide[2:] + wide[:-2] - 2 * u


def held(u: Any) -> Any:
    inner = u[1:-1] + 0.125 * (u[2:] + u[:-2] - 2 * u[1:-1])
    return mnp.concatenate([u[:1], inner, mnp.zeros((1, 16), u.dtype)], 0)


def sorted_lines(u: Any) -> Any:
    """An op with a way of its own to be partitioned, along the other dim."""
    return u.at[1:-1].set(mnp.cumsum(mnp.sort(u[2:] + u[:-2] - 2 * u[1:-1], axis=1), axis=1))


def rolled_lines(u: Any) -> Any:
    return u.at[1:-1].set(u[1:-1] + mnp.roll(u[2:] - u[:-2] + u[1:-1], 3, axis=1))


def looped(u: Any) -> Any:
    return lax.fori_loop(0, 10, lambda _, u: heat(u), u)


ROW = 16 * 4


@pytest.mark.parametrize(
    ("step", "rows"),
    [(heat, 2), (added, 2), (padded, 2), (zeros_around, 2), (shifted, 1), (looped, 20), (wide_stencil, 4),
     (edges, 2), (held, 2), (sorted_lines, 2), (rolled_lines, 2)],
)
@pytest.mark.parametrize("extent", [64, 61])
def test_one_border_per_side(step: Any, rows: int, extent: int) -> None:
    grid = f"f32[{extent}, 16]"
    assert traffic(step, [grid], X8, [P("x")], [P("x")]) == {"collective_permute": rows * ROW}
    array = np.random.default_rng(0).integers(-3, 4, (extent, 16)).astype(np.float32) * 64
    check_function(step, [array], X8, [P("x")], [P("x")], exact=step is not looped)


@pytest.mark.parametrize("step", [ring, mirrored])
def test_borders_of_rings_and_mirrors(step: Any) -> None:
    for extent in (64, 61):
        found = traffic(step, [f"f32[{extent}, 16]"], X8, [P("x")], [P("x")])
        assert set(found) == {"collective_permute"} and found["collective_permute"] <= (2 if extent == 64 else 4) * ROW
        array = np.random.default_rng(0).integers(-3, 4, (extent, 16)).astype(np.float32)
        check_function(step, [array], X8, [P("x")], [P("x")])


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_borders_of_wide_mirrors(mode: str, width: int) -> None:
    """Two exchanges, of which the one that also fetches the mirror of the last device is wider by at most the mirror's rows."""

    def filtered(u: Any) -> Any:
        wide = mnp.pad(u, ((width, width), (0, 0)), mode=mode)
        return sum(wide[i : i + 64] * (i + 1) for i in range(2 * width + 1))

    found = traffic(filtered, ["f32[64, 16]"], X8, [P("x")], [P("x")])
    assert set(found) == {"collective_permute"} and found["collective_permute"] <= 3 * width * ROW
    array = np.random.default_rng(0).integers(-3, 4, (64, 16)).astype(np.float32)
    check_function(filtered, [array], X8, [P("x")], [P("x")])


def test_mirrors_along_whole_dims_are_one_reverse_each() -> None:
    program = traced(lambda x: mnp.pad(x, ((0, 0), (4, 4), (4, 4)), mode="reflect"), ["f32[8, 32, 32]"])
    assert Counter(eqn.op.name for eqn in program.eqns) == {"slice": 8, "reverse": 4, "concatenate": 4}
    local = partitioned_program(program, X8, [P("x")], [P("x")])
    assert sum(eqn.op.name in ("slice", "reverse", "concatenate") for eqn in local.eqns) == 16


def test_both_dims() -> None:
    def step(u: Any) -> Any:
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return u.at[1:-1, 1:-1].set(0.25 * around)

    spec = P("x", "y")
    assert traffic(step, ["f32[64, 32]"], XY, [spec], [spec]) == {"collective_permute": 2 * (8 + 16) * 4}
    check_function(step, [np.arange(60 * 30, dtype=np.float32).reshape(60, 30)], XY, [spec], [spec])


def test_corners_travel_alone() -> None:
    """What was shifted along rows is sent along columns, of which all but the corners is on its way already."""

    def neighbours(u: Any) -> Any:
        return sum(mnp.roll(mnp.roll(u, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))

    spec = P("x", "y")
    found = traffic(neighbours, ["f32[64, 32]"], XY, [spec], [spec])
    assert found == {"collective_permute": (2 * (16 + 8) + 4) * 4}
    for shape in ((64, 32), (61, 30)):
        array = np.random.default_rng(0).integers(0, 2, shape).astype(np.float32)
        check_function(neighbours, [array], XY, [spec], [spec])


def test_a_loss_over_the_interior_is_masked() -> None:
    """The sum sees zeros outside of the interior; nothing but its partial sums is exchanged besides the borders."""

    def loss(u: Any) -> Any:
        v = u[2:] + u[:-2] - 2 * u[1:-1]
        return (v * v).sum(), mnp.pad(v, ((1, 1), (0, 0)))

    found = traffic(loss, ["f32[64, 16]"], X8, [P("x")], [P(), P("x")])
    assert found["collective_permute"] == 2 * ROW and set(found) == {"collective_permute", "all_reduce"}


def test_whole_dims_are_left_alone() -> None:
    program = traced(heat, ["f32[64, 16]"])
    assert align(program, lambda var, dim: 1, PRICES) is program
    names = [eqn.op.name for eqn in partitioned_program(program, X8, [P(None, "x")], [P(None, "x")]).eqns]
    assert "update_slice" in names and "shift" not in names and "select" not in names


def test_a_long_computation_is_not_aligned_for_one_row() -> None:
    """Tokens 1:, of 1025: a model of the other 1024 is not made longer to save a few rows of integers."""

    def loss(tokens: Any, table: Any) -> Any:
        return (mnp.tanh(table[tokens[:-1]]) - table[tokens[1:]]).sum()

    program = traced(loss, ["i32[1025]", "f32[50, 1048576]"])
    assert align(program, lambda var, dim: 8, PRICES) is program


@pytest.mark.parametrize(("step", "rows"), [(heat, 4), (zeros_around, 4), (edges, 4), (ring, 4), (held, 4), (shifted, 2)])
def test_gradients_of_stencils_are_stencils(step: Any, rows: int) -> None:
    """One border per side forwards, and one backwards."""

    def gradient(u: Any) -> Any:
        return mj.grad(lambda u: (step(u) ** 2).sum())(u)

    assert traffic(gradient, ["f32[64, 16]"], X8, [P("x")], [P("x")]) == {"collective_permute": rows * ROW}
    array = np.random.default_rng(0).integers(-3, 4, (61, 16)).astype(np.float32)
    check_function(gradient, [array], X8, [P("x")], [P("x")], exact=False)


@pytest.mark.parametrize("start", [0, 1, 2, 7])
def test_an_update_at_a_computed_place_stays_where_it_is(start: int) -> None:
    """Its place counts from the first row of what it writes into, so that cannot lie among the rows of a longer array."""

    def added(v: Any, w: Any, update: Any, at: Any) -> Any:
        parts = [lax.pad(x, np.float32(0), ((-5, 0, 0), (0, 0, 0))) for x in (v, w)]
        return lax.dynamic_update_slice(mnp.zeros((3, 6)), update, (at, 0)) + parts[0] + parts[1]

    program = traced(added, ["f32[8, 6]", "f32[8, 6]", "f32[1, 6]", "i32[]"])
    generator = np.random.default_rng(0)
    arrays = [*(generator.integers(-9, 9, v.shape).astype(np.float32) for v in program.inputs[:3]), np.int32(start)]
    aligned = verify(align(program, lambda var, dim: 4, PRICES))
    np.testing.assert_array_equal(evaluate(aligned, arrays)[0], evaluate(program, arrays)[0])
    for mesh in MESHES:
        check_law(program, mesh, [P(mesh.axis_names[0])] * 2 + [P(), P()], [None], arrays)
