"""Whether a pass after partitioning has to see equations together with others further away.

A stretch of equations that stands in a Program several times may become the body of one op (`partition/bodies.py`), beyond whose
ends no pass looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshjit.core.program import Eqn, Var
from meshjit.ops.base.shape import reshape, transpose
from meshjit.ops.collective.collectives import collective_permute
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import slice_
from meshjit.transform.merge_permutes import small_bytes
from meshjit.transform.pair_permutes import is_dear
from sharding.mesh import BaseMesh
from sharding.topology import Topology


def is_reaching(eqns: Sequence[Eqn], mesh: BaseMesh, topology: Topology) -> bool:
    """Whether a pass may put one of the equations together with one that is not among them."""
    makers = {v: eqn for eqn in eqns for v in eqn.outputs}
    near = [eqn for eqn in eqns if eqn.op.joins]
    return not all(eqn.op is collective_permute and _is_settled(eqn, makers, mesh, topology) for eqn in near)


def _is_settled(eqn: Eqn, makers: Mapping[Var, Eqn], mesh: BaseMesh, topology: Topology) -> bool:
    """Whether no pass would put a permute together with one outside of the body: all devices send, so that none is free to send
    in another one, too; it does not send a part of a value; and it is too large to be merged, or the body makes what it sends by
    something that is not done earlier for that."""
    pairs, maker = eqn.params["pairs"], makers.get(eqn.inputs[0])
    while maker is not None and maker.op in (reshape, transpose):
        maker = makers.get(maker.inputs[0])
    if maker is None or maker.op in (slice_, concatenate) or len(pairs) < mesh.size:
        return False
    small = small_bytes(pairs, mesh, topology)
    return eqn.inputs[0].type.nbytes > small or is_dear(maker, small)
