"""A bounded slice of the brute force over ops (`python -m tests.tools.brute` runs all of it), and that it finds what is wrong."""

from __future__ import annotations

import itertools

import pytest

from meshjit.core.op import REGISTRY
from sharding.mesh import AbstractMesh
from tests.tools.broken import broken, passthrough, replicating
from tests.tools.brute import Case, cases, drawn, failure, global_ops, spreads, variants
from tests.tools.brute_missing import INTENDED, missing

CASES = 16
OPS = [pytest.param(op, id=op.name) for op in global_ops()]


@pytest.mark.parametrize("op", OPS)
def test_a_slice_of_all_placements(op):
    for case in itertools.islice(drawn([op], seed=0), CASES):
        assert failure(case) is None, str(case)


@pytest.mark.parametrize("op", OPS)
def test_no_rule_could_say_more(op):
    found = missing(op)
    if op.name in INTENDED:
        assert found, f"nothing is missing any more: take {op.name} out of INTENDED"
    else:
        assert not found, "\n".join(found)


def test_every_spread_is_tried():
    assert list(spreads("a", "x")) == [{}, {"a": ("x",)}]
    both = list(spreads("ab", "xy"))
    assert len(both) == (2 + 1) ** 2 + 2 and {"a": ("y", "x")} in both and {"b": ("x",), "a": ("y",)} in both
    shapes = {t.shape for sample in variants(REGISTRY["exponential"]) for t in sample.types}
    assert {(0, 3), (1, 1), (2, 5), (3, 7)} <= shapes
    kinds = {(bool(c.group), c.spread is None, len(c.mesh.axis_names)) for c in cases(REGISTRY["dot_general"])}
    assert kinds == {(False, False, 1), (False, True, 1), (False, False, 2), (False, True, 2), (True, False, 2)}


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("cumsum", {"factor_rule": passthrough, "partition": None}),
        ("reverse", {"factor_rule": passthrough, "partition": None}),
        ("maximum", {"linear": ((0, 1),)}),
        ("iota", {"partition": None}),
    ],
)
def test_wrong_rules_are_found(name, rules):
    with broken(name, **rules) as op:
        assert any(failure(case) for case in itertools.islice(drawn([op], seed=0), 200))


def test_missing_rules_are_found():
    with broken("add", factor_rule=replicating) as op:
        assert any("operands on dims (0, 0) -> results (0) works" in line for line in missing(op))
    with broken("negate", linear=()) as op:
        assert any("additive in (0,)" in line for line in missing(op))


def test_a_failure_names_its_case():
    op = REGISTRY["add"]
    case = Case(op, next(iter(op.samples())), AbstractMesh((4,), ("x",)), {"a": ("x",)})
    assert str(case) == "add(f32[8,6], f32[8,6]) {} on AbstractMesh('x': 4): spread {'a': ('x',)}"
