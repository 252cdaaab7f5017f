"""Ops with a rule replaced on purpose: tests of the tests must find what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from meshjit.core.op import REGISTRY, Op, Params, Types
from meshjit.core.rules import _access, _alike, _rule
from meshjit.core.verify import _known_types
from sharding.rule import FactorRule


@contextmanager
def broken(name: str, **rules: Any) -> Iterator[Op]:
    """The op of this name with other rules, for as long as the block lasts."""
    op = REGISTRY[name]
    kept = {rule: getattr(op, rule) for rule in rules}
    try:
        _set(op, rules)
        yield op
    finally:
        _set(op, kept)


def _set(op: Op, rules: Mapping[str, Any]) -> None:
    for rule, value in rules.items():
        object.__setattr__(op, rule, value)
    for rule_of_types in (_rule, _access, _alike):  # rules are remembered by op and types,
        rule_of_types.cache_clear()
    _known_types.cache_clear()  # and so are types


def passthrough(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """Claims that every element depends on the element at its place alone."""
    rule = FactorRule.elementwise(out_types[0].rank, len(in_types), len(out_types))
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def replicating(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """Claims of an elementwise op that every dim has to be whole."""
    rule = passthrough(in_types, out_types, params)
    return FactorRule(rule.operands, rule.results, dict.fromkeys(rule.factors, "replicate"), rule.sizes)
