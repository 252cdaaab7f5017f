"""Every public name of JAX's, and which of them, with which parameters, meshjit has.

    PYTHON_WITH_JAX -m tests.tools.jax_names --record    writes docs/jax_names.txt: what JAX has
    python -m tests.tools.jax_names                      writes docs/migration.md: the two compared
    python -m tests.tools.jax_names --missing [MODULE]   prints what is missing

The first imports nothing but jax, the others, and the tests, need no jax.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RECORD, PAGE = ROOT / "docs" / "jax_names.txt", ROOT / "docs" / "migration.md"

# No part of what users write: private, tools of JAX's own build, other compilers and file formats.
LEFT_OUT = tuple(
    "jax." + name
    for name in """_src lib tools version collect_profile interpreters extend api_util cloud_tpu_init experimental.jax2tf
    experimental.pallas experimental.mosaic experimental.sparse experimental.array_serialization experimental.hijax
    experimental.key_reuse experimental.source_mapper experimental.fused experimental.si_vjp experimental.roofline
    experimental.colocated_python experimental.custom_dce experimental.slab""".split()
)
# Modules that are written where they stand, so that what they import looks public.
WRITTEN = tuple(
    "jax." + name
    for name in """experimental.jet experimental.ode experimental.multihost_utils experimental.checkify experimental.mesh_utils
    experimental.control_deps experimental.serialize_executable experimental.profiler experimental.topologies experimental.custom_partitioning
    experimental.compilation_cache.compilation_cache experimental.rnn experimental.scheduling_groups experimental.transfer
    example_libraries.optimizers example_libraries.stax""".split()
)


def parameters(value: Any) -> list[str] | None:
    """What a function takes by name, and **; None where Python does not know. No private ones."""
    try:
        taken = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    by_name = [p for p in taken if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
    public = [p for p in by_name if p.name != "self" and not p.name.startswith("_")]
    return ["**" if p.kind is p.VAR_KEYWORD else p.name for p in public]


def kind_of(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "value"


def modules() -> list[str]:
    """JAX's public modules, by name."""
    found, todo = [], ["jax"]
    while todo:
        name = todo.pop(0)
        try:
            module = importlib.import_module(name)
        except Exception:  # noqa: BLE001 - one that needs what is not installed
            continue
        found.append(name)
        for child in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}."):
            if not child.name.startswith(LEFT_OUT) and not child.name.rpartition(".")[2].startswith("_"):
                todo.append(child.name)
    return sorted(found)


def public(module: Any) -> dict[str, Any]:
    """The module's names and values: no imported modules of others, no primitives, nothing private or withdrawn."""
    return {name: getattr(module, name) for name in dir(module) if _is_public(module, name)}


def _is_public(module: Any, name: str) -> bool:
    value = getattr(module, name, module)
    if name.startswith("_") or name.endswith("_p") or value is module or getattr(typing, name, None) is value:
        return False
    if isinstance(value, types.ModuleType):
        return value.__name__ == f"{module.__name__}.{name}"
    own = getattr(value, "__module__", module.__name__)
    return module.__name__ not in WRITTEN or own == module.__name__


def record() -> None:
    """One name a line: module, name, kind, and what a function takes by name. The methods of arrays stand under jax.Array."""
    array = importlib.import_module("jax").Array
    lines = [_line("jax.Array", name, getattr(array, name)) for name in dir(array) if not name.startswith("_")]
    for module in modules():
        values = public(importlib.import_module(module)).items()
        lines += [_line(module, name, value) for name, value in values if not f"{module}.{name}".startswith(LEFT_OUT)]
    RECORD.write_text("\n".join(sorted(lines)) + "\n")


def _line(module: str, name: str, value: Any) -> str:
    kind = kind_of(value)
    return " ".join([module, name, kind, *((parameters(value) or ()) if kind == "function" else ())])


@dataclass(frozen=True, eq=False)
class Known:
    """A name of JAX's."""

    module: str
    name: str
    kind: str
    parameters: list[str]

    @property
    def mine(self) -> str:
        """The module of meshjit's where it belongs."""
        return "meshjit" + self.module.removeprefix("jax")


def known() -> list[Known]:
    lines = [line.split() for line in RECORD.read_text().splitlines()]
    return [Known(module, name, kind, rest) for module, name, kind, *rest in lines]


def ours(module: str) -> Any:
    """What meshjit has under the name of a module of JAX's, or None."""
    if module == "jax.Array":
        return importlib.import_module("meshjit.runtime.array").Array
    try:
        return importlib.import_module("meshjit" + module.removeprefix("jax"))
    except ImportError:
        parent, _, name = module.rpartition(".")
        return getattr(ours(parent), name, None) if parent else None


_ABSENT = object()


def lacking(item: Known) -> list[str] | None:
    """The parameters that ours does not have, or None where the name is missing."""
    value = ours(f"{item.module}.{item.name}") if item.kind == "module" else getattr(ours(item.module), item.name, _ABSENT)
    if value is _ABSENT or (value is None and item.kind != "value"):
        return None
    taken = parameters(value)
    return [] if taken is None else [p for p in item.parameters if p not in taken]


def compared() -> dict[Known, list[str] | None]:
    return {item: lacking(item) for item in known()}


def tell_missing(chosen: str) -> None:
    by_module: dict[str, dict[str, list[str] | None]] = {}
    for item, lack in compared().items():
        by_module.setdefault(item.module, {})[item.name] = lack
    for module, names in by_module.items():
        absent = [name for name, lack in names.items() if lack is None]
        if module.startswith(chosen):
            print(f"{module}: {len(names) - len(absent)} of {len(names)}; missing: {' '.join(absent)}")
            print(*(f"    {name}: {' '.join(lack)}" for name, lack in names.items() if lack), sep="\n")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--record"]:
        record()
    elif arguments[:1] == ["--missing"]:
        tell_missing((arguments[1:] or ["jax"])[0])
    else:
        importlib.import_module("tests.tools.migration").write(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
