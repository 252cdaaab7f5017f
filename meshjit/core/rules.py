"""What planning and passes ask about an equation: its factor rule, its access, and whether it takes other extents.

Alike equations have one factor rule, so that comparing rules costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any, TypeAlias

from meshjit.core.access import Access, Nothing, Same, derived
from meshjit.core.op import Op, Params, Types
from meshjit.core.program import Eqn, Var
from meshjit.core.types import TensorType
from sharding.rule import FactorRule

Node: TypeAlias = tuple[Var, int]  # a dim of a value


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


def access_of(eqn: Eqn) -> tuple[Access, ...]:
    """Per result, where its elements come from."""
    if eqn.op.access is not None:
        return eqn.op.access(eqn.input_types, eqn.output_types, eqn.params)
    return derived(rule_of(eqn))


def resized(op: Op, params: Params, in_types: Types, out_types: Types) -> Params | None:
    """The params of the op on values of other extents; None where params say otherwise."""
    params = params if op.localize is None else op.localize(params, in_types, out_types)
    try:
        return params if op.type_rule(in_types, params) == out_types else None
    except TypeError:
        return None


def nodes_of(eqn: Eqn) -> dict[str, list[Node]]:
    """The dims of the values that each factor is, and no other factor with it."""
    rule, nodes = rule_of(eqn), dict[str, list[Node]]()
    sides = list(zip((*eqn.inputs, *eqn.outputs), (*rule.operands, *rule.results), strict=True))
    merged = set[str]() if rule.is_simple else {f for _, dims in sides for dim in dims if len(dim) > 1 for f in dim}
    for var, dims in sides:
        for d, dim in enumerate(dims):
            if dim and dim[0] not in merged:
                nodes.setdefault(dim[0], []).append((var, d))
    return nodes


def alike(eqn: Eqn) -> dict[str, list[Node]]:
    """The dims, by factor, at whose places an equation does the same: it may be computed at any of them, and at any number.
    None of ops that run Programs."""
    if eqn.op.regions is not None or eqn.op.simulate is not None:
        return {}
    others = set[Node]()
    for var, access in zip(eqn.outputs, access_of(eqn), strict=True):
        others.update((var, d) for d in access.positions)
        for operand, dims in zip(eqn.inputs, access.operands, strict=True):
            others.update((operand, d) for d, places in enumerate(dims) if not isinstance(places, Same | Nothing))
    return {f: nodes for f, nodes in nodes_of(eqn).items() if others.isdisjoint(nodes) and takes_other_extents(eqn, nodes)}


def takes_other_extents(eqn: Eqn, nodes: Collection[Node]) -> bool:
    """Whether the op can be given values that are longer in these dims."""

    def longer(var: Var) -> TensorType:
        return var.type.with_shape(tuple(n + ((var, d) in nodes) for d, n in enumerate(var.shape)))

    return resized(eqn.op, eqn.params, tuple(map(longer, eqn.inputs)), tuple(map(longer, eqn.outputs))) is not None
