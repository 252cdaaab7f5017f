"""Which mesh, where only the number of devices is given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from meshjit.plan.automatic.saved_file import read
from sharding.mesh import AbstractMesh, BaseMesh, Mesh

AXES: Final = ("x", "y", "z", "u", "v", "w")
MUCH: Final = 0.95  # a finer mesh is divided further if its plan takes less than so many times the seconds of the one before


def finer_meshes(mesh: BaseMesh) -> Iterator[BaseMesh]:
    """The same devices with one of the axes divided, in every way: (4, 8) is (2, 2, 8), (4, 2, 4) and (4, 4, 2). What can be done
    on the mesh can be done on these, too, with the parts together. A mesh of one axis is left as it is: every two are tried."""
    if not 1 < len(mesh.axis_names) < len(AXES):
        return
    sizes = mesh.axis_sizes
    for i, size in enumerate(sizes):
        yield from (_shaped(mesh, (*sizes[:i], n, size // n, *sizes[i + 1 :])) for n in range(2, size) if size % n == 0)


def mesh_of_saved(path: str, meshes: Sequence[BaseMesh]) -> BaseMesh:
    """That of the meshes, or of those that divide axes of one, which the plan in this file is for; the first if none is."""
    shape = read(path)["mesh"]
    sizes = tuple([n for n in shape.values() if isinstance(n, int)])
    if 2 < len(sizes) <= len(AXES) and math.prod(sizes) == meshes[0].size:
        meshes = (*meshes, _shaped(meshes[0], sizes))
    return next((mesh for mesh in meshes if dict(mesh.shape) == shape), meshes[0])


def _shaped(mesh: BaseMesh, shape: tuple[int, ...]) -> BaseMesh:
    """The same devices as a mesh of this shape."""
    names = AXES[: len(shape)]
    if isinstance(mesh, Mesh):
        return Mesh(np.reshape(mesh.devices, shape), names)
    return AbstractMesh(shape, names, abstract_device=getattr(mesh, "abstract_device", None))
