"""`jax.experimental.profiler`: what a recording says of single instructions."""

from __future__ import annotations

from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib


def get_profiled_instructions_proto(tensorboard_dir: str) -> bytes:
    """How long each instruction took, as XLA's ProfiledInstructionsProto (`jax.experimental.profiler`).

    tensorboard_dir: a folder plugins/profile/RUN below the one that `profiler.trace` wrote to. Empty where no GPU was recorded,
    and where the folder holds no recording; RuntimeError where there is no such folder."""
    return _jaxlib.instructions_of_profile(tensorboard_dir)


_explain(__name__)
