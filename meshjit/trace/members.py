"""The named axes that are around what is being traced: of batches (`vmap(axis_name=...)`) and of devices (`shard_map`)."""

from __future__ import annotations

import threading
from collections.abc import Generator, Hashable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from sharding.mesh import current_mesh


@dataclass(frozen=True)
class MemberAxis:
    """A batch whose members are told apart by `number`, a traced i32[] (a Tracer) from 0 to size - 1."""

    name: Hashable
    size: int
    number: object


@dataclass(frozen=True)
class DeviceAxis:
    """An axis of a mesh, in code for single devices. `checked`: it is known which values vary along it."""

    name: str
    size: int
    checked: bool


class _Axes(threading.local):
    def __init__(self) -> None:
        self.stack: list[MemberAxis | DeviceAxis] = []


_axes = _Axes()


@contextmanager
def member_axis(name: Hashable, size: int, number: object) -> Generator[None, None, None]:
    """Inside, collectives may name this axis; it hides one of the same name."""
    _axes.stack.append(MemberAxis(name, size, number))
    try:
        yield
    finally:
        _axes.stack.pop()


@contextmanager
def device_axes(axes: Iterable[tuple[str, int]], checked: bool) -> Generator[None, None, None]:
    """Inside, code for single devices of a mesh with these axes, major to minor, is traced."""
    before = len(_axes.stack)
    _axes.stack += [DeviceAxis(name, size, checked) for name, size in axes]
    try:
        yield
    finally:
        del _axes.stack[before:]


def named_axes() -> tuple[MemberAxis | DeviceAxis, ...]:
    """Those around what is being traced, outer ones first."""
    return tuple(_axes.stack)


@contextmanager
def under(axes: Iterable[MemberAxis | DeviceAxis]) -> Generator[None, None, None]:
    """Inside, these axes are around and no others: for what is traced later than the function that it belongs to."""
    before, _axes.stack = _axes.stack, list(axes)
    try:
        yield
    finally:
        _axes.stack = before


def is_checked() -> bool:
    """Whether the innermost code for single devices keeps record of which values vary."""
    return next((axis.checked for axis in reversed(_axes.stack) if isinstance(axis, DeviceAxis)), False)


def device_axis_names() -> tuple[str, ...]:
    """The mesh axes that code around is for single devices of, outer ones first."""
    return tuple(dict.fromkeys(axis.name for axis in _axes.stack if isinstance(axis, DeviceAxis)))


def find_axis(name: Hashable, what: str) -> MemberAxis | DeviceAxis:
    """The innermost axis of this name; NameError, with a fix, where there is none."""
    for axis in reversed(_axes.stack):
        if axis.name == name:
            return axis
    raise NameError(_unbound(name, what))


def member_sizes() -> tuple[tuple[Hashable, ...], ...]:
    """What a function that is traced now can find out about these axes without a traced value."""
    return tuple([_said(axis) for axis in _axes.stack]) if _axes.stack else ()


def _said(axis: MemberAxis | DeviceAxis) -> tuple[Hashable, ...]:
    return (axis.name, axis.size, axis.checked) if isinstance(axis, DeviceAxis) else (axis.name, axis.size)


def _unbound(name: Hashable, what: str) -> str:
    names = ", ".join(f"{axis.name!r} of size {axis.size}" for axis in _axes.stack)
    mesh = current_mesh()
    if mesh is not None and name in mesh.axis_names:
        return (
            f"{what}: {name!r} is an axis of the mesh, which traced functions do not see: they compute whole arrays\n"
            "  fix: write the reduction over the whole array, such as x.sum(); its collectives are added by the compiler;\n"
            "    or write code for single devices, with shard_map"
        )
    others = f"there are {names}" if names else "no vmap or shard_map around it has a named axis"
    return (
        f"{what}: unbound axis name: {name!r}; {others}\n"
        f"  fix: vmap(..., axis_name={name!r}) of the function that calls {what}, or shard_map over a mesh with that axis"
    )
