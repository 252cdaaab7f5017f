"""What propagation holds while it runs: values, the holders and offers of factors, and what visits of nodes came to."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from sharding.axes import AxisRef, overlap
from sharding.graph import Axes
from sharding.placement import Placement, placed
from sharding.rule import FactorRule

NodeKey: TypeAlias = Any  # which states a node's values are in, by number: one number, or a tuple of several
Clash: TypeAlias = tuple[str, int, int, Axes, Axes, int]  # factor, slot, dim, kept, lost, slot that offered
Change: TypeAlias = tuple[int, int, Axes, tuple[tuple[int, int], ...]]  # slot, dim, its axes now, who offered them
Trail: TypeAlias = tuple[Change, ...]
# The changes of a visit, in order, and (slot, number of the new state) of every value that changed; () if none did.
Outcome: TypeAlias = tuple[()] | tuple[Trail, tuple[tuple[int, int], ...]]

CONTESTS: Final = 3  # the last stages of propagation; see the text of propagation.py
DISPLACEMENTS: Final = 4


class State(NamedTuple):
    """All that a visit reads of a value. Only the origins of its axes are kept elsewhere."""

    shape: tuple[int, ...]
    dims: tuple[Axes, ...]
    is_open: tuple[bool, ...]
    partial: tuple[tuple[AxisRef, str], ...]
    is_active: bool  # whether it takes part yet; a seed waits for its priority
    is_quiet: tuple[bool, ...]  # dims that hold axes but offer them only once their priority spreads

    @staticmethod
    def untouched(shape: tuple[int, ...]) -> State:
        rank = len(shape)
        return State(shape, ((),) * rank, (True,) * rank, (), True, (False,) * rank)


class VisitKind:
    """Outcomes of visits of nodes of one kind: the same rule, and the same order among the first values of its ties."""

    __slots__ = ("changes", "clashes", "holders", "is_plain", "may_displace", "operands", "ranks", "rule", "stages")

    def __init__(self, rule: FactorRule) -> None:
        self.rule, self.holders, self.stages = rule, holders_of(rule), stages_of(rule)
        self.may_displace = DISPLACEMENTS in self.stages
        self.is_plain = rule.is_simple and not rule.hidden  # a factor has all axes of its dims
        self.operands = len(rule.operands)
        self.ranks = [len(value) for value in (*rule.operands, *rule.results)]
        self.changes: tuple[dict[NodeKey, Outcome], ...] = ({}, {}, {})  # before contests, there, and behind
        self.clashes: dict[NodeKey, tuple[Clash, ...]] = {}

    def differing(self, states: Sequence[State]) -> Sequence[tuple[str, tuple[Holder, ...]]]:
        """The factors whose dims do not all have the same axes, of values in these states. Of others nobody learns anything, and
        their axes are taken."""
        if not self.is_plain:
            return self.holders
        differing: list[tuple[str, tuple[Holder, ...]]] = []
        for factor in self.holders:
            first, *others = factor[1]
            axes = states[first.slot].dims[first.dim]
            for holder in others:
                if states[holder.slot].dims[holder.dim] != axes:
                    differing.append(factor)
                    break
        return differing


class VisitCache:
    """Outcomes of visits, by kind of node and states of its values: equal layers are computed once, across runs too.

    States are numbered, and a run keeps only the number of every value's state. No number is used twice, because several
    threads may propagate at once.
    """

    def __init__(self) -> None:
        self.count = itertools.count()
        self.kinds: dict[tuple[FactorRule, tuple[int, ...]], VisitKind] = {}
        self.numbers: dict[State, int] = {}
        self.states: dict[int, State] = {}
        self.placed: dict[int, Placement] = {}  # by number of the state

    @property
    def is_full(self) -> bool:
        visits = sum(sum(map(len, kind.changes)) + len(kind.clashes) for kind in [*self.kinds.values()])
        return visits + len(self.numbers) > 200_000

    def kind_of(self, rule: FactorRule, order: tuple[int, ...]) -> VisitKind:
        key = rule, order
        kind = self.kinds.get(key)
        return self.kinds.setdefault(key, VisitKind(rule)) if kind is None else kind

    def number_of(self, state: State) -> int:
        number = self.numbers.get(state)
        if number is None:
            number = next(self.count)
            self.states[number] = state
            number = self.numbers.setdefault(state, number)
        return number

    def placement_of(self, number: int) -> Placement:
        """Where a value in this state is; one object for equal placements, which makes comparing them quick."""
        placement = self.placed.get(number)
        if placement is None:
            state = self.states[number]
            placement = self.placed[number] = placed(state.dims, state.partial)
        return placement


def cache_of(axes: tuple[tuple[str, int], ...]) -> VisitCache:
    """One for every mesh shape, until it is full."""
    holder = _holder(axes)
    if holder[0].is_full:
        holder[0] = VisitCache()
    return holder[0]


@functools.lru_cache(maxsize=64)
def _holder(axes: tuple[tuple[str, int], ...]) -> list[VisitCache]:
    return [VisitCache()]


class Value:
    """A value, or all values of a tie together, while a visit or a seed changes it."""

    __slots__ = ("dims", "first", "is_active", "is_open", "is_quiet", "partial", "shape")

    def __init__(self, first: int, state: State) -> None:
        self.first = first
        self.shape, self.dims, self.is_open, self.partial, self.is_active, self.is_quiet = state

    def put(self, dim: int, axes: Axes) -> None:
        self.dims = (*self.dims[:dim], axes, *self.dims[dim + 1 :])

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def state(self) -> State:
        return State(self.shape, self.dims, self.is_open, self.partial, self.is_active, self.is_quiet)

    def blockers(self, dim: int, axis: AxisRef) -> Axes:
        """The axes of other dims, and the partial ones, that keep `axis` from `dim`."""
        others = [other for d, axes in enumerate(self.dims) if d != dim for other in axes]
        if self.partial:
            others += [other for other, _ in self.partial]
        return tuple([other for other in others if overlap(other, axis)]) if others else ()


@dataclasses.dataclass(frozen=True)
class Holder:
    """A dim of a value of a node that holds a factor; `slot` counts operands, then results."""

    slot: int
    dim: int
    factors: tuple[str, ...]  # all of the dim


@dataclasses.dataclass(slots=True, eq=False)  # never changed; saying so would treble the time of making one
class Offer:
    """The axes that a factor has in one value of a node."""

    axes: Axes
    value: Value
    slot: int
    dim: int


@functools.lru_cache(maxsize=65536)
def holders_of(rule: FactorRule) -> tuple[tuple[str, tuple[Holder, ...]], ...]:
    """Every factor that may be sharded, with the dims that hold it."""
    holders: dict[str, list[Holder]] = {name: [] for name in rule.factors if rule.kinds.get(name) != "replicate"}
    for slot, value in enumerate((*rule.operands, *rule.results)):
        for dim, factors in enumerate(value):
            for name in factors:
                if name in holders:
                    holders[name].append(Holder(slot, dim, factors))
    return tuple((name, tuple(dims)) for name, dims in holders.items())


@functools.lru_cache(maxsize=65536)
def stages_of(rule: FactorRule) -> tuple[int, ...]:
    """The stages in which a node of this rule is visited; none where no factor stands twice, so that nothing has offers."""
    if all(len(holders) < 2 for _, holders in holders_of(rule)) and "replicate" not in rule.kinds.values():
        return ()
    of_operands = {name for value in rule.operands for dim in value for name in dim}
    first = 0 if rule.is_passthrough else 1
    if rule.operands and any(name not in of_operands for name in rule.factors):
        first = 2
    merges = any(len(dim) > 1 for value in (*rule.operands, *rule.results) for dim in value)
    return (first, CONTESTS, *((DISPLACEMENTS,) if merges or "replicate" in rule.kinds.values() else ()))
