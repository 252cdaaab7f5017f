"""Parts at known places: what slices of slices, of pads, and computed starts that are constants become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType
from meshjit.ops.base.constants import scalar
from meshjit.ops.base.conversion import convert
from meshjit.ops.base.shape import reshape
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.index.dynamic_roll import dynamic_roll
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.pipeline import simplify


def program(shape: str, body: Any) -> Program:
    with Builder() as builder:
        x = builder.input(TensorType.parse(shape))
        return builder.build([body(x)])


def taken(x: Var, start: int, limit: int, stride: int = 1) -> Var:
    return slice_(x, start=(start,), limit=(limit,), strides=(stride,))


def padded(x: Var, low: int, high: int, value: int = 7) -> Var:
    return pad(x, scalar(value, x.dtype), low=(low,), high=(high,), interior=(0,))


def joined(*parts: Var) -> Var:
    return concatenate(*parts, dimension=0)


def at(*places: int) -> list[Var]:
    return [scalar(p, np.int32) for p in places]


def unknown(x: Var) -> Var:
    """A place that is an element of x."""
    return convert(reshape(taken(x, 3, 4), shape=()), dtype=np.dtype(np.int32))


def cut(start: int, limit: int, stride: int = 1) -> dict[str, Any]:
    return {"start": (start,), "limit": (limit,), "strides": (stride,)}


def shifted(low: int, high: int) -> dict[str, Any]:
    return {"low": (low,), "high": (high,), "interior": (0,)}


CASES = [  # what is written, the ops that it becomes, the params of the last of them
    (lambda x: taken(taken(x, 2, 9), 1, 3), "slice", cut(3, 5)),
    (lambda x: taken(taken(x, 1, 19, 3), 1, 6, 2), "slice", cut(4, 17, 6)),
    (lambda x: taken(padded(x, 1, 1), 2, 22), "pad", shifted(-1, 1)),
    (lambda x: taken(padded(x, 1, 1), 0, 20), "pad", shifted(1, -1)),
    (lambda x: taken(padded(x, 3, 1), 4, 8), "slice", cut(1, 5)),
    (lambda x: taken(padded(x, 1, 1, 0), 2, 22), "shift", {"shift": -1, "dimension": 0}),
    (lambda x: taken(padded(x, 3, 1), 0, 2), "pad slice", cut(0, 2)),
    (lambda x: taken(joined(taken(x, 0, 1), x, taken(x, 19, 20)), 0, 21), "slice concatenate", {"dimension": 0}),
    (lambda x: taken(joined(taken(x, 0, 1), x, taken(x, 19, 20)), 3, 8), "slice", cut(2, 7)),
    (lambda x: taken(joined(taken(x, 19, 20), x, taken(x, 0, 1)), 0, 20), "roll", {"shift": 1, "dimension": 0}),
    (lambda x: taken(joined(taken(x, 19, 20), x, taken(x, 0, 1)), 2, 22), "roll", {"shift": 19, "dimension": 0}),
    (lambda x: joined(taken(x, 3, 20), taken(x, 0, 3)), "roll", {"shift": 17, "dimension": 0}),
    (lambda x: joined(taken(x, 3, 20), taken(x, 1, 4)), "slice slice concatenate", {"dimension": 0}),
    (lambda x: dynamic_slice(x, *at(18), slice_sizes=(3,)), "slice", cut(17, 20)),
    (lambda x: dynamic_slice(joined(x, x), *at(3), slice_sizes=(20,)), "roll", {"shift": 17, "dimension": 0}),
    (lambda x: dynamic_slice(joined(x, x), unknown(x), slice_sizes=(20,)), "slice reshape convert dynamic_roll", {"dimension": 0}),
    (lambda x: dynamic_slice(joined(x, x), unknown(x), slice_sizes=(19,)), "concatenate slice reshape convert dynamic_slice", {"slice_sizes": (19,)}),
    (lambda x: dynamic_roll(x, *at(25), dimension=0), "roll", {"shift": 0, "dimension": 0}),
    (lambda x: dynamic_update_slice(x, taken(x, 2, 20), *at(1)), "slice update_slice", {"start": (1,)}),
    (lambda x: dynamic_update_slice(x, taken(x, 7, 9), *at(1)), "slice dynamic_update_slice", {}),
    (lambda x: dynamic_update_slice(x, taken(x, 1, 20), *at(-5)), "slice update_slice", {"start": (0,)}),
]


@pytest.mark.parametrize(("body", "names", "params"), CASES)
def test_known_places(body: Any, names: str, params: dict[str, Any]) -> None:
    before = program("f32[20]", body)
    after = simplify(before)
    found = [eqn for eqn in after.eqns if eqn.op.name != "constant"]
    assert [eqn.op.name for eqn in found] == names.split()
    assert dict(found[-1].params) == params
    x = np.arange(20, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(after, [x])[0], evaluate(before, [x])[0])
