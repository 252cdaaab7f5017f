"""Permutes between different devices as one: who sends and receives what stays the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.ops.base.arithmetic import add, negate
from meshjit.ops.collective.collectives import collective_permute
from meshjit.simulate.devices import simulate
from meshjit.transform import pair_permutes as pair_permutes_module
from meshjit.transform.pair_permutes import pair_permutes
from sharding.mesh import AbstractMesh

MESH = AbstractMesh((2, 2), ("x", "y"))


def program(write: Any) -> Program:
    with Builder("main") as builder:
        return verify(builder.build(write(*(builder.input(TensorType.parse("i32[3]")) for _ in range(2)))))


def permutes(of: Program) -> int:
    return sum(eqn.op is collective_permute for eqn in of.eqns)


def check(write: Any, before: int, after: int) -> None:
    plain = program(write)
    paired = verify(pair_permutes(plain, MESH))
    assert (permutes(plain), permutes(paired)) == (before, after)
    values = [[np.arange(3, dtype=np.int32) + 10 * d + 100 * i for d in range(4)] for i in range(2)]
    for got, want in zip(simulate(paired, MESH, values), simulate(plain, MESH, values), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("pairs", [[((0, 1), (2, 3)), ((1, 0), (3, 2))], [((0, 3),), ((1, 2), (2, 1))]])
def test_opposite_permutes_are_one(pairs: Any) -> None:
    check(lambda a, b: [collective_permute(a, pairs=pairs[0]), collective_permute(b, pairs=pairs[1])], 2, 1)


def test_permutes_with_common_ends_stay() -> None:
    check(lambda a, b: [collective_permute(a, pairs=((0, 1),)), collective_permute(b, pairs=((0, 2),))], 2, 2)
    check(lambda a, b: [collective_permute(a, pairs=((0, 1),)), collective_permute(b, pairs=((2, 1),))], 2, 2)


def test_a_permute_that_needs_the_other_stays() -> None:
    def write(a: Any, b: Any) -> Any:
        first = collective_permute(a, pairs=((0, 1),))
        return [collective_permute(add(first, b), pairs=((1, 0),))]

    check(write, 2, 2)


def test_the_second_is_done_with_the_first_when_what_it_needs_is_there() -> None:
    def write(a: Any, b: Any) -> Any:
        first = negate(collective_permute(a, pairs=((0, 1),)))
        return [first, collective_permute(negate(b), pairs=((1, 0),))]

    check(write, 2, 1)


def test_layers_take_a_permute_each_of_time() -> None:
    """Each permute was compared with all behind it: 64 layers with six took 17 s."""
    asked = list[int]()

    def write(a: Any, b: Any) -> Any:
        for _ in range(60):
            for pairs in (((0, 1),), ((0, 2),), ((0, 3),)):  # none fits another
                a = add(a, collective_permute(a, pairs=pairs))
        return [a, b]

    plain = program(write)
    with pytest.MonkeyPatch.context() as patched:
        between = pair_permutes_module.needed_between
        patched.setattr(pair_permutes_module, "needed_between", lambda *of: asked.append(1) or between(*of))
        assert pair_permutes(plain, MESH) is plain and not asked

    def opposite(a: Any, b: Any) -> Any:
        for _ in range(150):
            a = add(a, collective_permute(a, pairs=((0, 1),)))
            a = add(a, collective_permute(a, pairs=((1, 0),)))  # fits all others, and needs those before
        return [a, b]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair_permutes_module, "needed_between", lambda *of: asked.append(1) or between(*of))
        pair_permutes(program(opposite), MESH)
    assert len(asked) <= 300 * pair_permutes_module.MOST_TRIED


def test_each_permute_has_one_partner() -> None:
    def write(a: Any, b: Any) -> Any:
        pairs = (((0, 1),), ((1, 0),), ((2, 3),), ((3, 2),), ((0, 2),))
        return [collective_permute(x, pairs=p) for x, p in zip((a, b, a, b, a), pairs, strict=True)]

    check(write, 5, 2)  # four of them make one, in two steps
