"""Bytes on the wire, and seconds of collectives."""

from __future__ import annotations

import dataclasses

import pytest

from sharding import AbstractMesh, SubAxis, Topology
from sharding.cost import COLLECTIVES, collective_bytes, collective_seconds
from sharding.figures import DEVICES
from sharding.topology import topology_of

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
    tpu = topology_of(DEVICES["v5e"], AbstractMesh((2, 16, 16), ("slice", "x", "y")), ("slice",))
    assert not tpu.is_uniform and tpu.bandwidth_over(("x", "y")) == 90e9 and tpu.bandwidth_over(("slice", "x")) == 3.1e9
    assert topology_of(DEVICES["v5e"], AbstractMesh((4, 4), ("x", "y"))).bandwidth["x"] == 45e9  # a line: no ring, no way around
    h100 = DEVICES["h100"]
    gpu = topology_of(h100, AbstractMesh((4, 8), ("hosts", "gpus")))
    assert gpu.bandwidth == {"hosts": 50e9, "gpus": 450e9} and gpu.latency["hosts"] > gpu.latency["gpus"]
    assert topology_of(h100, AbstractMesh((32,), ("x",))).bandwidth == {"x": 400e9}  # all eight networks of a host
    across = topology_of(h100, AbstractMesh((4, 4, 2), ("a", "b", "c"))).bandwidth
    assert across == {"a": 50e9, "b": 450e9, "c": 450e9}
    assert topology_of(h100, AbstractMesh((8, 4), ("a", "b"))).bandwidth == {"a": 100e9, "b": 450e9}
    assert Topology.cpu(MESH).is_uniform and not topology_of(DEVICES["cpu-ethernet"], AbstractMesh((2, 8), ("a", "b"))).is_uniform
    assert hash(Topology.cpu(MESH)) == hash(Topology.cpu(MESH)) and Topology.cpu(MESH) == Topology.cpu(MESH)
    assert all(figures.source and hash(figures) == hash(dataclasses.replace(figures)) for figures in DEVICES.values())


def test_larger_groups_take_longer_to_start_where_figures_say_so() -> None:
    grows = topology_of(dataclasses.replace(DEVICES["cpu"], latency=40e-6, latency_growth=15e-6), MESH)
    seconds = [collective_seconds("all_gather", 0, axes, MESH, grows) for axes in (("model",), ("data",), ("data", "model"))]
    assert seconds == pytest.approx([40e-6, 55e-6, 70e-6])
