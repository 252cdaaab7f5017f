"""Devices that are not here: the surface, with devices of our own; compiling for them needs a plugin."""

from __future__ import annotations

import types

import numpy as np
import pytest

import meshjit as mj
from meshjit.experimental.topologies import TopologyDescription, get_attached_topology, get_topology_desc, make_mesh
from meshjit.runtime import _jaxlib
from meshjit.sharding import AbstractMesh

HAS_LIBTPU = _jaxlib.plugin_path("tpu") is not None


def chip(index, coords=None):
    extra = {} if coords is None else {"coords": coords, "core_on_chip": 0}
    return types.SimpleNamespace(id=index, process_index=0, platform="tpu", device_kind="TPU v5 lite", **extra)


def test_meshes_follow_the_links():
    chips = [chip(0, (1, 0, 0)), chip(1, (0, 1, 0)), chip(2, (0, 0, 0)), chip(3, (1, 1, 0))]
    mesh = make_mesh(TopologyDescription(chips), (2, 2), ("x", "y"))
    assert [d.coords[:2] for d in mesh.flat_devices] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    mesh = make_mesh(TopologyDescription([chip(2), chip(0), chip(1)]), (2,), ("x",))
    assert [d.id for d in mesh.flat_devices] == [0, 1]


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r"needs a platform\n  fix: get_topology_desc\(platform="):
        get_topology_desc("v5e:4x4")
    with pytest.raises(ValueError, match=r"a mesh \(4, 4\) needs 16 devices, the topology has 1\n  fix: name a larger topology"):
        make_mesh(TopologyDescription([chip(0)]), (4, 4), ("x", "y"))
    if not HAS_LIBTPU:
        with pytest.raises(LookupError, match='no PJRT plugin for "tpu" is installed\n  fix: pip install "meshjit.tpu."'):
            get_topology_desc(platform="tpu", topology_name="v5e:4x4")


@pytest.fixture
def pod_slice(monkeypatch):
    """A mesh of 16 chips that are not here."""
    if not HAS_LIBTPU:
        pytest.skip("libtpu is not installed")
    for name, value in {"SKIP_MDS_QUERY": "1", "ACCELERATOR_TYPE": "v5litepod-16", "WORKER_HOSTNAMES": "localhost", "WORKER_ID": "0"}.items():
        monkeypatch.setenv(f"TPU_{name}", value)
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    return make_mesh(get_topology_desc("v5e:4x4", "tpu"), (4, 4), ("data", "model"))


def test_a_program_for_a_platform_is_compiled_for_its_devices(pod_slice):
    """The text on the mesh of devices is that on an abstract mesh, with the chip named or only its platform."""
    spec, texts = mj.P(None, "model"), []
    for mesh, platforms in ((pod_slice, None), (pod_slice.abstract_mesh, None), (AbstractMesh((4, 4), ("data", "model")), ("tpu",))):
        argument = mj.ShapeDtypeStruct((64, 50257), np.float32, sharding=mj.NamedSharding(mesh, spec))
        lowered = mj.jit(lambda x: mj.lax.top_k(x, 5)).trace(argument).lower(lowering_platforms=platforms)
        texts.append(lowered.as_text())
    assert len(set(texts)) == 1
    compiled = lowered.compile(device_assignment=pod_slice.flat_devices)
    assert "gather(" not in compiled.as_text().replace("all-gather(", "")


def test_a_program_is_compiled_for_a_pod_slice(pod_slice):
    mesh = pod_slice
    shardings = (mj.NamedSharding(mesh, mj.P("data", "model")), mj.NamedSharding(mesh, mj.P("model")))
    types_ = mj.ShapeDtypeStruct((1024, 1024), np.float32), mj.ShapeDtypeStruct((1024, 512), np.float32)
    compiled = mj.jit(lambda x, w: x @ w, in_shardings=shardings).lower(*types_).compile()
    assert compiled.memory_analysis().argument_size_in_bytes == (1024 * 1024 // 16 + 1024 * 512 // 4) * 4
    assert compiled.cost_analysis()["flops"] > 0 and "all-reduce" in compiled.as_text()
    with pytest.raises(RuntimeError, match="is a device of a topology: programs are compiled for it, none runs on it"):
        compiled(np.ones((1024, 1024), np.float32), np.ones((1024, 512), np.float32))


def test_the_devices_at_hand_are_a_topology() -> None:
    assert list(get_attached_topology().devices) == list(get_attached_topology("cpu").devices) == mj.devices()
    assert make_mesh(get_attached_topology(), (4, 2), ("x", "y")).shape == {"x": 4, "y": 2}
    with pytest.raises(RuntimeError):
        get_attached_topology("tpu")
