"""Makes einops know arrays of meshjit, whichever of the two is imported first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from meshjit import numpy

_BACKENDS = "einops._backends"  # the module of which einops takes all subclasses of AbstractBackend


def register() -> None:
    """Tell einops, now if it is there, else when it is imported."""
    if _BACKENDS in sys.modules:
        _add(sys.modules[_BACKENDS])
    else:
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]


def _add(backends: ModuleType) -> None:
    class Backend(backends.NumpyBackend):
        framework_name = "meshjit"

        def __init__(self) -> None:
            super().__init__()
            self.on_host, self.np = self.np, numpy

        def from_numpy(self, x: Any) -> Any:
            return self.np.asarray(x)

        def to_numpy(self, x: Any) -> Any:
            return self.on_host.asarray(x)

    backends.MeshjitBackend = Backend  # type: ignore[attr-defined]  # einops finds subclasses that somebody holds


class _Finder:
    """Waits for einops, and then leaves sys.meta_path."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if name != _BACKENDS:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Followed(spec.loader)
        return spec


class _Followed(Loader):
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _add(module)
