"""Small permutes between the same devices as one: what everybody receives stays the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.collective import collectives_in
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.ops.base.arithmetic import add, negate
from meshjit.ops.collective.collectives import collective_permute
from meshjit.simulate.devices import simulate
from meshjit.transform.merge_permutes import merge_permutes
from sharding.figures import DEVICES
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P
from sharding.topology import Topology, topology_of
from tests.tools.wire import check_function, partitioned_program, traced

MESH = AbstractMesh((4,), ("x",))
CPU, TPU = Topology.cpu(MESH), topology_of(DEVICES["v5e"], MESH)
UP, DOWN = ((0, 1), (1, 2), (2, 3)), ((1, 0), (2, 1), (3, 2))


def program(write: Any, *types: str) -> Program:
    with Builder("main") as builder:
        return verify(builder.build(write(*(builder.input(TensorType.parse(t)) for t in types))))


def permuted(of: Program) -> list[int]:
    """Elements of every permute."""
    return [eqn.inputs[0].type.size for eqn in of.eqns if eqn.op is collective_permute]


def check(write: Any, types: list[str], sizes: list[int], topology: Topology = CPU) -> None:
    plain = program(write, *types)
    merged = verify(merge_permutes(plain, MESH, topology))
    assert permuted(merged) == sizes
    generator = np.random.default_rng(3)
    values = [[generator.integers(-9, 9, t.shape).astype(t.dtype) for _ in range(4)] for t in plain.input_types]
    for got, want in zip(simulate(merged, MESH, values), simulate(plain, MESH, values), strict=True):
        np.testing.assert_array_equal(got, want)


def up(var: Var) -> Var:
    return collective_permute(var, pairs=UP)


def down(var: Var) -> Var:
    return collective_permute(var, pairs=DOWN)


def test_permutes_of_several_arrays_the_same_way_are_one() -> None:
    def write(a: Var, b: Var, c: Var) -> list[Var]:
        return [up(a), down(a), negate(up(b)), down(negate(b)), up(c), down(c)]

    check(write, ["f32[2,3]", "f32[4]", "f32[]"], [11, 11])


def test_other_dtypes_and_other_ways_stay_apart() -> None:
    check(lambda a, b: [up(a), up(b)], ["f32[3]", "i32[3]"], [3, 3])
    check(lambda a, b: [up(a), down(b)], ["f32[3]", "f32[3]"], [3, 3])


def test_a_permute_of_what_another_brought_stays_behind_it() -> None:
    check(lambda a, b: [up(add(up(a), b)), up(b)], ["f32[3]", "f32[3]"], [3, 6])
    check(lambda a: [up(up(a))], ["f32[3]"], [3, 3])


def test_corners_are_merged_once_their_sides_are() -> None:
    check(lambda a, b: [down(up(a)), down(up(b))], ["f32[3]", "f32[3]"], [6, 6])


def test_large_permutes_stay_apart() -> None:
    large = f"f32[{int(CPU.latency['x'] * CPU.memory_bandwidth)}]"
    check(lambda a, b: [up(a), up(b)], [large, large], [TensorType.parse(large).size] * 2)
    check(lambda a, b: [up(a), up(b)], ["f32[512,512]", "f32[512,512]"], [2**18] * 2, TPU)
    check(lambda a, b: [up(a), up(b)], ["f32[256]", "f32[256]"], [512], TPU)


def fluid(u: Any, v: Any, p: Any) -> Any:
    """One step of waves in three fields, each of whose neighbours count."""

    def laplacian(f: Any) -> Any:
        return mnp.roll(f, 1, 0) + mnp.roll(f, -1, 0) - 2 * f

    def slope(f: Any) -> Any:
        return mnp.roll(f, -1, 0) - mnp.roll(f, 1, 0)

    return u + laplacian(u) - slope(p), v + laplacian(v) - u * slope(v), p + laplacian(p) - slope(u)


@pytest.mark.parametrize("rows", [16, 15])
def test_three_fields_exchange_their_borders_in_two_permutes(rows: int) -> None:
    types = [f"f32[{rows},6]"] * 3
    local = partitioned_program(traced(fluid, types), MESH, [P("x")] * 3, [P("x")] * 3)
    found = list(collectives_in(local, MESH))
    assert len(found) == 2, local
    generator = np.random.default_rng(5)
    arrays = [generator.integers(-3, 4, (rows, 6)).astype(np.float32) for _ in range(3)]
    check_function(fluid, arrays, MESH, [P("x")] * 3, [P("x")] * 3)


def test_in_loops_too() -> None:
    def steps(u: Any, v: Any, p: Any) -> Any:
        return lax.scan(lambda fields, _: (fluid(*fields), None), (u, v, p), None, length=3)[0]

    local = partitioned_program(traced(steps, ["f32[16,6]"] * 3), MESH, [P("x")] * 3, [P("x")] * 3)
    assert len(list(collectives_in(local, MESH))) == 2
