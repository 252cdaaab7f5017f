"""Which frames are not the user's: libraries name their own files, so that messages name the line that called them."""

from __future__ import annotations

from types import FrameType

from meshjit.api.tracebacks import boundary as _boundary
from meshjit.trace.source import exclude, excluded as _exclude_paths, is_own

__all__ = ["_exclude_paths", "api_boundary", "include_frame", "register_exclusion"]

api_boundary = _boundary
register_exclusion = exclude


def include_frame(frame: FrameType) -> bool:
    """Whether a traceback shows this frame."""
    return not is_own(frame.f_code)
