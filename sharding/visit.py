"""One visit of a node in propagation: what its values learn of one another, and where they disagree.

What comes of a visit is a function of the node's rule and of the states of its values, so it is kept as a list of changes
and applied to all nodes that are alike (propagation.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from sharding.axes import canonical_axes, common_prefix, is_prefix, name_of, overlap, without_prefix
from sharding.displace import refuge
from sharding.graph import Axes
from sharding.mesh import BaseMesh
from sharding.propagation_state import CONTESTS, DISPLACEMENTS, Change, Clash, Holder, Offer, Value, VisitKind


class Visit:
    """Values of one node at its rule. Their dims change at once; `trail` says how, in order."""

    def __init__(
        self, kind: VisitKind, slots: Sequence[Value], mesh: BaseMesh, holders: Sequence[tuple[str, tuple[Holder, ...]]]
    ) -> None:
        """`holders`: of the factors that are looked at."""
        self.rule, self.slots, self.mesh, self.sizes = kind.rule, slots, mesh, mesh.shape
        self.is_plain, self.holders = kind.is_plain, holders
        self.trail: list[Change] = []

    def run(self, stage: int) -> tuple[Change, ...]:
        """Exchange axes among the values: what all agree on, or one contest, or displacements."""
        if stage == DISPLACEMENTS:
            self._displace()
            self._displace_minor()
        elif stage == CONTESTS:
            self._settle_one()
        else:
            self._exchange()
        return tuple(self.trail)

    def _exchange(self) -> None:
        offers = self._offers()
        claims = {name: tuple([axis for offer in group for axis in offer.axes]) for name, group in offers.items() if group}
        for name, holders in self.holders if claims else ():
            if name in claims:
                agreed = self._agreed([offer.axes for offer in offers[name]])
                for holder in holders:
                    if not self.is_plain or self.slots[holder.slot].dims[holder.dim] != agreed:
                        self._extend(name, holder, agreed, offers[name], claims)

    def _settle_one(self) -> None:
        """The first contest that changes something: whatever follows from it comes before the next."""
        offers = self._offers()
        contested = [(name, holders) for name, holders in self.holders if offers[name]]
        for name, holders in sorted(contested, key=lambda item: _rank(_heaviest(offers[item[0]]))):
            best = _heaviest(offers[name])
            if any([self._extend(name, holder, best.axes, offers[name], None) for holder in holders]):
                return

    def _displace(self) -> None:
        """Values that share a whole factor with one that is sharded along it get its axes on another dim."""
        rule, slots = self.rule, self.slots
        sides = (*rule.operands, *rule.results)
        for name in [factor for factor, kind in rule.kinds.items() if kind == "replicate"]:
            holders = [(slot, dims.index((name,))) for slot, dims in enumerate(sides) if (name,) in dims]
            for slot, dim in holders:
                offer = Offer(slots[slot].dims[dim], slots[slot], slot, dim)
                busy = [factor for factor, group in self._offers().items() if group]
                chosen = refuge(rule, sides[slot], offer.axes, busy, self.mesh) if offer.value.is_active else None
                for other, _ in holders:
                    if chosen and (chosen,) in sides[other] and not _uses_any(slots[other], offer.axes):
                        holder = Holder(other, sides[other].index((chosen,)), (chosen,))
                        self._extend(chosen, holder, offer.axes, [offer], None)

    def _displace_minor(self) -> None:
        """A dim that merges factors gets the axes of a later one from its first factor on: where the later one is cut they
        would leave it in strides.

            a b -> (a b)        of [-, x] the result is [x]: x cuts a, and b as far as a is too short"""
        offers = self._offers()
        for name, holders in self.holders:
            for holder, offer in itertools.product(holders, offers[name]):
                value = self.slots[holder.slot]
                if name == holder.factors[0] or not value.is_open[holder.dim] or _uses_any(value, offer.axes):
                    continue
                old = value.dims[holder.dim]
                joined = canonical_axes((*old, *offer.axes), self.sizes)
                fits = value.is_active and not self.rule.split_dim(holder.factors, joined, self.mesh)[1]
                if fits and is_prefix(old, joined, self.sizes):
                    self.trail.append((holder.slot, holder.dim, joined, ((offer.slot, offer.dim),)))
                    value.put(holder.dim, joined)

    def _offers(self) -> dict[str, list[Offer]]:
        offers: dict[str, list[Offer]] = {}
        for name, holders in self.holders:
            group = offers[name] = []
            for holder in holders:
                value = self.slots[holder.slot]
                axes = value.dims[holder.dim] if self.is_plain else self._factor_axes(name, holder, value)
                if axes and value.is_active and not value.is_quiet[holder.dim]:
                    group.append(Offer(axes, value, holder.slot, holder.dim))
        return offers

    def _factor_axes(self, name: str, holder: Holder, value: Value) -> Axes:
        axes = value.dims[holder.dim]
        if self.rule.hidden and axes:
            return tuple([axis for axis in axes if name_of(axis) not in self.rule.hidden])
        if len(holder.factors) == 1 or not axes:
            return axes
        return self.rule.split_dim(holder.factors, axes, self.mesh)[0][name]

    def _agreed(self, offered: Sequence[Axes]) -> Axes:
        """The longest axes that all offers are prefixes of; where some part ways, the prefix before they do."""
        longest = offered[0]
        if offered.count(longest) == len(offered):
            return longest
        agreed = longest = max(offered, key=self._shards)
        for axes in offered:
            if axes != longest and not is_prefix(axes, longest, self.sizes):
                shared = common_prefix(longest, axes, self.sizes)
                agreed = min(agreed, shared, key=self._shards)
        return agreed

    def _shards(self, axes: Axes) -> int:
        sizes = self.sizes
        return math.prod([sizes[axis] if isinstance(axis, str) else axis.size for axis in axes])

    # --- extending a dim ----------------------------------------------------------------------------------------------

    def _extend(
        self, name: str, holder: Holder, offered: Axes, offers: Sequence[Offer], claims: Mapping[str, Axes] | None
    ) -> bool:
        """Give the dim at `holder` what it may take of `offered`, behind what it has; whether that was anything."""
        value = self.slots[holder.slot]
        if not value.is_open[holder.dim] or not value.is_active:
            return False
        have = value.dims[holder.dim] if self.is_plain else self._factor_axes(name, holder, value)
        if have == offered or not is_prefix(have, offered, self.sizes):
            return False
        room = self._room(name, holder, value, offers)
        allowed = self._allowed(name, holder, have, offered, claims, room)
        joined = self._with_factor(name, holder, value, allowed)
        old = value.dims[holder.dim]
        if joined == old or not is_prefix(old, joined, self.sizes):
            return False
        ranked = sorted(offers, key=_rank)
        self.trail.append((holder.slot, holder.dim, joined, tuple([(offer.slot, offer.dim) for offer in ranked])))
        value.put(holder.dim, joined)
        return True

    def _room(self, name: str, holder: Holder, value: Value, offers: Sequence[Offer]) -> int:
        """Into how many shards a factor may be cut: its extent, or more where a seed has done so to as long a dim."""
        if len(holder.factors) > 1:
            return self.rule.sizes[name]
        extent = value.shape[holder.dim]
        alike = [offer for offer in offers if offer.value.shape[offer.dim] == extent]
        return max([extent, *(self._shards(offer.axes) for offer in alike)]) if extent > 1 else extent

    def _allowed(
        self,
        name: str,
        holder: Holder,
        have: Axes,
        offered: Axes,
        claims: Mapping[str, Axes] | None,
        room: int,
    ) -> Axes:
        """The longest part of `offered` whose axes are free in the value, not contested, and not too many."""
        value = self.slots[holder.slot]
        rivals = self._siblings(name, holder, value)
        rivals += self._rivals(name, holder, claims) if claims is not None and len(claims) > 1 else ()
        taken = list(have)
        for axis in without_prefix(offered, have, self.sizes):
            busy = value.blockers(holder.dim, axis) or any([overlap(axis, rival) for rival in rivals])
            if busy or self._shards((*taken, axis)) > room:
                break
            taken.append(axis)
        return offered if len(taken) == len(have) + len(offered) else canonical_axes(taken, self.sizes)

    def _siblings(self, name: str, holder: Holder, value: Value) -> Axes:
        """The axes that the dim at `holder` spends on its other factors."""
        if len(holder.factors) == 1:
            return ()
        split, rest = self.rule.split_dim(holder.factors, value.dims[holder.dim], self.mesh)
        return (*(axis for other, axes in split.items() if other != name for axis in axes), *rest)

    def _rivals(self, name: str, holder: Holder, claims: Mapping[str, Axes]) -> Axes:
        """The axes that other factors of the same value are offered at this node."""
        value_dims = (*self.rule.operands, *self.rule.results)[holder.slot]
        others = (other for dim in value_dims for other in dim if other != name)
        return tuple(axis for other in others for axis in claims.get(other, ()))

    def _with_factor(self, name: str, holder: Holder, value: Value, axes: Axes) -> Axes:
        """The dim's axes when `name` has `axes`, and its other factors what they have."""
        if self.rule.hidden:
            return (*(axis for axis in value.dims[holder.dim] if name_of(axis) in self.rule.hidden), *axes)
        if len(holder.factors) == 1:
            return axes
        assignment, _ = self.rule.split_dim(holder.factors, value.dims[holder.dim], self.mesh)
        return self.rule.join_dim(holder.factors, {**assignment, name: axes}, self.mesh)

    # --- what collided ------------------------------------------------------------------------------------------------

    def clashes(self) -> Iterator[Clash]:
        """Every value of the node whose axes for a factor are not those that another has, and could not become so."""
        slots, offers = self.slots, self._offers()
        for name, holders in self.holders:
            if not offers[name]:
                continue
            best = max(offers[name], key=lambda offer: (self._shards(offer.axes), offer.value.elements))
            by = next(slot for slot, value in enumerate(slots) if value is best.value)
            for holder in holders:
                kept = self._kept_instead(name, holder, slots[holder.slot], best.axes)
                if kept:
                    yield name, holder.slot, holder.dim, kept, best.axes, by

    def _kept_instead(self, name: str, holder: Holder, value: Value, offered: Axes) -> Axes:
        """What keeps `offered` from the dim at `holder`: other axes on it, or the same ones elsewhere; () if neither."""
        have = self._factor_axes(name, holder, value)
        if is_prefix(offered, have, self.sizes):
            return ()
        if not is_prefix(have, offered, self.sizes):
            return have
        if not value.is_open[holder.dim]:
            return ()
        return value.blockers(holder.dim, without_prefix(offered, have, self.sizes)[0])


def _heaviest(offers: Sequence[Offer]) -> Offer:
    return min(offers, key=_rank)


def _rank(offer: Offer) -> tuple[int, int]:
    """The smaller, the stronger in a contest: values of most elements first, then the first ones."""
    return -offer.value.elements, offer.value.first


def _uses_any(value: Value, axes: Axes) -> bool:
    used = (*(a for dim in value.dims for a in dim), *(a for a, _ in value.partial))
    return any(overlap(axis, other) for axis in axes for other in used)
