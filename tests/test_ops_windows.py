"""What ops with a partitioning of their own exchange: the collectives of one op on a sharded dim, and their size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meshjit.core.op import Op
from meshjit.core.program import Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.constants import constant, iota
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.reduce.arg_reduction import argmax
from meshjit.ops.reduce.cumulative import cumsum
from meshjit.ops.slicing.concatenation import concatenate, reverse
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.window.reduce_window import reduce_window
from sharding.mesh import AbstractMesh, Mesh
from sharding.spec import PartitionSpec as P
from tests.tools.laws import check_law
from tests.tools.op_harness import build

X4, X8 = AbstractMesh((4,), ("x",)), AbstractMesh((8,), ("x",))


def exchanged(program: Program, mesh: AbstractMesh, inputs: Any, output: Any) -> list[str]:
    """The collectives of the partitioned program, as `name elements`; and the law holds."""
    generator = np.random.default_rng(7)
    arrays = [generator.integers(0, 9, t.shape).astype(t.dtype) for t in program.input_types]
    _, local = check_law(program, mesh, inputs, [output], arrays)
    eqns = [eqn for eqn in local.eqns if eqn.op.simulate is not None and eqn.inputs]
    return [f"{eqn.op.name} {math.prod(eqn.inputs[0].shape)}" for eqn in eqns]


def one(op: Op, *types: str, **params: Any) -> Program:
    return build([TensorType.parse(t) for t in types], lambda inputs: [op(*inputs, **params)])


def sliced(extent: int, start: int, limit: int, stride: int = 1) -> Program:
    return one(slice_, f"f32[{extent}]", start=(start,), limit=(limit,), strides=(stride,))


def padded(extent: int, low: int, high: int, interior: int = 0) -> Program:
    return one(pad, f"f32[{extent}]", "f32[]", low=(low,), high=(high,), interior=(interior,))


NO_EXCHANGE: list[str] = []
HALO = [
    pytest.param(sliced(10, 1, 9), X4, ["collective_permute 2"], id="x[1:-1] of 10, the worked example"),
    pytest.param(sliced(1024, 2, 1024), X8, ["collective_permute 2"], id="x[2:]"),
    pytest.param(sliced(1024, 0, 1022), X8, NO_EXCHANGE, id="x[:-2]"),
    pytest.param(sliced(1024, 0, 1024, 2), X8, NO_EXCHANGE, id="x[::2]"),
    pytest.param(one(reverse, "f32[16]", dimensions=(0,)), X4, ["collective_permute 4"], id="x[::-1]"),
    pytest.param(
        one(reverse, "f32[10]", dimensions=(0,)),
        X4,
        ["collective_permute 2", "collective_permute 1"],
        id="x[::-1] of 10",
    ),
]


@pytest.mark.parametrize(("program", "mesh", "collectives"), HALO)
def test_neighbours_exchange_only_what_is_needed(program: Program, mesh: AbstractMesh, collectives: list[str]) -> None:
    assert exchanged(program, mesh, [P("x")], P("x")) == collectives


def test_a_pad_is_a_halo() -> None:
    assert exchanged(padded(1024, 1, -1), X8, [P("x"), P()], P("x")) == ["collective_permute 1"]
    assert exchanged(padded(8, 0, 0, 1), X4, [P("x"), P()], P("x")) == NO_EXCHANGE


def test_a_roll_is_a_halo() -> None:
    """np.roll(x, 3): the last three elements of every shard go to the next one."""

    def roll(inputs: list[Var]) -> list[Var]:
        (x,) = inputs
        tail = slice_(x, start=(1021,), limit=(1024,), strides=(1,))
        head = slice_(x, start=(0,), limit=(1021,), strides=(1,))
        return [concatenate(tail, head, dimension=0)]

    found = exchanged(build([TensorType.parse("f32[1024]")], roll), X8, [P("x")], P("x"))
    assert all(name.startswith("collective_permute") for name in found)
    assert sum(int(name.split()[1]) for name in found) <= 8


def test_windows_that_all_shards_see_whole_have_zeros_outside_of_the_dim() -> None:
    """Parts of the dim come in as few rounds as can be; who has no part in a round has nothing in its place."""
    sizes = {"window": (9,), "strides": (1,), "padding": ((8, 8),), "base_dilation": (1,), "window_dilation": (1,)}
    for kind in ("sum", "max"):
        program = one(reduce_window, "f32[3]", **sizes, kind=kind)
        for mesh, spec in ((AbstractMesh((3,), ("x",)), P("x")), (AbstractMesh((3, 2), ("x", "y")), P(("x", "y")))):
            check_law(program, mesh, [P("x")], [spec], [np.array([1, -3, 3], np.float32)])


def test_one_element_has_an_owner() -> None:
    assert exchanged(sliced(1024, 700, 701), X8, [P("x")], P()) == ["all_reduce 1"]


def test_a_running_total_takes_two_passes() -> None:
    program = one(cumsum, "f32[3,1024]", axis=1, reverse=False)
    assert exchanged(program, X8, [P(None, "x")], P(None, "x")) == ["all_gather 3"]


def test_argmax_compares_one_candidate_per_shard() -> None:
    program = one(argmax, "f32[5,1000]", axis=1, index_dtype=DTYPES["i32"])
    assert exchanged(program, X8, [P(None, "x")], P()) == ["all_gather 5", "all_gather 5"]


def test_dynamic_parts_of_a_sharded_dim_gather_nothing() -> None:
    starts = ("i32[]", "i32[]")
    taken = one(dynamic_slice, "f32[1024,4]", *starts, slice_sizes=(2, 4))
    assert exchanged(taken, X8, [P("x"), P(), P()], P()) == ["all_reduce 8"]
    updated = one(dynamic_update_slice, "f32[1024,4]", "f32[2,4]", *starts)
    assert exchanged(updated, X8, [P("x"), P(), P(), P()], P("x")) == NO_EXCHANGE


def test_what_comes_from_nothing_is_made_in_place() -> None:
    def body(inputs: list[Var]) -> list[Var]:
        return [iota(dtype=DTYPES["i32"], shape=(10, 3), dimension=0)]

    assert exchanged(build([], body), X4, [], P("x")) == NO_EXCHANGE
    whole = constant_program(np.arange(30, dtype=np.float32).reshape(10, 3))
    assert exchanged(whole, X4, [], P("x")) == NO_EXCHANGE


def test_a_splat_is_made_smaller_not_cut() -> None:
    program = constant_program(np.broadcast_to(np.float32(2), (10, 3)))
    _, local = check_law(program, X4, [], [P("x")], [])
    assert [(eqn.op.name, eqn.outputs[0].shape) for eqn in local.eqns] == [("constant", (3, 3))]


def constant_program(value: np.ndarray[Any, Any]) -> Program:
    return build([], lambda inputs: [constant(value=value)])


def test_a_partial_sum_of_a_slice_is_reduced_once() -> None:
    """Reductions and single elements leave partial sums, which add up before anything is reduced."""

    def body(inputs: list[Var]) -> list[Var]:
        from meshjit.ops.base.arithmetic import add
        from meshjit.ops.base.shape import reshape

        (x,) = inputs
        element = reshape(slice_(x, start=(3,), limit=(4,), strides=(1,)), shape=())
        return [add(reduce_sum(x, axes=(0,)), element)]

    found = exchanged(build([TensorType.parse("f32[64]")], body), X8, [P("x")], P())
    assert found == ["all_reduce 1"]


def test_a_roll_is_one_exchange_in_a_ring() -> None:
    from meshjit.ops.slicing.roll import roll

    for shift in (3, -3, 1021):
        assert exchanged(one(roll, "f32[1024]", shift=shift, dimension=0), X8, [P("x")], P("x")) == ["collective_permute 3"]
    assert exchanged(one(roll, "f32[1024]", shift=256, dimension=0), X8, [P("x")], P("x")) == ["collective_permute 128"]
    uneven = exchanged(one(roll, "f32[30]", shift=1, dimension=0), X8, [P("x")], P("x"))
    assert set(uneven) == {"collective_permute 1"} and len(uneven) <= 2


def test_most_of_a_dim_is_replaced_by_shifting_it() -> None:
    from meshjit.ops.slicing.update_slice import update_slice

    program = one(update_slice, "f32[1024,4]", "f32[1022,4]", start=(1, 0))
    assert exchanged(program, X8, [P("x"), P("x")], P("x")) == ["collective_permute 4"]


def test_a_shift_exchanges_what_crosses_a_border() -> None:
    from meshjit.ops.slicing.roll import shift

    for amount in (2, -2):
        program = one(shift, "f32[1024]", shift=amount, dimension=0)
        assert exchanged(program, X8, [P("x")], P("x")) == ["collective_permute 2"]
        assert exchanged(one(shift, "f32[30]", shift=amount, dimension=0), X8, [P("x")], P("x")) == ["collective_permute 2"]
    assert exchanged(one(shift, "f32[64]", shift=70, dimension=0), X8, [P("x")], P("x")) == NO_EXCHANGE


def test_windows_of_thousands_of_shards_are_planned_at_once() -> None:
    """Not one shard after another: what a window needs of whom is worked out for all shards together."""
    import time

    from meshjit.partition.partition import partition
    from meshjit.plan.make import Annotations, make_plan

    program, mesh = sliced(1 << 20, 1, (1 << 20) - 1), AbstractMesh((4096,), ("x",))
    plan = make_plan(program, mesh, Annotations([P("x")], [P("x")]))
    start = time.perf_counter()
    (permute,) = [eqn for eqn in partition(plan).eqns if eqn.op.simulate is not None and eqn.inputs]
    assert len(permute.params["pairs"]) == 4095 and time.perf_counter() - start < 2


def test_tpus_choose_between_scalars_where_others_look_up_a_table() -> None:
    """Windows that begin at places which are no multiples of the device's number: the same elements, however found."""
    import types

    from meshjit.partition.partition import partition
    from meshjit.plan.make import Annotations, make_plan

    devices = np.array([types.SimpleNamespace(id=i, process_index=0, platform="tpu") for i in range(8)], object)
    program = build(
        [TensorType.parse("f32[10,3]"), TensorType.parse("f32[9,3]")], lambda xs: [concatenate(*xs, dimension=0)]
    )
    found = []
    for mesh in (Mesh(devices, ("x",)), X8):
        specs = [P("x"), P("x")]
        arrays = [np.arange(n * 3, dtype=np.float32).reshape(n, 3) for n in (10, 9)]
        check_law(program, mesh, specs, [P("x")], arrays)
        local = partition(make_plan(program, mesh, Annotations(specs, [P("x")])))
        found.append(sum(eqn.op is dynamic_slice for eqn in local.eqns))
    assert found == [2, 4]
