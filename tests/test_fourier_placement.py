"""Transforms on meshes: which collectives they take, what these weigh, and that the values are those of one device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.program import Program
from meshjit.inspect.collectives import collective_rows
from meshjit.ops.fft.four_steps import rows_and_columns
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from meshjit.transform.fuse import fuse
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh
from sharding.topology import Topology
from tests.tools.laws import MESHES, check_law, normals, random_spec
from tests.tools.wire import traced

X = AbstractMesh((8,), ("x",))
XY = AbstractMesh((4, 2), ("x", "y"))


@dataclass(frozen=True)
class Case:
    """A function, the types and specs of its arguments and the spec of its result; what it may cost."""

    fun: Callable[..., Any]
    types: tuple[str, ...]
    specs: tuple[P | None, ...]
    output: P | None
    mesh: AbstractMesh
    collectives: dict[str, int]
    bytes: int


def solve(u: Any, k: Any) -> Any:
    return mnp.real(mnp.fft.ifft2(mnp.fft.fft2(u) * k))


def real_solve(u: Any) -> Any:
    return mnp.fft.irfft2(mnp.fft.rfft2(u) * 0.5)


def around(u: Any) -> Any:
    return mnp.fft.ifftn(mnp.fft.fftn(u) * 2)


SQUARE = "c64[64,64]"
MOVED = 64 * 64 * 8 // 8 * 7 // 8  # what a device sends in one all-to-all of SQUARE over 8

CASES = {
    "transformed dims whole": Case(
        mnp.fft.fft2, ("c64[8,16,16]",), (P("x"),), None, X, {}, 0),
    "one batch dim, one whole": Case(
        lambda u: mnp.fft.fft(u, axis=1), (SQUARE,), (P("x", None),), P("x", None), X, {}, 0),
    "rows of fft2": Case(
        mnp.fft.fft2, (SQUARE,), (P("x", None),), None, X, {"all_to_all": 1}, MOVED),
    "rows of fft2 and back": Case(
        mnp.fft.fft2, ("c64[256,256]",), (P("x", None),), P("x", None), X, {"all_to_all": 2}, 32 * MOVED),
    "small rows of fft2 and back": Case(  # where starting a collective costs more than what it moves
        mnp.fft.fft2, (SQUARE,), (P("x", None),), P("x", None), X, {"all_gather": 1}, 64 * 64 * 8 // 8 * 7),
    "there and back": Case(
        solve, (SQUARE, SQUARE), (P("x", None), None), P("x", None), X, {"all_to_all": 2}, 2 * MOVED),
    "there and back from columns": Case(
        solve, ("c64[256,256]", "c64[256,256]"), (P(None, "x"), None), P(None, "x"), X, {"all_to_all": 2}, 32 * MOVED),
    "there and back, real": Case(
        real_solve, ("f32[64,64]",), (P("x", None),), P("x", None), X, {"all_to_all": 2}, 2 * (8 * 40 * 8 * 7 // 8)),
    "a sharded dim": Case(
        mnp.fft.fft, ("c64[16,512]",), (P(None, "x"),), P(None, "x"), X, {"all_to_all": 2}, 2 * (16 * 512 * 8 // 8 * 7 // 8)),
    "no other dim": Case(
        mnp.fft.fft, ("c64[512]",), (P("x"),), P("x"), X, {"all_gather": 1}, 512 * 8 // 8 * 7),
    "a long line": Case(  # in four steps, with a third of what gathering takes
        mnp.fft.fft, ("c64[65536]",), (P("x"),), P("x"), X, {"all_to_all": 3}, 3 * (65536 * 8 // 8 * 7 // 8)),
    "a long line there and back": Case(
        lambda u: mnp.fft.ifft(mnp.fft.fft(u) * 2), ("c64[65536]",), (P("x"),), P("x"), X,
        {"all_to_all": 6}, 6 * (65536 * 8 // 8 * 7 // 8)),
    "a long real line there and back": Case(  # gathered twice it would be 2 * 917504
        lambda u: mnp.fft.irfft(mnp.fft.rfft(u) * 2), ("f32[262144]",), (P("x"),), P("x"), X,
        {"all_to_all": 6, "collective_permute": 4}, 924672 + 192400),
    "two long lines over eight devices": Case(
        lambda u: mnp.fft.fft(u, axis=1), ("c64[2,65536]",), (P(None, "x"),), P(None, "x"), X,
        {"all_to_all": 3}, 2 * 3 * (65536 * 8 // 8 * 7 // 8)),
    "slabs": Case(
        around, ("c64[16,16,16]",), (P("x"),), P("x"), X, {"all_to_all": 2}, 2 * (16**3 * 8 // 8 * 7 // 8)),
    "pencils": Case(
        around, ("c64[16,16,16]",), (P("x", "y"),), P("x", "y"), XY, {"all_to_all": 4}, 2 * (4096 * 3 // 4 + 4096 // 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_collectives(name: str) -> None:
    case = CASES[name]
    program = traced(case.fun, case.types)
    arrays = [normals(np.random.default_rng(0), t) for t in program.input_types]
    plan, local = check_law(program, case.mesh, case.specs, [case.output], arrays, exact=False)
    rows = collective_rows(simplify(local), plan.mesh)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.kind] = counts.get(row.kind, 0) + row.count
    assert counts == case.collectives
    assert sum(row.bytes for row in rows) == case.bytes


@pytest.mark.parametrize("seed", range(12))
def test_any_placement(seed: int) -> None:
    """Uneven extents, too: 5 and 9 elements over up to 8 devices."""
    generator = np.random.default_rng(seed)
    fun, type = [
        (around, "c64[5,4,9]"), (real_solve, "f32[9,5]"), (mnp.fft.fft2, "c64[3,8,5]"), (mnp.fft.rfftn, "f32[4,5,6]"),
    ][seed % 4]  # fmt: skip
    program = traced(fun, [type])
    arrays = [normals(generator, t) for t in program.input_types]
    for _ in range(3):
        mesh = MESHES[int(generator.integers(len(MESHES)))]
        specs = [random_spec(generator, v.rank, mesh) for v in (*program.inputs, *program.outputs)]
        check_law(program, mesh, specs[:-1], specs[-1:], arrays, exact=False)


@pytest.mark.parametrize(
    ("fun", "type"),
    [
        (mnp.fft.fft, "c64[144]"), (mnp.fft.ifft, "c64[144]"), (mnp.fft.rfft, "f32[144]"), (mnp.fft.rfft, "f32[81]"),
        (lambda x: mnp.fft.irfft(x, 144), "c64[73]"), (lambda x: mnp.fft.irfft(x, 81), "c64[41]"),
        (lambda x: mnp.fft.fft(x, axis=0), "c64[36,3]"), (mnp.fft.fft, "c128[15]"), (mnp.fft.rfft, "f64[7]"),
    ],
)  # fmt: skip
def test_a_line_in_four_steps(fun: Callable[..., Any], type: str) -> None:
    """On machines where starting a collective costs nothing; lines that do not divide are gathered."""
    program = traced(fun, [type])
    arrays = [normals(np.random.default_rng(0), t) for t in program.input_types]
    for mesh in MESHES:
        at_once = dataclasses.replace(Topology.cpu(mesh), latency=dict.fromkeys(mesh.axis_names, 0.0))
        free = dataclasses.replace(target_of(mesh), topology=at_once)
        for axes in [*mesh.axis_names, tuple(mesh.axis_names)]:
            plan = make_plan(program, mesh, Annotations([P(axes)], [P(axes)]), free)
            local = partition(plan)
            n, devices = max(program.input_types[0].shape), mesh.axes_size(plan.inputs[0].dims[0])
            if rows_and_columns(n, devices) and devices > 2 and fun is mnp.fft.fft:
                assert "all_gather" not in str(local)
            (result,) = simulate(local, mesh, [scatter(a, p, mesh) for a, p in zip(arrays, plan.inputs, strict=True)])
            (want,) = evaluate(program, arrays)
            np.testing.assert_allclose(gather(result, plan.outputs[0], want.shape, mesh), want, rtol=1e-3, atol=1e-3)


# -- fusing


def transforms(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    return [(eqn.params["kind"], eqn.params["axes"]) for eqn in program.eqns if eqn.op.name == "fft"]


@pytest.mark.parametrize(
    ("fun", "type", "wanted"),
    [
        (mnp.fft.fft2, "c64[4,6,8]", [("FFT", (1, 2))]),
        (mnp.fft.ifftn, "c64[4,6,8]", [("IFFT", (0, 1, 2))]),
        (mnp.fft.fftn, "c64[2,3,4,5]", [("FFT", (1, 2, 3)), ("FFT", (0,))]),
        (mnp.fft.rfftn, "f32[4,6,8]", [("RFFT", (0, 1, 2))]),
        (lambda x: mnp.fft.irfftn(x, axes=(2, 0)), "c64[5,6,8]", [("IRFFT", (2, 0))]),
        (lambda x: mnp.fft.ifft(mnp.fft.fft(x, axis=0), axis=1), "c64[4,6]", [("FFT", (0,)), ("IFFT", (1,))]),
        (lambda x: mnp.fft.fft(mnp.fft.fft(x, axis=0), axis=0), "c64[4,6]", [("FFT", (0,)), ("FFT", (0,))]),
    ],
)
def test_neighbours_are_fused(fun: Any, type: str, wanted: Any) -> None:
    from meshjit.simulate.evaluate import evaluate

    program = traced(fun, [type])
    assert all(len(axes) == 1 for _, axes in transforms(program))
    fused = fuse(program)
    assert transforms(fused) == wanted
    arrays = [normals(np.random.default_rng(1), t) for t in program.input_types]
    for got, want in zip(evaluate(fused, arrays), evaluate(program, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_others_need_stays() -> None:
    def both(x: Any) -> Any:
        rows = mnp.fft.fft(x, axis=1)
        return rows, mnp.fft.fft(rows, axis=0)

    program = traced(both, ["c64[4,6]"])
    assert transforms(fuse(program)) == transforms(program)


def test_neighbours_in_loops_are_fused() -> None:
    def steps(u: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, u: mnp.fft.ifft2(mnp.fft.fft2(u) * 2), u)

    (loop,) = [eqn for eqn in fuse(traced(steps, ["c64[4,6]"])).eqns if eqn.op.regions]
    (body,) = [value for value in loop.params.values() if isinstance(value, Program)]
    assert transforms(body) == [("FFT", (0, 1)), ("IFFT", (0, 1))]


def test_a_loop_of_transforms_takes_two_exchanges_a_step() -> None:
    def steps(u: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, u: mnp.fft.ifft2(mnp.fft.fft2(u) * 2), u)

    program = traced(steps, ["c64[64,64]"])
    arrays = [normals(np.random.default_rng(0), t) for t in program.input_types]
    plan, local = check_law(program, X, [P("x")], [P("x")], arrays, exact=False)
    rows = collective_rows(simplify(local), plan.mesh)
    assert [(row.kind, row.count) for row in rows] == [("all_to_all", 6)]


def test_transforms_of_whole_dims_come_first() -> None:
    from meshjit.transform.commute import commute

    def order(fun: Any, whole: set[int], type: str = "c64[4,6,8]") -> list[tuple[str, tuple[int, ...]]]:
        program = traced(fun, [type])
        turned = commute(program, lambda var, dim: dim in whole)
        assert (turned is program) == (transforms(turned) == transforms(program))
        return transforms(turned)

    assert order(mnp.fft.fftn, {0, 2}) == [("FFT", (2,)), ("FFT", (0,)), ("FFT", (1,))]
    assert order(mnp.fft.fftn, {0, 1, 2}) == [("FFT", (2,)), ("FFT", (1,)), ("FFT", (0,))]
    assert order(lambda x: mnp.fft.ifft(mnp.fft.fft(x, axis=0), axis=1), {1}) == [("FFT", (0,)), ("IFFT", (1,))]
    assert order(mnp.fft.rfftn, {0}, "f32[4,6,8]") == [("RFFT", (2,)), ("FFT", (0,)), ("FFT", (1,))]

    def steps(u: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, u: mnp.fft.fft2(u), u)

    program = traced(steps, ["c64[4,6]"])
    assert commute(program, lambda var, dim: True) is program
    (loop,) = [eqn for eqn in commute(program, lambda var, dim: dim == 0).eqns if eqn.op.regions]
    (body,) = [value for value in loop.params.values() if isinstance(value, Program)]
    assert transforms(body) == [("FFT", (0,)), ("FFT", (1,))]
