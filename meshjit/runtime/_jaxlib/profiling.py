"""XLA's profiler: what ran when, on devices and in Python, and what holds memory."""

from __future__ import annotations

from typing import Any

from jaxlib import _profile_data, _profiler  # pyright: ignore[reportAttributeAccessIssue]

ProfileOptions = _profiler.ProfileOptions
TraceAnnotation = _profiler.TraceMe
ProfileData = _profile_data.ProfileData
ProfileEvent = _profile_data.ProfileEvent
ProfilePlane = _profile_data.ProfilePlane


def begin_profile(options: Any = None) -> Any:
    """A session that records from now on; a process has one at a time."""
    return _profiler.ProfilerSession() if options is None else _profiler.ProfilerSession(options)


def end_profile(session: Any, folder: str) -> None:
    """Write what was recorded below `folder`/plugins/profile."""
    session.stop_and_export(folder)


def profile_server(port: int) -> Any:
    """Serves recordings on demand, as long as it is kept."""
    return _profiler.start_server(port)


def instructions_of_profile(folder: str) -> bytes:
    """How long each instruction took, in a folder that `end_profile` wrote."""
    return _profiler.get_profiled_instructions_proto(folder)


def heap_profile(client: Any) -> bytes:
    """A pprof, gzipped by some versions of jaxlib, of what is on the devices of a client."""
    return client.heap_profile()
