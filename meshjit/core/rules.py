"""The factor rule of an equation; one object for all equations that are alike, so that comparing rules costs nothing."""

from __future__ import annotations

import functools
from typing import Any

from meshjit.core.op import Op, Types
from meshjit.core.program import Eqn
from sharding.rule import FactorRule


def rule_of(eqn: Eqn) -> FactorRule:
    """Which dims of the operands and results of an equation go together."""
    if eqn.op.regions is not None:  # nothing to share, and a cache would keep the nested Programs alive
        return eqn.op.factor_rule(eqn.input_types, eqn.output_types, eqn.params)
    try:
        return _rule(eqn.op, eqn.input_types, eqn.output_types, tuple(eqn.params.items()))
    except TypeError:  # a param that cannot be hashed, such as an array
        return _shared(eqn.op.factor_rule(eqn.input_types, eqn.output_types, eqn.params))


@functools.lru_cache(maxsize=65536)
def _rule(op: Op, in_types: Types, out_types: Types, params: tuple[tuple[str, Any], ...]) -> FactorRule:
    return _shared(op.factor_rule(in_types, out_types, dict(params)))


@functools.lru_cache(maxsize=65536)
def _shared(rule: FactorRule) -> FactorRule:
    return rule
