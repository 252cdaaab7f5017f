"""`meshjit.multihost`: what processes do together outside of programs, alone (JAX's answers) and on two processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import multihost
from meshjit.experimental import multihost_utils
from meshjit.sharding import Mesh, PartitionSpec as P
from tests.tools.processes import side_by_side

BODY = """
import signal
import ml_dtypes
import meshjit as mj
from meshjit import multihost as mh
from meshjit.sharding import Mesh, PartitionSpec as P
say(mh.process_allgather(np.arange(3) + rank).tolist(), mh.process_allgather(np.arange(3) + rank, tiled=True).tolist())
say(mh.process_allgather({"a": np.zeros((0, 2)), "b": np.float32(rank)}), mh.process_allgather(np.array([rank], ml_dtypes.bfloat16)).dtype)
say(mh.broadcast_one_to_all({"a": np.array([1.5, np.nan]) + rank, "b": np.array([True, bool(rank)])}), mh.broadcast_one_to_all(7 + rank, rank == 1))
mh.assert_equal({"a": np.arange(3)})
mh.sync_global_devices("here")
mesh = Mesh(np.array(mj.devices()).reshape(2, 2), ("x", "y"))
whole = mh.host_local_array_to_global_array({"a": np.arange(4.0) + 10 * rank, "b": np.ones((3, 2))}, mesh, {"a": P("x"), "b": P(None, "y")})
say({k: v.shape for k, v in whole.items()}, mh.process_allgather(whole["a"], tiled=True).tolist())
part = mh.global_array_to_host_local_array(whole, mesh, {"a": P("x"), "b": P(None, "y")})
say({k: (v.shape, v.is_fully_addressable) for k, v in part.items()}, part["a"].tolist())
if rank == 0: mh.set_value("k", "v")
say(mh.get_value("k", 60))
for wrong in (lambda: mh.assert_equal({"a": np.arange(3) + rank}, "config"), lambda: mh.process_allgather(np.ones(2 + rank)), lambda: mh.process_allgather(whole["a"]),
              lambda: mh.barrier("first" if rank else "second")):
    try: wrong()
    except Exception as error: say(type(error).__name__, *str(error).splitlines()[:8])
step = 1
while not mh.reached_preemption_sync_point(step):
    if step == 20 and rank: os.kill(os.getpid(), signal.SIGTERM)
    step += 1
    time.sleep(0.01 * (1 + rank))
say(mh.process_allgather(step).tolist()[0] == step)
if rank == 0:
    try: mh.barrier("late", timeout=0.3)
    except mh.DivergenceError as error: say(str(error).splitlines()[0])
    os._exit(0)
time.sleep(100)
"""


@pytest.mark.device
def test_two_processes(tmp_path: Path) -> None:
    ended = side_by_side(tmp_path, BODY)
    first, second = ended[0].said, ended[1].said
    assert len(first) == 12, (ended[0].error, first)
    assert first[0] == "[[0, 1, 2], [1, 2, 3]] [0, 1, 2, 1, 2, 3]"
    assert first[1].endswith("'b': array([0., 1.], dtype=float32)} bfloat16") and "shape=(2, 0, 2)" in first[1]
    assert first[2] == "{'a': array([1.5, nan], dtype=float32), 'b': array([ True, False])} 8"
    assert first[3] == "{'a': (8,), 'b': (3, 2)} [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]"
    assert first[4] == "{'a': ((4,), True), 'b': ((3, 2), True)} [0.0, 1.0, 2.0, 3.0]" and second[4].endswith("[10.0, 11.0, 12.0, 13.0]")
    assert first[5] == "v"
    assert first[6].startswith("AssertionError config the processes disagree about program ")
    assert first[7].startswith("DivergenceError the processes disagree about program ")
    assert "f" in first[7] and "-float32[2]" in first[7] and "+float32[3]" in first[7]
    assert first[8] == "ValueError process_allgather: f32[8] is an array of all processes already   fix: tiled=True gives its whole value"
    assert first[9].startswith("DivergenceError the processes disagree about program ")
    assert first[10] == second[10] == "True"
    assert "\"barrier('late')\": process 1 did not come within " in first[11]


ELSEWHERE = """
import meshjit as mj
from meshjit import multihost as mh
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
for owners in ((1, 2), (0, 2), (1,)):
    mesh = Mesh(np.array([d for d in mj.devices() if d.process_index in owners]), ("x",))
    x = mj.make_array_from_callback((5,), NamedSharding(mesh, P("x")), lambda at: np.arange(5.0)[at], dtype=np.float32)
    try: say(mh.process_allgather({"x": x, "rank": np.array([rank])}, tiled=True))
    except mh.DivergenceError as error: say(*str(error).splitlines()[:9])
"""


def test_arrays_of_some_processes_are_gathered_on_all(tmp_path: Path) -> None:
    """Who had nothing of them met an IndexError. An array of one process alone is that one's own, and global for others."""
    for process in side_by_side(tmp_path, ELSEWHERE, 3):
        assert len(process.said) == 3, (process.error, process.said)
        assert process.said[0] == process.said[1]
        assert process.said[0] == "{'rank': array([0, 1, 2], dtype=int32), 'x': array([0., 1., 2., 3., 4.], dtype=float32)}"
        assert "-float32[5] on devices of process 1, a global array" in process.said[2] and "+float32[5]" in process.said[2]


def test_alone_as_jax_answers() -> None:
    gather = multihost_utils.process_allgather
    values: list[Any] = [gather(np.arange(3)), gather(np.arange(3), tiled=True), gather(np.float32(2)), gather(np.float32(2), tiled=True)]
    assert [value.tolist() for value in values] == [[[0, 1, 2]], [0, 1, 2], [2.0], 2.0] and type(values[0]) is np.ndarray
    sent = multihost_utils.broadcast_one_to_all({"a": np.arange(3.0)})
    assert sent["a"].dtype == np.float32 and sent["a"].tolist() == [0, 1, 2]
    multihost_utils.assert_equal(np.arange(3))
    multihost_utils.sync_global_devices("x")
    mesh = Mesh(np.array(mj.devices()[:4]).reshape(2, 2), ("x", "y"))
    whole = multihost_utils.host_local_array_to_global_array(np.arange(8.0), mesh, P("x"))
    part = multihost_utils.global_array_to_host_local_array(whole, mesh, P("x"))
    assert whole.shape == part.shape == (8,) and part.sharding.spec == P("x")


def test_a_store_of_ones_own() -> None:
    multihost.set_value("mine", "1")
    with pytest.raises(KeyError, match="'mine' is in the store already; overwrite=True replaces it"):
        multihost.set_value("mine", "2")
    multihost.set_value("mine", "2", overwrite=True)
    assert multihost.get_value("mine") == "2"
    with pytest.raises(TimeoutError, match="nobody has written 'other' into the store within 0.1 s"):
        multihost.get_value("other", timeout=0.1)


def test_told_to_end_alone() -> None:
    code = f"""
import os
from meshjit.multihost import reached_preemption_sync_point as reached
print(reached(1))
os.kill(os.getpid(), {int(signal.SIGTERM)})
print(reached(2))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ})
    assert done.stdout == "False\nTrue\n", done.stderr
