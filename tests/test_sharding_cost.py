"""Bytes on the wire, and seconds of collectives."""

from __future__ import annotations

import pytest

from sharding import AbstractMesh, SubAxis, Topology
from sharding.cost import COLLECTIVES, collective_bytes, collective_seconds

MESH = AbstractMesh((4, 2), ("data", "model"))


def test_ring_formulas() -> None:
    assert {kind: collective_bytes(kind, 1024, 4) for kind in COLLECTIVES} == {
        "all_gather": 3072.0,
        "reduce_scatter": 768.0,
        "all_reduce": 1536.0,
        "all_to_all": 768.0,
        "collective_permute": 1024.0,
        "collective_broadcast": 1024.0,
    }
    assert all(collective_bytes(kind, 1024, 1) == 0 for kind in COLLECTIVES)
    with pytest.raises(ValueError, match="unknown collective 'gather'"):
        collective_bytes("gather", 1, 2)


def test_cpu_collectives_are_dear_to_start_and_minor_dims_dearer() -> None:
    topology = Topology.cpu(MESH)
    small = collective_seconds("all_reduce", 4096, ("data",), MESH, topology)
    assert 130e-6 < small < 200e-6
    first, minor = (collective_seconds("reduce_scatter", 2**20, ("data",), MESH, topology, dim) for dim in (0, 1))
    assert 1.5 * first < minor < collective_seconds("all_reduce", 2**20, ("data",), MESH, topology)
    assert collective_seconds("all_reduce", 2**20, (), MESH, topology) == 0.0
    assert collective_seconds("all_gather", 8, (SubAxis("data", 1, 2),), MESH, topology) > 0


def test_machines() -> None:
    tpu = Topology.tpu(AbstractMesh((2, 16, 16), ("slice", "x", "y")), "v5e", dcn_axes=("slice",))
    assert not tpu.is_uniform and tpu.bandwidth_over(("x", "y")) == 90e9 and tpu.bandwidth_over(("slice", "x")) == 3.1e9
    gpu = Topology.gpu(AbstractMesh((4, 8), ("hosts", "gpus")))
    assert gpu.bandwidth == {"hosts": 50e9, "gpus": 450e9} and Topology.cpu(MESH).is_uniform
    assert hash(Topology.cpu(MESH)) == hash(Topology.cpu(MESH)) and Topology.cpu(MESH) == Topology.cpu(MESH)
    with pytest.raises(ValueError, match="unknown TPU chip 'v9'; known are v4, v5e"):
        Topology.tpu(MESH, "v9")
    with pytest.raises(ValueError, match="unknown GPU model 'k80'"):
        Topology.gpu(MESH, "k80")
