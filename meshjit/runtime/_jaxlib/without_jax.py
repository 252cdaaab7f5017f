"""Keeps jaxlib from importing jax, and hears of it where the user imports it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any


def jax_is_here() -> bool:
    """Whether JAX itself is in the process: the module `jax` may also be meshjit (`meshjit.as_jax`)."""
    module = sys.modules.get("jax")
    return module is not None and module.__name__ == "jax"


class _WithoutJax:
    """Inside, jaxlib does not import `jax`.

    Where arrays are taken apart jaxlib looks for Python classes of jax and falls back to its own. Without jax that
    costs 0.1 ms of failing imports per shard; with jax installed it would load all of it. `None` in sys.modules makes
    the look-up fail at once. Where the user has imported jax, nothing is touched and the look-up finds it."""

    NAMES = ("jax.core", "jax._src.sharding_impls", "jax._src.named_sharding")

    def __init__(self) -> None:
        self.lock, self.depth = threading.RLock(), 0
        self.theirs: dict[str, Any] = {}  # meshjit's modules under these names (`meshjit.as_jax`)

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.depth == 0 and not jax_is_here():
            self.theirs = {name: sys.modules[name] for name in self.NAMES if name in sys.modules}
            for name in self.NAMES:
                sys.modules[name] = None  # type: ignore[assignment]
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            for name in self.NAMES:
                if sys.modules.get(name, self) is None:
                    del sys.modules[name]
            sys.modules.update(self.theirs)
        self.lock.release()


NO_JAX = _WithoutJax()


class _Watch:
    """A finder of modules that leaves finding to the others, and calls a function after some modules are executed."""

    def __init__(self, names: Sequence[str], then: Callable[[], None]) -> None:
        self.names, self.then = names, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.names:
            return None
        others = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (find(name, path, target) for find in others if find)), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader.exec_module = self._with_then(spec.loader.exec_module)
        return spec

    def _with_then(self, execute: Callable[[Any], None]) -> Callable[[Any], None]:
        def exec_module(module: Any) -> None:
            try:
                execute(module)
            finally:
                self.then()

        return exec_module


def after_import(names: Sequence[str], then: Callable[[], None]) -> None:
    """Call `then` whenever one of these modules has been imported, or failed to be."""
    sys.meta_path.insert(0, _Watch(names, then))  # pyright: ignore[reportArgumentType]
