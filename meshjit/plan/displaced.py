"""Axes that cannot stay where they are: they may shard other dims of the equation meanwhile.

A sort of rows whose dim is sharded, `[a, b@x] -> [a, b] | permute b`, need not gather: x moves to the rows (an
all-to-all), every device sorts the rows that it has, and x moves back if a use needs it there. The same holds for any
op with a dim that has to be whole, as long as another dim passes through it; and where two values have an axis on
different factors, one of which is special, such as the elements that are taken along a dim and the dim they are from.
Only factors that all values share are candidates, for which nothing has to be repeated.

    rule a b -> a b, b whole; the operand is [-, x]         candidates  {a: x}
    a has 2 elements, c has 4, x is 8                       candidates  {a: x}, {c: x}, {c: x:(1)4, a: x:(4)2}
    a b, a c -> a c | sum b, [-, x] and [-, x]              candidates  {b: x}, {c: x}, and besides {a: x}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sharding.axes import AxisRef, SubAxis, canonical_axes, overlap, span
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule

Assignment = dict[str, tuple[AxisRef, ...]]


def displaced(
    rule: FactorRule, views: Sequence[Assignment], merged: Assignment, wholes: frozenset[str], mesh: BaseMesh
) -> Iterator[Assignment]:
    """`merged` with axes dealt to factors that pass through: those of the first view's whole factors, and contested ones."""
    if rule.is_passthrough:
        return
    used = [axis for axes in merged.values() for axis in axes]
    lost = [axis for factor in rule.factors if factor in wholes for axis in views[0].get(factor, ())]
    lost = [axis for axis in lost if mesh.axis_size(axis) > 1 and not any(overlap(axis, other) for other in used)]
    if not lost:
        lost = [axis for axis in _contested(rule, views) if axis in used]
        merged = {f: tuple(axis for axis in axes if axis not in lost) for f, axes in merged.items()}
    rooms = {f: rule.sizes[f] // mesh.axes_size(merged.get(f, ())) for f in _open(rule)}
    rooms = {f: room for f, room in rooms.items() if room > 1}
    if not lost or not rooms:
        return
    for factor in rooms:
        yield merged | {factor: canonical_axes((*merged.get(factor, ()), *lost), mesh.shape)}
    if all(room < mesh.axes_size(lost) for room in rooms.values()):
        yield merged | _dealt(lost, merged, rooms, mesh)


def _contested(rule: FactorRule, views: Sequence[Assignment]) -> list[AxisRef]:
    """Axes that lie on different factors in different values, one of the factors being special."""
    factors_of: dict[AxisRef, set[str]] = {}
    for view in views:
        for factor, axes in view.items():
            for axis in axes:
                factors_of.setdefault(axis, set()).add(factor)
    return [axis for axis, factors in factors_of.items() if len(factors) > 1 and any(f in rule.kinds for f in factors)]


def _open(rule: FactorRule) -> list[str]:
    """Factors that all operands and results share, scalars aside, and that nothing is special about: batch dims."""
    values = [{name for dim in value for name in dim} for value in (*rule.operands, *rule.results) if value]
    return [f for f in rule.factors if f not in rule.kinds and f in rule.sizes and all(f in value for value in values)]


def _dealt(lost: Sequence[AxisRef], merged: Assignment, rooms: dict[str, int], mesh: BaseMesh) -> Assignment:
    """Prime parts of the axes, major to minor: the factor with most room is filled first; the rest stays unused."""
    dealt = {f: list(merged.get(f, ())) for f in rooms}
    left = sorted(rooms.items(), key=lambda item: -item[1])
    for axis in lost:
        name, pre, size = span(axis, mesh.shape)
        for prime in _primes(size):
            while left and left[0][1] < prime:
                left.pop(0)
            if not left:
                return {f: canonical_axes(axes, mesh.shape) for f, axes in dealt.items()}
            factor, room = left[0]
            dealt[factor].append(SubAxis(name, pre, prime))
            left[0] = (factor, room // prime)
            pre *= prime
    return {f: canonical_axes(axes, mesh.shape) for f, axes in dealt.items()}


def _primes(number: int) -> list[int]:
    """Prime factors, ascending."""
    primes, prime = [], 2
    while number > 1:
        while number % prime == 0:
            primes.append(prime)
            number //= prime
        prime += 1
    return primes
