"""The named axes of the batches that are being traced: what `vmap(axis_name=...)` says, and collectives over them ask."""

from __future__ import annotations

import threading
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass

from meshjit.trace.tracer import Tracer
from sharding.mesh import current_mesh


@dataclass(frozen=True)
class MemberAxis:
    """A batch whose members are told apart by `number`, a traced i32[] from 0 to size - 1."""

    name: Hashable
    size: int
    number: Tracer


class _Axes(threading.local):
    def __init__(self) -> None:
        self.stack: list[MemberAxis] = []


_axes = _Axes()


@contextmanager
def member_axis(name: Hashable, size: int, number: Tracer) -> Generator[None, None, None]:
    """Inside, collectives may name this axis; it hides one of the same name."""
    _axes.stack.append(MemberAxis(name, size, number))
    try:
        yield
    finally:
        _axes.stack.pop()


def find_member_axis(name: Hashable, what: str) -> MemberAxis:
    """The innermost axis of this name; NameError, with a fix, where there is none."""
    for axis in reversed(_axes.stack):
        if axis.name == name:
            return axis
    raise NameError(_unbound(name, what))


def member_sizes() -> tuple[tuple[Hashable, int], ...]:
    """What a function that is traced now can find out about these axes without a traced value."""
    return tuple((axis.name, axis.size) for axis in _axes.stack) if _axes.stack else ()


def _unbound(name: Hashable, what: str) -> str:
    names = ", ".join(f"{axis.name!r} of size {axis.size}" for axis in _axes.stack)
    mesh = current_mesh()
    if mesh is not None and name in mesh.axis_names:
        return (
            f"{what}: {name!r} is an axis of the mesh, which traced functions do not see: they compute whole arrays\n"
            "  fix: write the reduction over the whole array, such as x.sum(); its collectives are added by the compiler"
        )
    return (
        f"{what}: unbound axis name: {name!r}; {f'there are {names}' if names else 'no vmap around it has a named axis'}\n"
        f"  fix: vmap(..., axis_name={name!r}) of the function that calls {what}"
    )
