"""Programs compiled ahead: what the compiler says, as bytes and back, and each thing that does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.inspect.ahead import absent_devices, compiled_text
from meshjit.inspect.unusable import Unusable
from meshjit.runtime import _jaxlib
from meshjit.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from tests.tools.processes import environment

MESH = AbstractMesh((2,), ("x",))
HAS_LIBTPU = _jaxlib.plugin_path("tpu") is not None
HAS_CUDA = _jaxlib.plugin_path("cuda") is not None
STEP = """
import meshjit as mj, meshjit.numpy as mnp
from meshjit.sharding import NamedSharding, PartitionSpec as P

def step(x, w):
    return mnp.tanh(x @ w).sum(0)

def lowered(mesh):
    struct = lambda *shape: mj.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P("x")))
    return mj.jit(step).lower(struct(8, 16), struct(16, 4))
"""
HERE: dict[str, Any] = {}
exec(STEP, HERE)  # noqa: S102


@pytest.mark.device
def test_what_was_compiled_ahead_is_loaded_elsewhere(tmp_path: Path) -> None:
    """Compiled for an abstract mesh, loaded by another process that compiles nothing."""
    devices = mj.devices()[:2]
    data = HERE["lowered"](MESH).compile(device_assignment=devices).serialize()
    (tmp_path / "step.executable").write_bytes(data)
    (tmp_path / "step.py").write_text(STEP)
    (tmp_path / "pod.py").write_text("""
import numpy as np, meshjit as mj
from meshjit.runtime import _jaxlib, compilation_cache, executable
from step import lowered
def refuse(*arguments): raise AssertionError("compiled")
executable.compile_or_load = refuse
mesh = mj.make_mesh((2,), ("x",))
run = lowered(mesh).load(open("step.executable", "rb").read())
executable.compile_or_load = compilation_cache.compile_or_load
x, w = np.ones((8, 16), np.float32), np.ones((16, 4), np.float32) / 16
print(np.asarray(run(*(mj.device_put(v, s) for v, s in zip((x, w), run.input_shardings[0])))))
""")
    done = subprocess.run([sys.executable, "pod.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(np.full(4, 8 * np.tanh(np.float32(1)), np.float32))


@pytest.mark.device
def test_each_thing_that_does_not_fit() -> None:
    mesh = mj.make_mesh((2,), ("x",), devices=mj.devices()[:2])
    data = HERE["lowered"](mesh).compile().serialize()

    def refused(lowered: Any, data: bytes, **options: Any) -> str:
        with pytest.raises(ValueError) as raised:
            lowered.load(data, **options)
        return str(raised.value)

    other = mj.jit(lambda x: x + 1).lower(mj.ShapeDtypeStruct((8,), np.float32, sharding=NamedSharding(mesh, P("x"))))
    anew = "\n  fix: compile it anew"
    assert refused(other, data) == f"lambda: the compiled program cannot be loaded: it is of another program{anew}"
    wide = HERE["lowered"](mj.make_mesh((4,), ("x",), devices=mj.devices()[:4]))
    problem = "step: the compiled program cannot be loaded: its devices: 2 x cpu; here: 4 x cpu"
    assert refused(wide, data) == problem + anew
    mine = HERE["lowered"](mesh)
    assert "its options: {}; here: {'xla_cpu_enable_fast_math': 'True'}" in refused(
        mine, data, compiler_options={"xla_cpu_enable_fast_math": True}
    )
    assert refused(mine, data[:-1]) == "step: the compiled program is damaged\n  fix: copy it again, or compile it anew"
    assert refused(mine, b"none") == "step: this is no compiled program of format 1\n  fix: bytes of Compiled.serialize()"
    calls = mj.jit(lambda x: mj.pure_callback(np.sin, mj.ShapeDtypeStruct((8,), np.float32), x))
    with pytest.raises(ValueError, match="it calls Python functions, which are of this process\n  fix: compile it where it runs"):
        calls.lower(np.zeros(8, np.float32)).compile().serialize()


def test_what_cannot_be_compiled_for() -> None:
    cases = [("cpu:8", "no compiler knows the devices of 'cpu:8'\n  fix: a published one, such as v5e:4x4 or h100:4x8")]
    cases += [("b200:8", "there is no description of b200 for its compiler\n  fix: one of h100, h200")]
    cases += [] if HAS_LIBTPU else [("v5e:4x4", 'no PJRT plugin for "tpu" is installed\n  fix: pip install "meshjit[tpu]"')]
    cases += [] if HAS_CUDA else [("h100:2x8", 'no PJRT plugin for "cuda" is installed\n  fix: pip install "meshjit[cuda]"')]
    for topology, text in cases:
        with pytest.raises(Unusable) as raised:
            absent_devices(topology, 8)
        assert str(raised.value) == f"--compile: {text}"


@pytest.mark.device
@pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is not installed")
def test_two_processes_compile_for_a_pod_at_a_time(tmp_path: Path) -> None:
    """Each waits with libtpu loaded until the other has loaded it, too."""
    program = (
        "import pathlib, sys, time\n"
        "from meshjit.experimental.topologies import get_topology_desc\n"
        "from meshjit.inspect.ahead import absent_accelerators\n"
        "own, other = map(pathlib.Path, sys.argv[1:])\n"
        "with absent_accelerators():\n"
        "    assert len(get_topology_desc('v5e:4x4', 'tpu').devices) == 16\n"
        "own.touch()\n"
        "for _ in range(600):\n"
        "    if other.exists():\n"
        "        sys.exit()\n"
        "    time.sleep(0.1)\n"
        "sys.exit('the other did not come')\n"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TPU_") and k != "ALLOW_MULTIPLE_LIBTPU_LOAD"}
    flags = [str(tmp_path / name) for name in ("a", "b")]
    runs = [subprocess.Popen([sys.executable, "-c", program, *pair], env=clean) for pair in (flags, flags[::-1])]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]


@pytest.mark.device
@pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is not installed")
def test_a_pod_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-16", "TPU_WORKER_HOSTNAMES": "localhost",
                        "TPU_WORKER_ID": "0"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    planned = mj.auto(lambda x: mnp.tanh(x @ x), topology="v5e:4x4").trace(mj.ShapeDtypeStruct((4096, 4096), np.float32)).plan()
    text = compiled_text(planned, "v5e:4x4")
    assert "fits into 16 GB" in text and text.endswith(" estimated")
    assert len(planned.lower().compile(device_assignment=absent_devices("v5e:4x4", 16)).serialize()) > 1000
