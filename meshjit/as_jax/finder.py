"""Finds the modules of jax among meshjit's."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from meshjit.missing import NOT_THERE, refuse, text_of

_BESIDE = "meshjit.as_jax.jax"  # what only libraries ask JAX for; wins over a module of meshjit's of the same name

# meshjit's rooms and tools, whose names JAX does not have, or has for something else.
OWN_MODULES = frozenset(
    "api as_jax autodiff beside_einops cli config core emit inspect missing ops_table options own_packages partition plan runtime"
    " segments simulate targets trace transform".split()
)


_ABSENT = object()


class _Finder:
    """A finder on sys.meta_path. A module of jax that meshjit does not have is an error, not left to a jax that is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "jax" and not name.startswith("jax."):
            return None
        module = module_for(name)
        if module is None:
            raise ModuleNotFoundError(_absent(name), name=name)
        return ModuleSpec(name, _Loader(module), is_package=True)


class _Loader(Loader):
    """Puts a module of meshjit's into sys.modules under the name of jax's."""

    def __init__(self, module: str) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> None:
        """A module that is not used: importlib takes the one that `exec_module` leaves in sys.modules."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self.module)


def module_for(name: str) -> str | None:
    """meshjit's module for one of jax's."""
    rest = name.removeprefix("jax")
    own = rest.lstrip(".").split(".")[0] in OWN_MODULES
    names = [_BESIDE + rest] if own or not rest else [_BESIDE + rest, "meshjit" + rest]
    return next((name for name in names if _exists(name)), None)


def _exists(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a parent, or that the parent is no package
        return False


def _absent(name: str) -> str:
    if name.startswith("jax._src"):
        return (
            f"no module {name!r} in meshjit, which stands for jax here: jax._src is private to JAX, and meshjit has only what"
            " libraries that it was tried with import from there"
        )
    package, _, module = name.rpartition(".")
    package = "meshjit" + package.removeprefix("jax")
    if module in NOT_THERE.get(package, {}):
        return f"no module {name!r}: {text_of(package, module)}"
    return f"no module {name!r}: meshjit, which stands for jax here, has no such module yet"


def forward(module: str, of: str, name: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module that stands for another of meshjit's, and is known to users by a name of jax's."""
    here, theirs = sys.modules[module], importlib.import_module(of)

    def attribute(name_there: str) -> Any:
        value = getattr(theirs, name_there, _ABSENT)
        if value is _ABSENT or _is_own(name_there, value) or _is_hidden(f"{name}.{name_there}", value):
            if name_there.startswith("__") or module_for(f"{name}.{name_there}") is None:
                refuse(of, name_there, sys._getframe(1), f"{name}.{name_there}: ")
            value = importlib.import_module(f"{name}.{name_there}")
        setattr(here, name_there, value)
        return value

    def names() -> list[str]:
        return sorted({n for n in dir(theirs) if not _is_own(n, getattr(theirs, n))} | vars(here).keys())

    return attribute, names


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """`__getattr__` of a package of jax's that has only modules, also where nothing has imported them yet: `import jax` does."""

    def module(name: str) -> ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(str(error), name=name) from None

    return module


def enter_children(of: str, name: str) -> None:
    """Put the modules that `of` has into sys.modules by jax's names, too, as `import jax` does with JAX's."""
    for child, value in [*vars(sys.modules[of]).items()]:
        public = isinstance(value, ModuleType) and not child.startswith("_")
        if public and value.__name__ == f"{of}.{child}" == module_for(f"{name}.{child}"):
            sys.modules.setdefault(f"{name}.{child}", value)


def _is_own(name: str, value: Any) -> bool:
    return isinstance(value, ModuleType) and name in OWN_MODULES


def _is_hidden(name: str, value: Any) -> bool:
    """Whether another module of meshjit's than `value` stands for the module of jax's."""
    return isinstance(value, ModuleType) and module_for(name) not in (None, value.__name__)


def install() -> None:
    """From now on `import jax` finds meshjit. RuntimeError where jax itself is in the process already."""
    present = sys.modules.get("jax")
    if present is not None and present.__name__ == "jax":
        raise RuntimeError(
            f"jax itself is in the process already ({present.__file__}), so it cannot be meshjit any more\n"
            "  fix: import meshjit.as_jax before everything that imports jax, or python -m meshjit.as_jax script.py"
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # pyright: ignore[reportArgumentType]
