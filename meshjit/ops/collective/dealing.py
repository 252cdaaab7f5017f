"""Candidates of lines whose elements are on several devices: where there are many lines, each device decides some of them.

    all_gather     every device receives all candidates of all lines, and decides all lines
    dealt          every device receives all candidates of a part of the lines, decides these, and hands the winners out:
                   of n devices, 2/n of the bytes
"""

from __future__ import annotations

from collections.abc import Sequence

from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.ops.base.shape import reshape
from meshjit.ops.collective.collectives import all_gather, all_to_all
from sharding.axes import AxisRef
from sharding.cost import collective_seconds


def are_dealt(local: LocalEquation, candidates: Sequence[Var], lines: int, axes: tuple[AxisRef, ...]) -> bool:
    """Whether dealing takes less time. The candidates of this device are of so many lines; as much is handed out of each line."""
    size = local.mesh.axes_size(axes)
    if lines % size:
        return False

    def seconds(kind: str, parts: int) -> float:
        sent = [v.type.nbytes / parts for v in candidates]
        return sum(collective_seconds(kind, nbytes, axes, local.mesh, local.target.topology) for nbytes in sent)

    return seconds("all_to_all", 1) + seconds("all_gather", size) < seconds("all_gather", 1)


def deal(local: LocalEquation, var: Var, lines: int, axes: tuple[AxisRef, ...]) -> Var:
    """[…, k], of so many lines → [lines / n, n * k]: all candidates of this device's lines, in the order of the devices."""
    rows = reshape(var, shape=(lines, var.type.size // lines))
    return all_to_all(rows, axes=axes, size=local.mesh.axes_size(axes), split_dim=0, concat_dim=1)


def hand_out(local: LocalEquation, var: Var, shape: tuple[int, ...], axes: tuple[AxisRef, ...]) -> Var:
    """[lines / n, …], this device's lines → those of all devices, in this shape."""
    return reshape(all_gather(var, axes=axes, size=local.mesh.axes_size(axes), dim=0), shape=shape)
