"""What planning and passes ask about an equation: its factor rule, its access, and whether it takes other extents.

Alike equations have one factor rule, so that comparing rules costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from meshjit.core.access import Access, Moved, Nothing, Same, Window, derived
from meshjit.core.effects import is_pure
from meshjit.core.host import calls_host
from meshjit.core.op import ColumnWork, Op, Params, Search, Touches, Types
from meshjit.core.program import Eqn, Var
from meshjit.core.splat import is_known_splat
from sharding.rule import FactorRule

ValueDim: TypeAlias = tuple[Var, int]  # a dim of a value
Dims: TypeAlias = dict[str, list[tuple[int, int]]]  # factor → (number of an operand or result, its dim)
Items: TypeAlias = tuple[tuple[str, Any], ...]
NO_COLUMN_WORK: Final = ColumnWork(0.0, 0.0)


def rule_of(eqn: Eqn) -> FactorRule:
    """Which dims of the operands and results of an equation go together."""
    if eqn.op.regions is not None:  # nothing to share, and a cache would keep the nested Programs alive
        return eqn.op.factor_rule(eqn.input_types, eqn.output_types, eqn.params)
    return _ask(_rule, eqn)


class Reading(NamedTuple):
    """What an op says of its work: further reads of its operands, 0 for most; what it touches; whether it breaks lines; whether
    it reads registers, and not bytes; what going by columns takes; what it seeks."""

    passes: float = 0.0
    touches: Touches = "all"
    breaks_lines: bool = False
    fills_registers: bool = False
    column_work: ColumnWork = NO_COLUMN_WORK
    search: Search | None = None


def reading_of(eqn: Eqn) -> Reading:
    """What an equation reads and writes."""
    breaks_lines = eqn.op.breaks_lines is not None and eqn.op.breaks_lines(eqn.input_types, eqn.params)
    column_work = eqn.op.column_work(eqn.input_types, eqn.params) if eqn.op.column_work is not None else NO_COLUMN_WORK
    search = eqn.op.search(eqn.input_types, eqn.params) if eqn.op.search is not None else None
    return Reading(work_passes(eqn), eqn.op.touches, breaks_lines, eqn.op.fills_registers, column_work, search)


def work_passes(eqn: Eqn) -> float:
    """How often an equation reads its operands besides; 0 for most."""
    return eqn.op.passes(eqn.input_types, eqn.params) if eqn.op.passes else 0.0


def is_contraction(eqn: Eqn) -> bool:
    """Whether an equation multiplies operands and sums up the products: these are its work."""
    if eqn.op.regions is not None or eqn.op.search is not None or len(eqn.inputs) < 2:
        return False
    return bool(rule_of(eqn).reductions) and not work_passes(eqn)


def access_of(eqn: Eqn) -> tuple[Access, ...]:
    """Per result, where its elements come from."""
    return derived(rule_of(eqn)) if eqn.op.access is None else _ask(_access, eqn)


def alike(eqn: Eqn) -> dict[str, list[ValueDim]]:
    """The dims, by factor, at whose places an equation does the same: it may be computed at any of them, and at any number.
    None of ops that run Programs."""
    return {} if eqn.op.regions is not None or eqn.op.simulate is not None else _nodes(eqn, _ask(_alike, eqn))


def dims_of_factors(eqn: Eqn) -> dict[str, list[ValueDim]]:
    """The dims of the values that each factor is, and no other factor with it."""
    return _nodes(eqn, _dims_of(rule_of(eqn)))


def goes_by_element(eqn: Eqn) -> bool:
    """Whether an equation computes, or moves, each element by itself, and does nothing else with it: so it may be fused. What
    fetches rows does so one after the other, also those of a table that has only one."""
    if eqn.op.regions is not None or eqn.op.simulate is not None or eqn.op.fetches is not None or eqn.op.search is not None:
        return False
    reading = reading_of(eqn)
    return rule_of(eqn).is_passthrough or not (reading.passes or reading.breaks_lines or not _moves_elements(eqn))


def is_fusible(eqn: Eqn) -> bool:
    """Whether compilers compute the one result where it is read. A barrier hands on what lies in memory."""
    op = eqn.op
    if len(eqn.outputs) != 1 or op.regions is not None or op.pinned is not None or op.prune is not None or not is_pure(eqn):
        return False
    value = eqn.params.get("value")
    return goes_by_element(eqn) if eqn.inputs else value is None or is_known_splat(value)


def _moves_elements(eqn: Eqn) -> bool:
    places = [each for access in access_of(eqn) for operand in access.operands for each in operand]
    return all(isinstance(each, Same | Moved | Nothing) or (isinstance(each, Window) and each.size == 1) for each in places)


def takes_other_extents(eqn: Eqn, factor: str) -> bool:
    """Whether the op can be given values that are longer in the dims that the factor is."""
    return _is_extensible(eqn.op, eqn.input_types, eqn.output_types, eqn.params, _dims_of(rule_of(eqn))[factor])


def resized(op: Op, params: Params, in_types: Types, out_types: Types) -> Params | None:
    """The params of the op on values of other extents; None where params say otherwise."""
    params = params if op.localize is None else op.localize(params, in_types, out_types)
    try:
        return params if op.type_rule(in_types, params) == out_types else None
    except TypeError:
        return None


# -- answers, one for all equations that are alike


def _ask(rule: Any, eqn: Eqn) -> Any:
    kind = eqn.op, eqn.input_types, eqn.output_types, tuple(eqn.params.items())
    if calls_host(eqn):
        return rule.__wrapped__(*kind)
    try:
        return rule(*kind)
    except TypeError:  # a param that cannot be hashed, such as an array
        return rule.__wrapped__(*kind)


@functools.lru_cache(maxsize=65536)
def _rule(op: Op, in_types: Types, out_types: Types, params: Items) -> FactorRule:
    return _shared(op.factor_rule(in_types, out_types, dict(params)))


@functools.lru_cache(maxsize=65536)
def _shared(rule: FactorRule) -> FactorRule:
    return rule


@functools.lru_cache(maxsize=65536)
def _access(op: Op, in_types: Types, out_types: Types, params: Items) -> tuple[Access, ...]:
    if op.access is None:
        return derived(op.factor_rule(in_types, out_types, dict(params)))
    return op.access(in_types, out_types, dict(params))


@functools.lru_cache(maxsize=65536)
def _alike(op: Op, in_types: Types, out_types: Types, params: Items) -> Dims:
    others = set[tuple[int, int]]()
    for r, access in enumerate(_access.__wrapped__(op, in_types, out_types, params)):
        others.update((len(in_types) + r, d) for d in access.positions)
        for i, dims in enumerate(access.operands):
            others.update((i, d) for d, places in enumerate(dims) if not isinstance(places, Same | Nothing))
            others.update((len(in_types) + r, places.dim) for places in dims if isinstance(places, Moved | Window))
    dims = _dims_of(_rule.__wrapped__(op, in_types, out_types, params))
    return {
        factor: places
        for factor, places in dims.items()
        if others.isdisjoint(places) and _is_extensible(op, in_types, out_types, dict(params), places)
    }


@functools.lru_cache(maxsize=65536)
def _dims_of(rule: FactorRule) -> Dims:
    dims = [(i, d, names) for i, value in enumerate((*rule.operands, *rule.results)) for d, names in enumerate(value)]
    merged = {name for _, _, names in dims if len(names) > 1 for name in names}
    dims_by_name: Dims = {}
    for i, d, names in dims:
        if names and names[0] not in merged:
            dims_by_name.setdefault(names[0], []).append((i, d))
    return dims_by_name


def _nodes(eqn: Eqn, dims: Dims) -> dict[str, list[ValueDim]]:
    values = (*eqn.inputs, *eqn.outputs)
    return {factor: [(values[i], d) for i, d in places] for factor, places in dims.items()}


def _is_extensible(op: Op, in_types: Types, out_types: Types, params: Params, dims: Sequence[tuple[int, int]]) -> bool:
    types = enumerate((*in_types, *out_types))
    longer = [t.with_shape(tuple(n + ((i, d) in dims) for d, n in enumerate(t.shape))) for i, t in types]
    return resized(op, params, tuple(longer[: len(in_types)]), tuple(longer[len(in_types) :])) is not None
