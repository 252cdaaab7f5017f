"""What took how long, recorded by XLA (`jax.profiler`).

    with meshjit.profiler.trace("/tmp/profile"):
        step(x).block_until_ready()

TensorBoard (with xprof), or ui.perfetto.dev, which opens the .trace.json.gz below plugins/profile, shows the recording.
ProfileData reads the .xplane.pb beside it: planes (a device, the host), their lines (a thread), and the events of a line.

    for line in ProfileData.from_file(path).find_plane_with_name("/host:CPU").lines:
        print(line.name, sum(event.duration_ns for event in line.events))

`meshjit inspect` says beforehand what a step should take, and why.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import pathlib
import threading
from collections.abc import Callable, Generator
from typing import Any

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib, client
from meshjit.runtime._jaxlib import (
    ProfileData as ProfileData,
    ProfileEvent as ProfileEvent,
    ProfileOptions as ProfileOptions,
    ProfilePlane as ProfilePlane,
    TraceAnnotation as TraceAnnotation,
)

__all__ = [
    "ProfileData", "ProfileEvent", "ProfileOptions", "ProfilePlane", "StepTraceAnnotation", "TraceAnnotation",
    "annotate_function", "device_memory_profile", "save_device_memory_profile", "start_server", "start_trace", "stop_server",
    "stop_trace", "trace",
]  # fmt: skip


class _Recording:
    """The one recording of this process, and the server of recordings."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Any = None
        self.folder = ""
        self.for_perfetto = False
        self.server: Any = None


_now = _Recording()


def start_trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> None:
    """Record from now on, for the folder `log_dir` (`jax.profiler.start_trace`).

    create_perfetto_trace: `stop_trace` leaves a perfetto_trace.json.gz, too. RuntimeError where a recording runs already,
    NotImplementedError for create_perfetto_link: no web server is started."""
    if create_perfetto_link:
        raise NotImplementedError(
            "profiler.start_trace: create_perfetto_link would serve the recording to a web page\n"
            "  fix: create_perfetto_trace=True, and open perfetto_trace.json.gz at https://ui.perfetto.dev"
        )
    with _now.lock:
        if _now.session is not None:
            raise RuntimeError(f"profiler.start_trace: {_now.folder} is recorded already; only one recording runs at a time")
        client.client()  # a profile that begins before the devices are there has nothing of them
        _now.session = _jaxlib.begin_profile(profiler_options)
        _now.folder, _now.for_perfetto = os.fspath(log_dir), create_perfetto_trace


def stop_trace() -> None:
    """End the recording and write it (`jax.profiler.stop_trace`). RuntimeError where none runs."""
    with _now.lock:
        if _now.session is None:
            raise RuntimeError(
                "profiler.stop_trace: nothing is recorded\n  fix: start_trace(log_dir) before, or `with trace(log_dir):`"
            )
        session, _now.session = _now.session, None
        _jaxlib.end_profile(session, _now.folder)
        if _now.for_perfetto:
            newest = max(pathlib.Path(_now.folder).glob("plugins/profile/*/*.trace.json.gz"), key=os.path.getmtime)
            (newest.parent / "perfetto_trace.json.gz").write_bytes(newest.read_bytes())


@contextlib.contextmanager
def trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> Generator[None]:
    """Record what runs inside of `with` (`jax.profiler.trace`); as `start_trace` and `stop_trace`."""
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class StepTraceAnnotation(TraceAnnotation):
    """A step, in `with`: StepTraceAnnotation("train", step_num=i) (`jax.profiler.StepTraceAnnotation`)."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, _r=1, **kwargs)


def annotate_function(func: Callable[..., Any], name: str | None = None, **decorator_kwargs: Any) -> Callable[..., Any]:
    """A decorator: each call is in the recording, under the function's name or `name` (`jax.profiler.annotate_function`)."""
    shown = name or getattr(func, "__qualname__", None) or getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(shown, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


def start_server(port: int) -> Any:
    """Serve recordings to TensorBoard's "capture profile" on this port (`jax.profiler.start_server`); whoever reaches the port
    can ask for one. ValueError where this process serves already."""
    if _now.server is not None:
        raise ValueError("profiler.start_server: this process serves already\n  fix: stop_server() before")
    client.client()
    _now.server = _jaxlib.profile_server(port)
    return _now.server


def stop_server() -> None:
    """ValueError where no server runs."""
    if _now.server is None:
        raise ValueError("profiler.stop_server: no server runs")
    _now.server = None


def device_memory_profile(backend: str | None = None) -> bytes:
    """What is on this process's devices, as a gzipped pprof (`jax.profiler.device_memory_profile`).

    backend: "cpu", "gpu" or "tpu", if it is the one that runs; RuntimeError for another."""
    if backend is not None and backend != client.client().platform:
        raise RuntimeError(f"device_memory_profile: backend {backend!r} does not run; {client.client().platform!r} does")
    profile = _jaxlib.heap_profile(client.client())
    return profile if profile.startswith(b"\x1f\x8b") else gzip.compress(profile)


def save_device_memory_profile(filename: os.PathLike[str] | str, backend: str | None = None) -> None:
    """Write `device_memory_profile` to a file, for pprof (`jax.profiler.save_device_memory_profile`)."""
    pathlib.Path(filename).write_bytes(device_memory_profile(backend))

_explain(__name__)
