"""GPUs under XLA. A GPU sorts and shifts all elements side by side; NCCL's reductions are sum, product, maximum and minimum.

No GPU was at hand: `tests/tools/compile_ahead.py` compiles for an H100 that is not there, with jax-cuda12-pjrt 0.10.2.
"""

from __future__ import annotations

from meshjit.core.target import Target
from sharding.figures import Figures
from sharding.mesh import BaseMesh
from sharding.topology import topology_of


def target(mesh: BaseMesh, figures: Figures) -> Target:
    """GPUs of a model of `sharding.figures.DEVICES`, or of a file."""
    topology = topology_of(figures, mesh)
    return Target("gpu", topology, has_host_memory=True, lacks_bitwise_collectives=True, ends_at_sums_of_constants=True)
