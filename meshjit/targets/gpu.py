"""GPUs under XLA. A GPU sorts and shifts all elements side by side; NCCL's reductions are sum, product, maximum and minimum."""

from __future__ import annotations

from meshjit.core.target import Target
from sharding.mesh import BaseMesh
from sharding.topology import Topology


def target(mesh: BaseMesh, model: str) -> Target:
    """GPUs of a model of `sharding.topology.GPU_MODELS`."""
    return Target("gpu", Topology.gpu(mesh, model), lacks_bitwise_collectives=True)
