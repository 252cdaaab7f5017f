"""What makes a mesh current in this thread: `set_mesh`, `use_mesh`, `use_abstract_mesh`, and code for single devices."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from types import TracebackType

from sharding.axis_types import AxisType
from sharding.mesh import STATE, AbstractMesh, BaseMesh, Mesh, make_current, make_named, named_mesh


class set_mesh:  # noqa: N801 - a function by name, as jax.set_mesh
    """Make `mesh` (or None) current in this thread, at once. After a `with` block the former one is current again."""

    def __init__(self, mesh: BaseMesh | None) -> None:
        if mesh is not None and not isinstance(mesh, BaseMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"set_mesh: expected a Mesh, AbstractMesh or None, got {type(mesh).__name__}")
        if isinstance(mesh, Mesh) and AxisType.Manual in mesh.axis_types:
            what = f"{mesh} has Manual axes, along which only code inside of shard_map is"
            raise ValueError(f"set_mesh: {what}\n  fix: shard_map(...)")
        self.mesh = mesh
        self._former = STATE.current, STATE.named
        make_named(mesh)

    def __enter__(self) -> BaseMesh | None:
        make_named(self.mesh)
        return self.mesh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current, STATE.named = self._former
        make_current(current)


@contextlib.contextmanager
def use_mesh(mesh: BaseMesh | None) -> Generator[BaseMesh | None]:
    """`with use_mesh(mesh):` — current inside the block only."""
    with set_mesh(mesh) as current:
        yield current


@contextlib.contextmanager
def use_abstract_mesh(mesh: AbstractMesh) -> Generator[None]:
    """`with use_abstract_mesh(mesh):` — what `get_abstract_mesh` says inside the block (``jax.sharding.use_abstract_mesh``).

    Where the current mesh has the same axes, it stays, and only the types of its axes are those of `mesh`. ValueError for what is
    no AbstractMesh, or of another size than the current one."""
    if not isinstance(mesh, AbstractMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"use_abstract_mesh: expected an AbstractMesh, got {type(mesh).__name__}\n  fix: mesh.abstract_mesh")
    former = named_mesh()
    if former is not None and not former.empty and not mesh.empty and former.size != mesh.size:
        raise ValueError(f"use_abstract_mesh: {mesh} has {mesh.size} devices, but the current {former} has {former.size}")
    with set_mesh(_typed_as(mesh, former)):
        yield


@contextlib.contextmanager
def manual_mesh(mesh: BaseMesh, names: Iterable[str]) -> Generator[None]:
    """Code for single devices along axes `names` of the mesh, which is current inside; `get_abstract_mesh` says that they are
    Manual."""
    before = STATE.current, STATE.named
    outer = STATE.named if STATE.named is not None and STATE.named.shape_tuple == mesh.shape_tuple else mesh
    types = [AxisType.Manual if name in names else kind for name, kind in zip(mesh.axis_names, outer.axis_types, strict=True)]
    STATE.named = AbstractMesh(mesh.axis_sizes, mesh.axis_names, types)
    make_current(mesh)
    try:
        yield
    finally:
        STATE.named = before[1]
        make_current(before[0])


def _typed_as(mesh: AbstractMesh, current: BaseMesh | None) -> BaseMesh:
    """The current mesh, with its devices, under the axis types of `mesh`; `mesh` itself where their axes differ."""
    if isinstance(current, Mesh) and current.shape_tuple == mesh.shape_tuple:
        return current if current.axis_types == mesh.axis_types else current.update(axis_types=mesh.axis_types)
    return mesh
