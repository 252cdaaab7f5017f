"""Drawn programs, compiled by XLA for one device and for meshes: they compute what NumPy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.core.parser import parse_program
from sharding.mesh import Mesh
from sharding.spec import PartitionSpec as P
from tests.tools.fuzz_compiled import drawn_by, fails

CHUNK = 5
pytestmark = pytest.mark.device

FOUND: dict[str, tuple[str, Mesh, list[Any], list[Any]]] = {  # once wrong: text, mesh, specs of inputs and outputs
    "an update of a slice of another view, on a mesh": (
        """program fuzz(%0: f32[3, 4, 1]) -> (f32[3, 4, 1]) {
          %2: f32[3, 4, 1, 1] = reshape(%0) {shape=(3, 4, 1, 1)}
          %3: f32[3, 4, 1] = reshape(%2) {shape=(3, 4, 1)}
          %4: f32[3, 3, 1] = slice(%3) {start=(0, 0, 0), limit=(3, 3, 1), strides=(1, 1, 1)}
          %5: f32[3, 3, 1] = slice(%3) {start=(0, 1, 0), limit=(3, 4, 1), strides=(1, 1, 1)}
          %6: f32[3, 3, 1] = subtract(%4, %5)
          %7: f32[3, 4, 1] = update_slice(%0, %6) {start=(0, 1, 0)}
          return %7
        }""", Mesh(np.array(mj.devices()[:8]).reshape(4, 2), ("x", "y")), [P("x", None, "y")], [None],
    ),
    "an update of a view": (
        """program fuzz(%0: f32[5]) -> (f32[5, 1]) {
          %3: f32[5, 1] = reshape(%0) {shape=(5, 1)}
          %4: f32[4, 1] = slice(%3) {start=(0, 0), limit=(4, 1), strides=(1, 1)}
          %5: f32[4, 1] = slice(%3) {start=(1, 0), limit=(5, 1), strides=(1, 1)}
          %6: f32[4, 1] = maximum(%4, %5)
          %7: i32[] = constant() {value=array(i32[], (1,))}
          %8: i32[] = constant() {value=array(i32[], (0,))}
          %9: f32[5, 1] = dynamic_update_slice(%3, %6, %7, %8)
          return %9
        }""", Mesh(np.array(mj.devices()[:1]), ("x",)), [None], [None],
    ),
    "a slice of a slice that starts outside": (
        """program fuzz(%0: f32[3, 6]) -> (f32[1, 1]) {
          %1: f32[] = reduce_max(%0) {axes=(0, 1)}
          %2: i32[] = convert(%1) {dtype=dtype(i32)}
          %3: f32[3, 2] = dynamic_slice(%0, %2, %2) {slice_sizes=(3, 2)}
          %4: f32[] = reduce_max(%3) {axes=(0, 1)}
          %5: i32[] = convert(%4) {dtype=dtype(i32)}
          %6: i32[] = constant() {value=array(i32[], (4,))}
          %7: f32[1, 1] = dynamic_slice(%3, %5, %6) {slice_sizes=(1, 1)}
          return %7
        }""", Mesh(np.array(mj.devices()[:1]), ("x",)), [None], [None],
    ),
    "a shard of a slice that starts outside": (
        """program fuzz(%0: f32[6]) -> (f32[5]) {
          %1: f32[6] = sign(%0)
          %2: f32[] = reduce_max(%0) {axes=(0,)}
          %3: i32[] = convert(%2) {dtype=dtype(i32)}
          %4: f32[5] = dynamic_slice(%1, %3) {slice_sizes=(5,)}
          %5: f32[5] = reverse(%4) {dimensions=(0,)}
          %6: i32[5] = convert(%5) {dtype=dtype(i32)}
          %7: i32[5, 1] = reshape(%6) {shape=(5, 1)}
          %8: f32[5] = gather(%4, %7) {offset_dims=(), collapsed_slice_dims=(0,), operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=(0,), slice_sizes=(1,), mode='clip', fill_value=None, indices_are_sorted=False}
          return %8
        }""", Mesh(np.array(mj.devices()[:8]), ("x",)), [None], [P("x")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    text, mesh, inputs, outputs = FOUND[name]
    program = parse_program(text)
    for seed in range(10):
        generator = np.random.default_rng(seed)
        arrays = [generator.integers(-3, 9, t.shape).astype(t.dtype) for t in program.input_types]
        assert fails(program, mesh, inputs, outputs, arrays, ()) is None


@pytest.mark.parametrize("start", range(0, 60, CHUNK))
def test_compiled_programs_are_right(start: int) -> None:
    for seed in range(start, start + CHUNK):
        assert fails(*drawn_by(seed)) is None, f"python -m tests.tools.fuzz_compiled --seed {seed}"
