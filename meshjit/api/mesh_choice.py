"""Which mesh, where only the number of devices is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from meshjit.plan.automatic.saved import read
from sharding.mesh import AbstractMesh, BaseMesh, Mesh

AXES: Final = ("x", "y", "z")


def finer_meshes(mesh: BaseMesh) -> Iterator[BaseMesh]:
    """The same devices with one of two axes divided, in every way: (4, 8) is (2, 2, 8), (4, 2, 4) and (4, 4, 2). What can be done
    on the mesh can be done on these, too, with the parts together."""
    if len(mesh.axis_names) != len(AXES) - 1:
        return
    for i, size in enumerate(mesh.axis_sizes):
        for part in range(2, size):
            if size % part == 0:
                shape = (*mesh.axis_sizes[:i], part, size // part, *mesh.axis_sizes[i + 1 :])
                if isinstance(mesh, Mesh):
                    yield Mesh(np.reshape(mesh.devices, shape), AXES)
                else:
                    yield AbstractMesh(shape, AXES, abstract_device=getattr(mesh, "abstract_device", None))


def mesh_of_saved(path: str, meshes: Sequence[BaseMesh]) -> BaseMesh:
    """That of the meshes, or of those that divide an axis of one, which the plan in this file is for; the first if none is."""
    shape = read(path).get("mesh")
    return next((mesh for each in meshes for mesh in (each, *finer_meshes(each)) if dict(mesh.shape) == shape), meshes[0])
