"""Values that depend on nothing are computed again where they are wanted in another placement: they never move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshjit import lax, numpy as mnp
from meshjit.core import plan
from meshjit.core.rules import rule_of
from meshjit.plan.cost import Machine
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from sharding.placement import Placement
from tests.tools.wire import check_function, traced, traffic

MESH = AbstractMesh((8,), ("x",))
GRID = AbstractMesh((4, 2), ("x", "y"))


def spectrum(x: Any) -> Any:
    """x over |k|²: the wave numbers of both dims come from one array."""
    k = mnp.asarray(np.fft.fftfreq(x.shape[0]).astype(np.float32))
    k2 = k[:, None] ** 2 + k[None, :] ** 2
    return x / mnp.where(k2 == 0, 1, k2)


def causal(x: Any) -> Any:
    n = x.shape[0]
    near = abs(mnp.arange(n)[:, None] - mnp.arange(n)[None, :])
    return mnp.where(near < 5, x, x.T) + mnp.where(near < 5, 1, 0).T


@pytest.mark.parametrize("n", [256, 37, 5])
@pytest.mark.parametrize("spec", [P("x", None), P(None, "x")])
def test_one_array_for_both_dims_stays_where_it_is(n, spec):
    assert traffic(spectrum, [f"f32[{n}, {n}]"], MESH, [spec], [spec]) == {}
    x = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    check_function(spectrum, [x], MESH, [spec], [spec])


@pytest.mark.parametrize("specs", [(P("x", "y"), P("y", "x")), (P("x"), P(None, "y")), (P(("x", "y")), P())])
def test_masks_in_two_placements(specs):
    x = np.random.default_rng(0).standard_normal((13, 13)).astype(np.float32)
    check_function(causal, [x], GRID, [specs[0]], [specs[1]])


def test_what_is_no_longer_small_is_made_again_where_that_costs_less(monkeypatch):
    """Beyond so many bytes values are not made again unasked; then the prices of moving and of making them decide."""
    assert traffic(spectrum, ["f32[256, 256]"], MESH, [P("x", None)], [P("x", None)]) == {}
    monkeypatch.setattr(plan, "REMATERIALIZED", 512)
    assert traffic(spectrum, ["f32[256, 256]"], MESH, [P("x", None)], [P("x", None)]) == {}
    monkeypatch.setattr("meshjit.plan.move_operands.STEPS", 0)
    assert traffic(spectrum, ["f32[256, 256]"], MESH, [P("x", None)], [P("x", None)]) == {"all_gather": 7 * 128}


@pytest.mark.parametrize("order", [("int32", "int8"), ("int8", "int32")])
def test_narrow_values_are_not_priced_as_wide_ones(order):
    """They have the same rule, and whichever was asked for first had said what both take."""
    program = traced(lambda x, y: tuple([z + lax.iota(z.dtype, 4096) for z in (x, y)]), ["i32[4096]", "i8[4096]"])
    makers, machine = {str(e.outputs[0].dtype): e for e in program.eqns if e.op.name == "iota"}, Machine(MESH, target_of(MESH))
    took, held = dict[str, float](), dict[str, int]()
    for dtype in order:
        maker = makers[dtype]
        again = machine.spread_again(maker, rule_of(maker), Placement((("x",),)))
        assert again is machine.spread_again(maker, rule_of(maker), Placement((("x",),)))
        effect = machine.effect(maker, again)
        took[dtype], (held[dtype],) = effect.work, effect.held
    assert took["int32"] == pytest.approx(4 * took["int8"]) and held == {"int32": 2048, "int8": 512}
