"""Reshapes whose dims are sharded unevenly, or whose borders do not meet: shards exchange what lies across borders."""

from __future__ import annotations

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit.core.types import TensorType
from meshjit.ops.base.reblocking import groups
from meshjit.ops.base.shape import reshape
from sharding.mesh import AbstractMesh
from sharding.placement import Placement
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec as P
from tests.tools.laws import MESHES, check_law, random_spec
from tests.tools.op_harness import build
from tests.tools.wire import check_function, traffic

X = AbstractMesh((4,), ("x",))


@pytest.mark.parametrize(
    ("before", "after", "elements"),
    [
        ((12, 5), (60,), 0),
        ((10, 3), (30,), 3),  # shards begin at 9, 18, 27, and are to begin at 8, 16, 24
        ((30,), (10, 3), 3),
        ((9, 2, 5), (18, 5), 15),
        ((6, 4), (4, 6), 6),
        ((12, 10), (10, 12), 18),
        ((15, 4), (20, 3), 3),
        ((10, 7, 3), (30, 7), 21),
        ((2, 10, 3), (2, 30), None),  # the second dim of its own group
    ],
    ids=str,
)
def test_only_borders_are_exchanged(before: tuple[int, ...], after: tuple[int, ...], elements: int | None) -> None:
    where = P(None, "x") if before[0] == after[0] else P("x")
    moved = traffic(lambda x: mnp.reshape(x, after) * 2, [f"f32{list(before)}"], X, [where], [where])
    expected = {"collective_permute": 4.0 * (6 if elements is None else elements)}
    assert moved == (expected if elements != 0 else {})
    array = np.arange(np.prod(before), dtype=np.float32).reshape(before)
    check_function(lambda x: mnp.reshape(x, after) * 2, [array], X, [where], [where])


SHAPES = [((10, 3), (30,)), ((6, 4), (4, 6)), ((4, 6, 5), (6, 4, 5)), ((5, 2, 9), (10, 9)), ((7, 6), (42,)), ((10, 7, 3), (30, 7)),
          ((3, 35), (7, 3, 5)), ((1, 9, 4), (4, 9, 1)), ((2, 6, 5), (2, 2, 3, 5)), ((0, 4), (4, 0)), ((13,), (1, 13))]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_any_placement(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    before, after = shapes
    program = build([TensorType(before, np.dtype(np.int32))], lambda v: [reshape(v[0], shape=after)])
    array = np.arange(np.prod(before), dtype=np.int32).reshape(before)
    generator = np.random.default_rng(len(before))
    for mesh in MESHES:
        for _ in range(6):
            check_law(program, mesh, [random_spec(generator, len(before), mesh)], [random_spec(generator, len(after), mesh)], [array])


def test_addends_pass_through_uneven_borders() -> None:
    """A product's sum over k, merged to tokens, reduced after the exchange or before: the values are right."""
    mesh = AbstractMesh((3, 2), ("x", "k"))
    arrays = [np.arange(5 * 4 * 6, dtype=np.float32).reshape(5, 4, 6), np.ones((6, 2), np.float32)]
    check_function(lambda x, w: mnp.reshape(x @ w, (20, 2)), arrays, mesh, [P("x", None, "k"), P("k")], [P("x")])


def test_tokens_of_uneven_batches_are_not_exchanged_at_all() -> None:
    """What treats every token by itself is computed with the dims apart (transform/keep_dims_apart.py)."""

    def layer(x, w):
        return mnp.reshape(mnp.tanh(mnp.reshape(x, (60, 16)) @ w), (10, 6, 8))

    assert traffic(layer, ["f32[10,6,16]", "f32[16,8]"], X, [P("x"), None], [P("x")]) == {}


def test_groups() -> None:
    assert list(groups((4, 6, 5), (6, 4, 5))) == [(range(0, 2), range(0, 2)), (range(2, 3), range(2, 3))]
    assert list(groups((1, 5), (5, 1, 1)))[-1] == (range(2, 2), range(2, 3))
    assert [(len(a), len(b)) for a, b in groups((2, 6, 5), (2, 2, 3, 5))] == [(1, 1), (1, 2), (1, 1)]


def test_uneven_factors() -> None:
    """10 rows over 4 are 30 elements over 4; a factor shorter than that is cut only where it has borders."""
    rule = FactorRule.parse("a b -> (a b)", {"a": 10, "b": 3})
    uneven = FactorRule(rule.operands, rule.results, rule.kinds, rule.sizes, frozenset("a"))
    merged, placed = rule.results[0], Placement((("x",),))
    assert uneven.project(merged, placed, X) == {"a": ("x",), "b": ()}
    assert uneven.dropped(merged, placed, X) == () != rule.dropped(merged, placed, X)
    assert uneven.placement(merged, {"a": ("x",)}, X) == (("x",),)
    assert uneven.placement(merged, {"a": ("x",)}, AbstractMesh((16,), ("x",))) == ((),)
