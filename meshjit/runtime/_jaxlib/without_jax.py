"""Keeps jaxlib from importing jax."""

from __future__ import annotations

import sys
import threading


class _WithoutJax:
    """Inside, jaxlib does not import `jax`.

    Where arrays are taken apart jaxlib looks for Python classes of jax and falls back to its own. Without jax that
    costs 0.1 ms of failing imports per shard; with jax installed it would load all of it. `None` in sys.modules makes
    the look-up fail at once. Where the user has imported jax, nothing is touched and the look-up finds it."""

    NAMES = ("jax.core", "jax._src.sharding_impls", "jax._src.named_sharding")

    def __init__(self) -> None:
        self.lock, self.depth = threading.RLock(), 0

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.depth == 0 and "jax" not in sys.modules:
            for name in self.NAMES:
                sys.modules[name] = None  # type: ignore[assignment]
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            for name in self.NAMES:
                if sys.modules.get(name, self) is None:
                    del sys.modules[name]
        self.lock.release()


NO_JAX = _WithoutJax()
