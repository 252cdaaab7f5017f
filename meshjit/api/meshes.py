"""The mesh of the context, as `jax.set_mesh`, `jax.sharding.get_mesh` and their kin document it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import numpy as np

from meshjit.trace import active_trace, line_of, user_source
from sharding.current import set_mesh as _set_mesh
from sharding.mesh import AbstractMesh, BaseMesh, Mesh, named_mesh

_EMPTY = Mesh(np.empty((), object), ())


class set_mesh(_set_mesh):  # noqa: N801 - a function by name, as jax.set_mesh
    """Make `mesh` (or None) the mesh of this thread, at once; after a `with` block the former one is current again.

    Specs without a mesh mean this one, and jitted functions that nobody places run on it. Source: `jax.set_mesh`.
    ValueError inside a function that is traced: what it was traced for would no longer hold."""

    def __init__(self, mesh: BaseMesh | None) -> None:
        _refuse_traced("set_mesh", "set it around the call; inside, meshjit.sharding.use_abstract_mesh changes axis types")
        super().__init__(mesh)


@contextlib.contextmanager
def use_mesh(mesh: BaseMesh | None) -> Generator[BaseMesh | None]:
    """`with use_mesh(mesh):` — current inside the block only."""
    with set_mesh(mesh) as current:
        yield current


def get_mesh() -> Mesh:
    """The mesh that `set_mesh` named, or one without axes (`jax.sharding.get_mesh`). ValueError while a function is traced, which
    may be run on others: `get_abstract_mesh` says there what is known of it."""
    _refuse_traced("get_mesh", "meshjit.sharding.get_abstract_mesh()")
    mesh = named_mesh()
    return mesh if isinstance(mesh, Mesh) else _EMPTY


def get_abstract_mesh() -> AbstractMesh:
    """The axes, with their types, of the mesh that `set_mesh` or `use_abstract_mesh` named; one without axes if there is none
    (`jax.sharding.get_abstract_mesh`)."""
    mesh = named_mesh()
    return mesh.abstract_mesh if isinstance(mesh, Mesh | AbstractMesh) else _EMPTY.abstract_mesh


def _refuse_traced(what: str, fix: str) -> None:
    trace = active_trace()
    if trace is not None:
        raise ValueError(f"{what} at {line_of(user_source())}: {trace.name} is being traced\n  fix: {fix}")
