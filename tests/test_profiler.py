"""Recordings of what ran: the files that they leave, and what stands in them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
from meshjit import profiler
from meshjit.experimental.profiler import get_profiled_instructions_proto

pytestmark = pytest.mark.device
X = np.ones((8, 8), np.float32)


def names(folder: Path, pattern: str = "plugins/profile/*/*.trace.json.gz") -> set[str]:
    (file,) = folder.glob(pattern)
    return {event.get("name", "") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]}


def test_a_recording_has_what_was_annotated(tmp_path: Path) -> None:
    step = mj.jit(lambda x: x @ x)

    @profiler.annotate_function
    def prepare() -> None:
        step(X).block_until_ready()

    named = profiler.annotate_function(prepare, name="twice", weight=2)
    with profiler.trace(tmp_path, create_perfetto_trace=True):
        prepare()
        named()
        with profiler.TraceAnnotation("mine"), profiler.StepTraceAnnotation("train", step_num=3):
            step(X).block_until_ready()
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))
    found = names(tmp_path, "plugins/profile/*/perfetto_trace.json.gz")
    assert {"mine", "train", "twice"} <= found and any("prepare" in name for name in found)


def test_a_recording_ends_with_an_error_inside(tmp_path: Path) -> None:
    with pytest.raises(KeyError), profiler.trace(tmp_path):
        raise KeyError
    profiler.start_trace(tmp_path / "again", profiler_options=profiler.ProfileOptions())
    profiler.stop_trace()
    assert list((tmp_path / "again").glob("plugins/profile/*/*.xplane.pb"))


def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stop_trace: nothing is recorded\n  fix: start_trace"):
        profiler.stop_trace()
    with pytest.raises(NotImplementedError, match="fix: create_perfetto_trace=True"):
        profiler.start_trace(tmp_path, create_perfetto_link=True)
    with profiler.trace(tmp_path), pytest.raises(RuntimeError, match="is recorded already"):
        profiler.start_trace(tmp_path)
    with pytest.raises(ValueError, match="no server runs"):
        profiler.stop_server()
    with pytest.raises(RuntimeError, match="backend 'abacus' does not run; 'cpu' does"):
        profiler.device_memory_profile("abacus")


def test_memory_as_pprof(tmp_path: Path) -> None:
    kept = mj.device_put(X)
    profiler.save_device_memory_profile(tmp_path / "memory.prof")
    assert len(gzip.decompress((tmp_path / "memory.prof").read_bytes())) > 100 and kept.shape == (8, 8)


def recorded(folder: Path) -> Path:
    (file,) = folder.glob("plugins/profile/*/*.xplane.pb")
    return file


# From Python 3.12 on; as an error it would end the process, for jaxlib makes this type where nothing may be raised.
@pytest.mark.filterwarnings("ignore:builtin type event_stats has no __module__ attribute:DeprecationWarning")
def test_a_recording_is_read_in_python(tmp_path: Path) -> None:
    step = mj.jit(lambda x: x @ x)
    with profiler.trace(tmp_path), profiler.TraceAnnotation("mine", weight=2):
        step(X).block_until_ready()
    file = recorded(tmp_path)
    data = profiler.ProfileData.from_file(str(file))
    host = data.find_plane_with_name("/host:CPU")
    assert isinstance(host, profiler.ProfilePlane) and data.find_plane_with_name("nowhere") is None
    (event,) = [event for line in host.lines for event in line.events if event.name == "mine"]
    assert isinstance(event, profiler.ProfileEvent) and dict(event.stats)["weight"] == 2
    assert event.duration_ns > 0 and event.end_ns - event.start_ns == event.duration_ns
    again = profiler.ProfileData.from_serialized_xspace(file.read_bytes())
    assert [plane.name for plane in again.planes] == [plane.name for plane in data.planes]
    with pytest.raises(RuntimeError, match="NOT_FOUND"):
        profiler.ProfileData.from_file(str(tmp_path / "nothing"))


def test_instructions_of_a_recording(tmp_path: Path) -> None:
    with profiler.trace(tmp_path):
        mj.jit(lambda x: x @ x)(X).block_until_ready()
    assert get_profiled_instructions_proto(str(recorded(tmp_path).parent)) == b""  # nothing of a GPU
    with pytest.raises(RuntimeError, match="NOT_FOUND"):
        get_profiled_instructions_proto(str(tmp_path / "nothing"))
