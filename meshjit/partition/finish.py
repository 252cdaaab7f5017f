"""What is done to a local Program once all its equations stand: fewer collectives for the same bytes."""

from __future__ import annotations

from meshjit.core.program import Program
from meshjit.partition.merge import merge_permutes
from meshjit.partition.pair import pair_permutes
from meshjit.transform.borders import share_borders
from meshjit.transform.cse import cse
from sharding.mesh import BaseMesh
from sharding.topology import Topology


def finished(local: Program, mesh: BaseMesh, topology: Topology) -> Program:
    """The same, nested Programs included, with collectives shared, merged and paired."""
    local = share_borders(cse(local, constants=True))
    return pair_permutes(merge_permutes(local, mesh, topology), mesh)
