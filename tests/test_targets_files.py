"""Machines by name and as files: what is read is what was written, who reads them, and each error word for word."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.config import config
from meshjit.runtime.targets import target_for
from meshjit.targets.files import figures_named, parsed, topology_named, written
from sharding import AbstractMesh
from sharding.cost import COLLECTIVES
from sharding.figures import DEVICES
from sharding.topology import topology_of

CLUSTER = """
name = "our cluster"
like = "h100"
shape = "4x8"
network = 25e9
flops = {bfloat16 = 800e12, float32 = 400e12}
"""
MESH = AbstractMesh((4, 8), ("x", "y"))


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return str(path)


@pytest.mark.parametrize("name", DEVICES)
def test_what_is_written_is_read(name: str) -> None:
    figures = DEVICES[name]
    again, shape = parsed(tomllib.loads(written(figures)), "x.toml")
    assert dataclasses.replace(again, kinds=figures.kinds) == figures and shape is None


def test_a_file_says_what_differs(cluster: str) -> None:
    figures, shape = topology_named(cluster)
    assert shape == (4, 8) and topology_named(f"{cluster}:2x2x2")[1] == (2, 2, 2)
    expected = {"name": "our cluster", "source": cluster, "kinds": (), "network": 25e9}
    assert figures == dataclasses.replace(DEVICES["h100"], **expected, flops={"bfloat16": 800e12, "float32": 400e12})
    assert topology_of(figures, MESH).bandwidth == {"x": 25e9, "y": 450e9}
    assert topology_named("V5p:4x4x4") == (DEVICES["v5p"], (4, 4, 4)) and topology_named("cpu") == (DEVICES["cpu"], None)


def test_a_file_that_changed_is_read_anew(cluster: str) -> None:
    before = figures_named(cluster)
    Path(cluster).write_text(CLUSTER.replace("25e9", "12e9"))
    os.utime(cluster, ns=(1, 1))
    assert (before.network, figures_named(cluster).network) == (25e9, 12e9)


def test_auto_lower_and_the_option_read_it(cluster: str) -> None:
    x = mj.ShapeDtypeStruct((64, 64), np.float32)
    automatic = mj.auto(lambda x: x @ x, topology=cluster).trace(x).plan()
    lowered = mj.jit(lambda x: x @ x, in_shardings=None).trace(x)
    with mj.set_mesh(MESH):
        named = mj.jit(lambda x: x @ x).trace(x).lower(topology=cluster)
        published = mj.jit(lambda x: x @ x).trace(x).plan(topology="v5p:4x8").lower()
    with config.using(device_model=cluster):
        chosen = target_for(MESH, ("gpu",))
        assert str(target_for(MESH, ("tpu",))) == "tpu v5e"  # the file is of GPUs
    assert automatic.mesh.axis_sizes == (4, 8) and automatic.platforms == ("gpu",) and named.platforms == ("gpu",)
    assert chosen.topology == topology_of(figures_named(cluster), MESH)
    assert named.plan.target is not None and named.plan.target.topology.bandwidth == chosen.topology.bandwidth
    assert str(automatic.plan.target) == str(named.plan.target) == "gpu our cluster"
    assert str(published.plan.target) == "tpu v5p" and published.platforms == ("tpu",)
    assert lowered.plan().plan.target is not None


def test_contractions_run_at_the_rate_of_their_dtype() -> None:
    seconds = dict[str, float]()
    for dtype in ("bfloat16", "float32", "int8"):
        with mj.set_mesh(MESH):
            x = mj.ShapeDtypeStruct((8192, 8192), dtype)
            cost = mj.jit(lambda x: x @ x).trace(x).plan(topology="h100").plan.cost
        assert cost is not None
        seconds[dtype] = cost.work_seconds
    assert seconds["float32"] == pytest.approx(2 * seconds["bfloat16"], rel=0.01)
    assert seconds["int8"] == pytest.approx(seconds["bfloat16"] / 2, rel=0.01)


NEEDED = "platform, flops, memory_bandwidth, memory, link, latency"
SENT = f"or one of {', '.join(COLLECTIVES)}"
KEYS = "shape, like, name, platform, source, flops, memory_bandwidth, memory, link, latency"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("network = ", "PATH is no TOML: Invalid value (at end of document)\n  fix: lines such as network = 25e9"),
        ("network = 25e9", f'PATH does not say {NEEDED}\n  fix: like = "h100" for the figures of that, or all of them'),
        ('like = "k80"', f"PATH: like = 'k80'\n  fix: one of {', '.join(DEVICES)}"),
        ('like = "h100"\nshape = "4by8"', "PATH: shape = '4by8'\n  fix: such as shape = \"4x8\""),
        ('like = "h100"\nnetwork = "fast"', "PATH: network = 'fast'\n  fix: network = 25e9, a number above 0"),
        ('like = "h100"\nmemory = -1', "PATH: memory = -1\n  fix: memory = 25e9, a number above 0"),
        ('like = "h100"\nhost = 0', "PATH: host = 0\n  fix: host = 8"),
        ('like = "h100"\nplatform = "cuda"', "PATH: platform = 'cuda'\n  fix: one of cpu, gpu, tpu"),
        ('like = "h100"\nflops = {float32 = true}', "PATH: flops = {'float32': True}\n  fix: flops = {float32 = 20e9}"),
        ("like = ['h100']", f"PATH: like = ['h100']\n  fix: one of {', '.join(DEVICES)}"),
        ('like = "h100"\noverlaps = ["all_gathr"]', f"PATH: overlaps names 'all_gathr', which is no collective\n  fix: all_gather, {SENT}"),
        ('like = "h100"\nslowdown = {xy = 2}', f"PATH: slowdown names 'xy', which is no collective\n  fix: {SENT.removeprefix('or ')}"),
        ('like = "h100"\nflops = {}', "PATH: flops = {}\n  fix: flops = {float32 = 20e9}"),
    ],
)
def test_errors_of_files(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(ValueError) as raised:
        topology_named(str(path))
    assert str(raised.value) == error.replace("PATH", str(path))


def test_errors(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('like = "h100"\nbandwith = 3')
    with pytest.raises(ValueError) as raised:
        topology_named(str(path))
    assert str(raised.value).startswith(f"{path}: unknown key 'bandwith'\n  fix: memory_bandwidth, or one of {KEYS}")
    with pytest.raises(ValueError, match="auto: there is no file none.toml\n  fix: meshjit plan --calibrate --save none"):
        mj.auto(lambda x: x, topology="none.toml")
    path.write_text('like = "h100"\nflops = {bfloat61 = 1e12}')
    with pytest.raises(ValueError, match="flops names 'bfloat61', which is no dtype\n  fix: bfloat16, or one of bool, "):
        topology_named(str(path))  # it was the rate of all dtypes
    with pytest.raises(ValueError, match=f"auto: {path.parent}.toml cannot be read: Is a directory\n  fix: a file of figures"):
        path.parent.with_suffix(".toml").mkdir()
        mj.auto(lambda x: x, topology=f"{path.parent}.toml")
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=f"{path} is no TOML: 'utf-8' codec can't decode"):
        topology_named(str(path))
    with pytest.raises(ValueError, match="unknown topology 'h1000'; the nearest is h100; known devices are v4, v5e"):
        topology_named("h1000")
    with pytest.raises(ValueError, match="unknown topology 'v5e:2x2x2x2': a shape has one to three dims, none of extent 0"):
        topology_named("v5e:2x2x2x2")
    with pytest.warns(UserWarning) as warned:
        assert topology_named("v5e:4x4x4")[1] == (4, 4, 4)
    problem = "topology 'v5e:4x4x4' has 3 dims, and devices of kind v5e are connected as a torus of two"
    assert str(warned[0].message) == f"{problem}: it is planned for as if there were a third\n  fix: v5e:8x8"

    def lower(topology: str) -> Any:
        with mj.set_mesh(MESH):
            return mj.jit(lambda x: x).trace(mj.ShapeDtypeStruct((8,), np.float32)).lower(topology=topology)

    with pytest.raises(ValueError) as raised:
        lower("v5e:4x4")
    problem = "topology: 'v5e:4x4' has 16 devices, AbstractMesh('x': 4, 'y': 8) has 32"
    assert str(raised.value) == f"{problem}\n  fix: a mesh of 16 devices, or topology='v5e'"
    with pytest.raises(ValueError, match="topology: unknown topology 'v9'"):
        lower("v9")
