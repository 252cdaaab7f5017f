"""Lets a script keep its own sharding.py and launch.py, although meshjit's modules import packages of these names.

The folder of a script is searched first, so that `import sharding` means the user's file. In modules of meshjit it must mean the
package beside meshjit. Python asks a module's own `__builtins__` what an import is: modules of meshjit get builtins whose
`__import__` looks up `sharding` as `meshjit._sharding`, and `launch` as `meshjit._launch`.

    in meshjit      import sharding  →  meshjit._sharding, the package's only copy
    elsewhere       import sharding  →  what the search path says; if that is the package, the same copy
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

PRIVATE = {"sharding": "meshjit._sharding", "launch": "meshjit._launch"}
_ROOT = Path(__file__).parents[1]
_FOLDERS = {name: _ROOT / folder for folder, name in PRIVATE.items()}


def _import(
    name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (), level: int = 0,
) -> ModuleType:  # fmt: skip
    """`__import__` as modules of meshjit see it."""
    top, dot, rest = name.partition(".")
    if level or top not in PRIVATE:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    private = PRIVATE[top]
    builtins.__import__(private + dot + rest, globals, locals, fromlist or (), 0)
    return sys.modules[private + dot + rest if fromlist else private]


_BUILTINS = {**vars(builtins), "__import__": _import}


class _OwnLoader(SourceFileLoader):
    """Of a module of meshjit's, `sharding` or `launch`."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = _BUILTINS
        super().exec_module(module)


class _SameModule(Loader):
    """Gives a second name to a module that is loaded by its private one."""

    def __init__(self, private: str) -> None:
        self.private = private

    def create_module(self, spec: ModuleSpec) -> None:
        """A module that is not used: importlib takes the one that `exec_module` leaves in sys.modules."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self.private)


class _Finder:
    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if name in _FOLDERS:
            folder = str(_FOLDERS[name])
            start = f"{folder}/__init__.py"
            return spec_from_file_location(name, start, loader=_OwnLoader(name, start), submodule_search_locations=[folder])
        if name.startswith("meshjit."):
            return _own(PathFinder.find_spec(name, path, target))
        if name.partition(".")[0] in PRIVATE:
            return _shared(name, _found_by_others(self, name, path, target))
        return None


def _own(spec: ModuleSpec | None) -> ModuleSpec | None:
    if spec is not None and type(spec.loader) is SourceFileLoader:
        spec.loader = _OwnLoader(spec.loader.name, spec.loader.path)
    return spec


def _found_by_others(own: _Finder, name: str, path: Sequence[str] | None, target: Any) -> ModuleSpec | None:
    finders = (finder for finder in sys.meta_path if finder is not own)
    return next((spec for finder in finders if (spec := finder.find_spec(name, path, target)) is not None), None)


def _shared(name: str, spec: ModuleSpec | None) -> ModuleSpec | None:
    """A module of the package under its plain name, which tests and programs use, is the one that meshjit has."""
    top, dot, rest = name.partition(".")
    if spec is None or not _is_ours(spec.origin, top):
        return spec
    return ModuleSpec(name, _SameModule(PRIVATE[top] + dot + rest), origin=spec.origin)


def _is_ours(file: str | None, package: str) -> bool:
    return file is not None and (_ROOT / package).resolve() in Path(file).resolve().parents


def _adopt(package: str) -> None:
    """Who imported the package before meshjit has its only copy."""
    if _is_ours(getattr(sys.modules.get(package), "__file__", None), package):
        loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
        sys.modules.update({f"meshjit._{name}": module for name, module in loaded.items()})


for _package in PRIVATE:
    _adopt(_package)
sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
