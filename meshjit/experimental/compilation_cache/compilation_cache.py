"""Where compiled programs are kept from one process to the next (`jax.experimental.compilation_cache.compilation_cache`)."""

from __future__ import annotations

import os

from meshjit.config import config
from meshjit.missing import explain as _explain


def set_cache_dir(path: str | os.PathLike[str]) -> None:
    """Keep compiled programs in this folder from now on: `config.update("compilation_cache_dir", path)`."""
    config.update("compilation_cache_dir", os.fspath(path))


def reset_cache() -> None:
    """Use no folder any more, until one is named. What lies in the folder stays."""
    config.update("compilation_cache_dir", None)


_explain(__name__)
