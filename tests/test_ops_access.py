"""Access rules: what they claim of where elements come from, against what changes where an element is replaced."""

from __future__ import annotations

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit.core.access import NOTHING, WHOLE, Access, Moved, Reduced, Same, Start, Window, derived, resolved
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.core.rules import alike
from meshjit.core.types import TensorType
from meshjit.ops.base.constants import constant
from meshjit.partition.stretches import span
from meshjit.simulate.evaluate import evaluate
from sharding.rule import FactorRule
from tests.tools.broken import broken
from tests.tools.brute import global_ops
from tests.tools.brute_access import INTENDED, accesses_of, missing, samples_of, wrong
from tests.tools.wire import traced

OPS = [pytest.param(op, id=op.name) for op in global_ops() if op.regions is None]


@pytest.mark.parametrize("op", OPS)
def test_no_rule_claims_too_little(op):
    found = list(wrong(op))
    assert not found, "\n".join(found[:3])


@pytest.mark.parametrize("op", OPS)
def test_no_rule_claims_more_than_it_needs(op):
    found = list(missing(op))
    if op.name in INTENDED:
        assert found, f"nothing is claimed in vain any more: take {op.name} out of INTENDED"
    else:
        assert not found, "\n".join(found)


def along(places):
    """A rule that claims this of dim 0 of every operand, and the same place of other dims."""

    def access(in_types, out_types, params):
        dims = [tuple(places if d == 0 else Same(d) for d in range(t.rank)) for t in in_types]
        return (Access(tuple(dims)),) * len(out_types)

    return access


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("add", NOTHING), ("add", Moved(0, 1)), ("cumsum", Same(0)), ("reverse", Same(0)), ("roll", Same(0)),
        ("slice", Moved(0, 1)), ("pad", Same(0)), ("sort", Same(0)), ("concatenate", Moved(0, -1)),
        ("reduce_window", Window(0, 1, 2)), ("dynamic_slice", Moved(0, Start(1, 2))), ("cumsum", NOTHING), ("negate", Window(0, 0, 1, stride=2)),
    ],
)  # fmt: skip
def test_rules_that_claim_too_little_are_wrong(name, places):
    with broken(name, access=along(places)) as op:
        assert any(wrong(op))


def test_a_reduction_is_of_its_kind():
    of_max = REGISTRY["reduce_max"].factor_rule
    with broken("reduce_sum", access=lambda *args: derived(of_max(*args))) as op:
        assert any("identity elements along" in line for line in wrong(op))


def test_what_depends_on_its_position_says_so():
    with broken("iota", access=lambda *_: (Access(()),)) as op:
        assert any("depends on its position along dim 0" in line for line in wrong(op))
    with broken("cumsum", access=lambda *_: (Access(((WHOLE, Same(1)),)),)) as op:
        assert any("depends on its position" in line for line in wrong(op))


@pytest.mark.parametrize("places", [WHOLE, Window(0, 9, 19), Reduced("sum", "a")])
def test_rules_that_claim_too_much_are_reported(places):
    with broken("negate", access=along(places)) as op:
        assert any("all that was seen is Moved(dim=0, by=0" in line for line in missing(op))


def test_by_default_access_is_what_the_factor_rule_says():
    (product,) = derived(FactorRule.parse("b m k, b k n -> b m n | sum k"))
    assert product == Access(((Same(0), Same(1), Reduced("sum", "k")), (Same(0), Reduced("sum", "k"), Same(2))))
    (merged,) = derived(FactorRule.parse("a b c -> (a b) c"))
    assert merged == Access(((WHOLE, WHOLE, Same(1)),), frozenset({0}))
    first, second = derived(FactorRule.parse("a b, c -> a b, c"))
    assert first.operands == ((Same(0), Same(1)), (NOTHING,)) and second.operands == ((NOTHING, NOTHING), (Same(0),))


def test_a_start_is_clamped_and_resolved_where_it_is_known():
    part = Moved(0, Start(1, last=7))
    assert resolved(part, {1: 3}) == Moved(0, 3) and resolved(part, {1: 12}) == Moved(0, 7) and resolved(part, {}) is WHOLE


def test_alike_are_the_dims_of_which_any_places_can_be_computed():
    def fun(x):
        return mnp.cumsum(x, axis=1), x[1:], mnp.sum(x, axis=0)

    found = {eqn.op.name: sorted(d for nodes in alike(eqn).values() for _, d in nodes) for eqn in traced(fun, ["f32[6, 5]"]).eqns}
    assert found["cumsum"] == [0, 0] and found["slice"] == [] and found["reduce_sum"] == [0, 1]


# -- aligned


ALIGNED = [pytest.param(op, id=op.name) for op in global_ops() if op.aligned is not None]


@pytest.mark.parametrize("op", ALIGNED)
def test_aligned_is_the_op_on_operands_that_are_where_the_result_needs_them(op):
    """Along one dim of the result after another; what an operand has no element for holds garbage."""
    tried = 0
    for sample in samples_of(op):
        arrays, outs = sample.arrays(np.random.default_rng(0)), op.type_rule(sample.types, sample.params)
        (access,) = accesses_of(op, sample)
        known = {i: int(a) for i, a in enumerate(arrays) if a.ndim == 0 and a.dtype.kind in "iu"}
        places = [[resolved(p, known) for p in dims] for dims in access.operands]
        for dim in range(outs[0].rank):
            found = [[(d, span(p)) for d, p in enumerate(dims) if getattr(p, "dim", None) == dim] for dims in places]
            if any(s is None for dims in found for _, s in dims):
                continue
            tried += 1
            shown = [_shown(a, dims, outs[0].shape[dim], places[i]) for i, (a, dims) in enumerate(zip(arrays, found, strict=True))]
            with Builder("f") as builder:
                operands = [builder.input(TensorType(a.shape, a.dtype)) for a, _ in shown]

                def inside(i, shape, shown=shown):
                    mask = shown[i][1]
                    return None if mask is None or mask.all() else constant(value=np.ascontiguousarray(np.broadcast_to(mask, shape)))

                program = builder.build([op.aligned(operands, {dim}, inside, sample.params)])
            (got,), want = evaluate(program, [a for a, _ in shown]), op.evaluate(*arrays, **sample.params)
            np.testing.assert_array_equal(got, want, err_msg=f"{op.name} {sample.types} {dict(sample.params)} along {dim}")
    assert tried > 3


def _shown(array, dims, extent, places):
    """The operand where the result's dim needs it, and a mask of its own elements."""
    for d, (_, low, reach) in dims:
        at = np.arange(extent + reach - 1) - low
        if getattr(places[d], "in_ring", False):
            return np.take(array, at % array.shape[d], d), None
        mask = (at >= 0) & (at < array.shape[d])
        padded = np.concatenate([array, np.full_like(np.take(array, [0], d), 7)], d)
        column = mask.reshape([-1 if e == d else 1 for e in range(array.ndim)])
        return np.take(padded, np.where(mask, at, array.shape[d]), d), column
    return array, None
