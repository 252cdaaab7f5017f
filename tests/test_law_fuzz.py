"""Drawn programs under drawn placements: partitioned they compute what they compute whole, in NumPy and through XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import meshjit as mj
from meshjit.core.parser import parse_program
from meshjit.core.printer import print_program
from meshjit.core.program import Builder, Program
from meshjit.core.verify import verify
from meshjit.plan.make import Annotations
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import lower
from meshjit.runtime.placing import place
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh, Mesh
from sharding.spec import PartitionSpec as P
from tests.tools.fuzz import CONTROL, REVERSIBLE, case, gradient_case
from tests.tools.laws import check_law, random_spec

CHUNK = 10
PER_COMPILE = 5
MESHES = [AbstractMesh((2, 2, 2), ("x", "y", "z")), AbstractMesh((4, 2), ("x", "y")), AbstractMesh((8,), ("x",))]


FOUND = {  # programs that once failed: text, mesh, specs of inputs and outputs
    "an axis for two factors of one dim": (
        """program fuzz(%0: f32[1, 2, 8]) -> (f32[1, 16]) {
          %1: f32[1, 16] = reshape(%0) {shape=(1, 16)}
          %2: f32[1, 16] = reverse(%1) {dimensions=(1,)}
          return %2
        }""", AbstractMesh((2, 2, 2), ("x", "y", "z")), [P("x", None, "y")], [P(("x", "z"), "y")],
    ),
    "partial over two parts of one axis, which together are the axis": (
        """program fuzz(%0: f32[4, 8]) -> (f32[]) {
          %1: f32[8, 8] = concatenate(%0, %0) {dimension=0}
          %2: f32[2, 4, 8] = reshape(%1) {shape=(2, 4, 8)}
          %3: f32[] = reduce_max(%2) {axes=(0, 1, 2)}
          return %3
        }""", AbstractMesh((4, 1), ("x", "y")), [P(("y", "x"), None)], [None],
    ),
    "indices into a dim that a reshape merged, once its parts are kept apart": (
        """program fuzz(%0: f32[3, 6, 6], %1: f32[4, 6]) -> (f32[24]) {
          %2: f32[24] = reshape(%1) {shape=(24,)}
          %3: f32[24] = add(%2, %2)
          %4: i32[] = constant() {value=array(i32[], (3,))}
          %5: f32[24] = dynamic_update_slice(%3, %2, %4)
          %6: i32[24] = convert(%5) {dtype=dtype(i32)}
          %7: i32[24, 1] = reshape(%6) {shape=(24, 1)}
          %8: f32[24] = gather(%2, %7) {offset_dims=(), collapsed_slice_dims=(0,), operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=(0,), slice_sizes=(1,), mode='clip', fill_value=None, indices_are_sorted=False}
          %9: f32[24] = scatter(%3, %7, %8) {update_window_dims=(), inserted_window_dims=(0,), input_batching_dims=(), scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=(0,), kind='set', mode='clip', indices_are_sorted=False, unique_indices=False}
          return %9
        }""", AbstractMesh((2,), ("x",)), [None, P(None, "x")], [P("x")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    text, mesh, inputs, outputs = FOUND[name]
    program = parse_program(text)
    generator = np.random.default_rng(0)
    arrays = [generator.integers(-3, 4, t.shape).astype(t.dtype) for t in program.input_types]
    check_law(program, mesh, inputs, outputs, arrays)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), equations=st.integers(1, 12))
def test_partitioned_is_whole(seed: int, equations: int) -> None:
    check_law(*case(seed, equations))


@pytest.mark.parametrize("start", range(0, 200, CHUNK))
def test_partitioned_is_whole_for_seeds(start: int) -> None:
    for seed in range(start, start + CHUNK):
        check_law(*case(seed, 4 + seed % 12))


@pytest.mark.parametrize("start", range(0, 80, CHUNK))
def test_partitioned_gradient_is_whole(start: int) -> None:
    for seed in range(start, start + CHUNK):
        check_law(*gradient_case(seed, 3 + seed % 6), exact=False)


@pytest.mark.parametrize("start", range(0, 80, CHUNK))
def test_partitioned_loops_and_branches_are_whole(start: int) -> None:
    for seed in range(start, start + CHUNK):
        check_law(*case(seed, 3 + seed % 8, CONTROL))
        check_law(*gradient_case(seed, 2 + seed % 4, REVERSIBLE), exact=False)


@pytest.mark.parametrize("start", range(0, 40, CHUNK))
def test_loops_and_branches_survive_print_parse_verify_and_simplify(start: int) -> None:
    for seed in range(start, start + CHUNK):
        program, _, _, _, arrays = gradient_case(seed, 4, REVERSIBLE)
        survives(program, arrays)


@pytest.mark.parametrize("start", range(0, 60, CHUNK))
def test_drawn_programs_survive_print_parse_verify_and_simplify(start: int) -> None:
    for seed in range(start, start + CHUNK):
        program, _, _, _, arrays = gradient_case(seed, 8)
        survives(program, arrays)


def survives(program: Program, arrays: list[Any]) -> None:
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    simple = verify(simplify(verify(program)))
    assert len(simple.eqns) <= len(program.eqns)
    with np.errstate(all="ignore"):
        for got, want in zip(evaluate(simple, arrays), evaluate(program, arrays), strict=True):
            np.testing.assert_array_equal(got, want)


def side_by_side(programs: list[Program]) -> Program:
    """One program that does what all of them do."""
    with Builder("several") as builder:
        outputs = []
        for program in programs:
            outputs += builder.inline(program, [builder.input(t) for t in program.input_types])
        return builder.build(outputs)


@pytest.mark.device
@pytest.mark.parametrize("start", range(1000, 1100, PER_COMPILE))
def test_compiled_is_whole(start: int) -> None:
    drawn = [case(seed, 3 + seed % 7, CONTROL if seed % 2 else None) for seed in range(start, start + PER_COMPILE)]
    abstract = MESHES[(start // PER_COMPILE) % len(MESHES)]
    mesh = Mesh(np.array(mj.devices()[:8]).reshape(abstract.axis_sizes), abstract.axis_names)
    program = side_by_side([c[0] for c in drawn])
    generator = np.random.default_rng(start)
    specs = [[random_spec(generator, v.rank, abstract) for v in vs] for vs in (program.inputs, program.outputs)]
    arrays = [a for c in drawn for a in c[4]]
    compare(program, mesh, specs, arrays)


def compare(program: Program, mesh: Mesh, specs: list[Any], arrays: list[Any]) -> None:
    executable = Executable(lower(program, mesh, Annotations(*specs)), [False] * len(program.outputs))
    placed = [place(a, s, committed=True) for a, s in zip(arrays, executable.in_shardings, strict=True)]
    expected = evaluate(program, arrays)
    for i, (got, want) in enumerate(zip(executable(placed), expected, strict=True)):
        np.testing.assert_array_equal(
            np.asarray(got), want, err_msg=f"output {i}, {specs}\n{executable.lowering.plan}\n{executable.lowering.local}"
        )
