"""Collectives between the devices of a mesh, in code for single devices (`shard_map`): what `lax.psum` and its kin mean there.

Where it is checked which values vary over which axes, an operand is first taken to vary over the axes of the collective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.explicit import typed
from meshjit.core.varying import REDUCED, UNREDUCED, Axes, differing, with_mark
from meshjit.numpy.promote import ops, shape_of, value
from meshjit.trace import Tracer, bind, line_of, user_source, vary, varying_of
from meshjit.trace.members import DeviceAxis, device_axis_names

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Devices:
    """Those that one collective brings together: along mesh axes, major to minor; in groups of their indices if there are any."""

    axes: tuple[DeviceAxis, ...]
    groups: Groups = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def name_set(self) -> frozenset[str]:
        return frozenset(self.names)

    @property
    def count(self) -> int:
        return math.prod(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        """How many devices exchange values with one another."""
        return len(self.groups[0]) if self.groups else self.count

    @property
    def checked(self) -> bool:
        return any(axis.checked for axis in self.axes)

    @property
    def params(self) -> dict[str, Any]:
        return {"axes": self.names, **({"groups": self.groups} if self.groups else {})}


def devices_of(axes: Sequence[DeviceAxis], groups: Any, what: str) -> Devices:
    """ValueError where an axis is named twice, and where groups do not hold every device once, or are of several sizes that
    `what` cannot have."""
    names = [axis.name for axis in axes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"{what} over {tuple(names)}, which has {twice[0]!r} twice\n  at {line_of(user_source())}\n  fix: name it once"
        )
    if groups is None:
        return Devices(tuple(axes))
    chosen = tuple(tuple(int(i) for i in group) for group in groups)
    devices = Devices(tuple(axes), chosen)
    if sorted(i for group in chosen for i in group) != list(range(devices.count)):
        raise ValueError(
            f"{what}: axis_index_groups are {[list(g) for g in chosen]}; they must hold every number from 0 to"
            f" {devices.count - 1} once"
        )
    if what not in ("pmax", "pmin") and len({len(group) for group in chosen}) > 1:
        raise ValueError(f"{what}: axis_index_groups are of several sizes, {[len(g) for g in chosen]}; they must be of one")
    return devices


# -- reductions


def reduced(x: Any, devices: Devices, kind: str, weak: bool, what: str) -> Any:
    """The sum, largest or smallest value (`kind` as of all_reduce) of all devices."""
    if devices.checked and devices.groups and kind == "sum":
        raise NotImplementedError(
            f"{what}: axis_index_groups give devices different results, of which is not known which vary, as in JAX\n"
            f"  at {line_of(user_source())}\n  fix: shard_map(..., check_vma=False)"
        )
    if not devices.checked:
        return bind(ops("all_reduce"), x, kind=kind, weak_type=weak, **devices.params)
    if devices.groups:  # each has its own result
        return bind(ops("all_reduce"), vary(x, devices.name_set), kind=kind, weak_type=weak, **devices.params)
    if kind == "sum":
        x = _as_addends(x, devices, what)
        return bind(ops("psum_invariant"), vary(x, devices.name_set), axes=devices.names, weak_type=weak)
    _check_no_cast(x, devices, what)
    return bind(ops("all_reduce"), vary(x, devices.name_set), axes=devices.names, kind=kind, weak_type=weak)


def _as_addends(x: Any, devices: Devices, what: str) -> Any:
    """What the devices add up: an unreduced value as it is. ValueError where it is unreduced along some of the axes alone."""
    addends = with_mark(varying_of(x), UNREDUCED) & devices.name_set
    if addends == devices.name_set:
        return bind(ops("pcast"), x, axes=tuple(sorted(addends)), source=UNREDUCED, to="")
    if not addends:
        _check_no_cast(x, devices, what)
    _check_state(x, devices, what)
    return x


def _check_no_cast(x: Any, devices: Devices, what: str) -> None:
    """ValueError for a reduced value: whether its cotangents are addends has to be said."""
    reduced = tuple(sorted(with_mark(varying_of(x), REDUCED) & devices.name_set))
    if reduced:
        raise ValueError(
            f"{what} of a value that is reduced over {reduced}\n  at {line_of(user_source())}\n"
            f"  fix: lax.pcast(x, {reduced}, to='varying') before"
        )


def _check_state(x: Any, devices: Devices, what: str) -> None:
    """ValueError where a value varies over some of the axes of a sum, and not over others: the sum would count those twice."""
    varying = differing(varying_of(x)) & devices.name_set
    if varying and varying != devices.name_set:
        same = tuple(name for name in devices.names if name not in varying)
        raise ValueError(
            f"{what} over {devices.names} of a value that varies over {tuple(sorted(varying))} alone, and is the same along"
            f" {same}\n  at {line_of(user_source())}\n"
            f"  fix: {what}(x, {tuple(sorted(varying))}); or lax.pcast(x, {same}, to='varying') to count it once per device"
        )


# -- the values of other devices


def gathered(x: Any, devices: Devices, dim: int, tiled: bool, to: str = "varying") -> Any:
    _check_no_cast(x, devices, "all_gather")
    x = vary(x if tiled else mnp.expand_dims(x, dim), devices.name_set)
    op = "all_gather_invariant" if to == "invarying" and devices.checked else "all_gather"
    x = bind(ops(op), x, size=devices.size, dim=dim, **devices.params)
    return bind(ops("pcast"), x, axes=devices.names, source="", to=REDUCED) if to == "reduced" and devices.checked else x


def scattered(x: Any, devices: Devices, dim: int, tiled: bool) -> Any:
    """Of the sum the device's own part along `dim`, whose extent has been checked."""
    if devices.checked:
        x = _as_addends(x, devices, "psum_scatter")
    part = bind(ops("reduce_scatter"), vary(x, devices.name_set), size=devices.size, dim=dim, kind="sum", **devices.params)
    return part if tiled else mnp.squeeze(part, dim)


def exchanged(x: Any, devices: Devices, split: int, concat: int, tiled: bool) -> Any:
    """Part i along `split` to device i; a new dim `concat` of what came, or behind one another along it."""
    _check_no_cast(x, devices, "all_to_all")
    x = vary(x, devices.name_set)
    if not tiled:  # the new dim stands before or behind the one that goes
        split, concat = (split + 1, concat) if concat <= split else (split, concat + 1)
        x = mnp.expand_dims(x, concat)
    x = bind(ops("all_to_all"), x, size=devices.size, split_dim=split, concat_dim=concat, **devices.params)
    return x if tiled else mnp.squeeze(x, split)


def permuted(x: Any, devices: Devices, pairs: Sequence[tuple[int, int]]) -> Any:
    """Pairs are of indices along the axes in the mesh's order, whatever the order that they are named in: as in JAX."""
    _check_no_cast(x, devices, "ppermute")
    order = device_axis_names()
    names = tuple(sorted(devices.names, key=order.index))
    return bind(ops("ppermute"), vary(x, devices.name_set), axes=names, pairs=tuple(sorted(pairs)))


def number(devices: Devices) -> Any:
    return bind(ops("axis_index"), axes=devices.names)


def broadcast(x: Any, devices: Devices, source: int, what: str) -> Any:
    """That of device `source`, by a sum in which all others are zeros."""
    array, type, weak = value(x, what)
    mine = mnp.equal(number(devices), source)
    masked = mnp.where(mine, array, mnp.zeros(shape_of(array), type.dtype))
    kind = "or" if type.dtype == np.bool_ else "sum"
    return vary(reduced(vary(masked, devices.name_set), devices, kind, weak, what), devices.name_set)


# -- pcast


_CASTS = {("invarying", "varying"), ("invarying", "reduced"), ("varying", "unreduced"), ("reduced", "varying")}


def cast(x: Any, names: tuple[str, ...], to: str) -> Any:
    """x, taken to be another thing along these axes; ValueError for what JAX's pcast does not do either."""
    x, _, weak = value(x, "pcast")
    axes = varying_of(x) if isinstance(x, Tracer) else frozenset[str]()
    state = state_along(axes, names, "pcast")
    if (state, to) not in _CASTS:
        raise ValueError(
            f"pcast over {names} from {state} to {to!r} is not possible: x is {typed(value(x, 'pcast')[1], None, axes)}\n"
            f"  at {line_of(user_source())}\n"
            "  fix: invarying becomes varying or reduced, reduced varying, and varying unreduced; lax.psum finishes a sum"
        )
    if state == "reduced" or to == "unreduced":
        marks = {"varying": "", "reduced": REDUCED, "unreduced": UNREDUCED}
        return bind(ops("pcast"), x, axes=names, source=marks[state], to=marks[to])
    x = vary(x, frozenset(names))
    x = bind(ops("pcast"), x, axes=names, source="", to=REDUCED) if to == "reduced" else x
    if isinstance(x, Tracer):
        x.weak_type = weak  # of a Python number, too
    return x


def state_along(axes: Axes, names: Sequence[str], what: str) -> str:
    """How a value stands to these axes: "varying", "unreduced", "reduced" or "invarying". ValueError where not to all alike."""
    states = {"varying": with_mark(axes, ""), "unreduced": with_mark(axes, UNREDUCED), "reduced": with_mark(axes, REDUCED)}
    among = {next((state for state, some in states.items() if name in some), "invarying") for name in names}
    if len(among) > 1:
        raise ValueError(
            f"{what} over {tuple(names)} of a value that is {' and '.join(sorted(among))} along them\n"
            f"  at {line_of(user_source())}\n  fix: {what} over those along which it is one of these"
        )
    return among.pop()


def as_varying(x: Any, axes: Axes) -> Any:
    """A cotangent of a value that varies over these axes: the sum over those along which the value is the same."""
    extra = tuple(sorted(with_mark(varying_of(x), "") - axes))
    x = bind(ops("psum_invariant"), x, axes=extra) if extra else x
    return vary(x, axes)
