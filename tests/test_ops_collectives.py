"""Collectives: what `simulate` says eight devices get is what XLA gives them; type rules refuse what cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from meshjit.core.op import MissingRule, Op
from meshjit.core.parser import parse_program
from meshjit.core.program import Builder
from meshjit.core.types import TensorType, type_of
from meshjit.ops.collective.collectives import all_gather, all_reduce, all_to_all, axis_index, collective_permute, reduce_scatter
from sharding.axes import SubAxis
from sharding.mesh import AbstractMesh
from tests.tools.op_harness import LOCAL_OPS, assert_close, called, describe, module, out_types, run_xla, samples

MESH = AbstractMesh((4, 2), ("x", "y"))
COUNT = MESH.device_count


@pytest.mark.parametrize("op", LOCAL_OPS, ids=str)
def test_simulate_is_what_xla_does(op: Op) -> None:
    generator = np.random.default_rng(6)
    chosen = samples(op)
    values = [[tuple(sample.arrays(generator)) for _ in range(COUNT)] for sample in chosen]
    calls = [(op, s.types, out_types(op, s), s.params) for s in chosen]
    shards = [
        [device[i] for device in value] for s, value in zip(chosen, values, strict=True) for i in range(len(s.types))
    ]
    got = run_xla(module(calls, MESH, COUNT), shards, tuple(t for _, _, outs, _ in calls for t in outs), COUNT)
    for sample, value, found in zip(chosen, values, got, strict=True):
        wanted = op.simulate(value, MESH, sample.params)
        for device in range(COUNT):
            (want,) = wanted[device]
            assert (type_of(want),) == out_types(op, sample), describe(op, sample)
            assert_close(found[device], want, f"{describe(op, sample)} on device {device}")


@pytest.mark.parametrize("op", LOCAL_OPS, ids=str)
def test_collectives_print_and_parse_back(op: Op) -> None:
    for sample in samples(op):
        with Builder("one") as builder:
            program = builder.build(called(op, [builder.input(t) for t in sample.types], sample.params))
        assert str(parse_program(str(program))) == str(program)


def test_a_part_of_an_axis_survives_printing() -> None:
    params = {"axes": (SubAxis("x", 2, 2), "y")}
    with Builder("one") as builder:
        program = builder.build([axis_index(**params)])
    parsed = parse_program(str(program))
    assert parsed.eqns[0].params["axes"] == (("x", 2, 2), "y") == params["axes"]
    values = [()] * COUNT
    assert axis_index.simulate(values, MESH, parsed.eqns[0].params) == axis_index.simulate(values, MESH, params)


def test_meanings_on_four_devices() -> None:
    mesh = AbstractMesh((2, 2), ("x", "y"))
    values = [(np.array([[10 * d, 10 * d + 1]]),) for d in range(4)]

    def results(op: Op, **params: object) -> list[object]:
        return [r[0].tolist() for r in op.simulate(values, mesh, params)]

    assert results(all_reduce, axes=("y",), kind="sum") == [[[10, 12]]] * 2 + [[[50, 52]]] * 2
    assert results(all_gather, axes=("x",), size=2, dim=0)[1] == [[10, 11], [30, 31]]
    assert results(reduce_scatter, axes=("x",), size=2, dim=1, kind="max") == [[[20]], [[30]], [[21]], [[31]]]
    assert results(all_to_all, axes=("y",), size=2, split_dim=1, concat_dim=0)[:2] == [[[0], [10]], [[1], [11]]]
    assert results(collective_permute, pairs=((0, 1), (3, 0))) == [[[30, 31]], [[0, 1]], [[0, 0]], [[0, 0]]]
    assert results(axis_index, axes=("y", "x")) == [0, 2, 1, 3]


@pytest.mark.parametrize("op", LOCAL_OPS, ids=str)
def test_collectives_exist_in_programs_of_single_devices_only(op: Op) -> None:
    with pytest.raises(MissingRule, match=f"{op.name} has no evaluate rule: it exists in the Programs of single devices only"):
        op.evaluate()


REFUSED = [
    (
        all_gather,
        {"axes": ("x",), "size": 4, "dim": 2},
        "all_gather: param dim is 2: operand f32[6,4] has 2 dims",
    ),
    (
        reduce_scatter,
        {"axes": ("x",), "size": 4, "dim": 0, "kind": "sum"},
        "reduce_scatter: param dim is 0: extent 6 of operand f32[6,4] is no multiple of the group's size 4",
    ),
    (
        all_reduce,
        {"axes": ("x",), "kind": "and"},
        "all_reduce: param kind is and: f32[6,4] is neither bool nor integer",
    ),
    (
        all_reduce,
        {"axes": ("x",), "kind": "mean"},
        "all_reduce: param kind is 'mean': write one of sum, prod, max, min, and, or",
    ),
    (
        collective_permute,
        {"pairs": ((0, 1), (2, 1))},
        "collective_permute: param pairs has target 1 twice",
    ),
]


@pytest.mark.parametrize(("op", "params", "message"), REFUSED)
def test_what_cannot_be_is_refused(op: Op, params: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError) as error:
        op.type_rule((TensorType.parse("f32[6,4]"),), params)
    assert str(error.value) == message
