"""Writes the reference: a page for every public module, with each name's signature and docstring. Docstrings are Markdown."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = (
    "meshjit", "meshjit.numpy", "meshjit.numpy.linalg", "meshjit.numpy.fft", "meshjit.lax", "meshjit.lax.linalg",
    "meshjit.random", "meshjit.nn", "meshjit.nn.initializers", "meshjit.sharding", "meshjit.tree",
    "meshjit.tree_util", "meshjit.checkpoints", "meshjit.multihost", "meshjit.distributed", "meshjit.debug",
    "meshjit.profiler", "meshjit.monitoring", "meshjit.export", "meshjit.dtypes", "meshjit.errors",
    "meshjit.stages", "meshjit.image", "meshjit.ops",
    "meshjit.flatten_util", "meshjit.custom_batching", "meshjit.custom_derivatives", "meshjit.dlpack",
    "meshjit.scipy.special", "meshjit.scipy.linalg", "meshjit.scipy.stats", "meshjit.scipy.signal",
    "meshjit.scipy.optimize", "meshjit.report",
)  # fmt: skip


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions and classes of ours, in the order of their names."""
    for name in sorted(set(dir(module)), key=str.lower):
        value = getattr(module, name, None)
        if name.startswith("_") or isinstance(value, ModuleType) or not callable(value):
            continue
        home = getattr(value, "__module__", None) or ""
        if home.partition(".")[0] in ("meshjit", "sharding", "launch"):
            yield name, value


def signature(value: Any) -> str:
    """`(x, /, *, axis=None)`: names and plain defaults, without types."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    plain = [p.replace(annotation=p.empty, default=_plain(p.default)) for p in parameters]
    try:
        return str(inspect.Signature(plain))
    except ValueError:
        return "(...)"


class _Written:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _plain(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return default
    is_plain = isinstance(default, int | float | str | bool | type(None) | tuple)
    return default if is_plain and "<" not in repr(default) else _Written(getattr(default, "__name__", "..."))


def entry(name: str, value: Any) -> list[str]:
    kind = "class" if isinstance(value, type) else "def"
    lines = [f"### {name}", "", "```python", f"{kind} {name}{signature(value)}", "```", "", *_text(value), ""]
    if isinstance(value, type):
        own = [(n, v) for n, v in vars(value).items() if not n.startswith("_") and inspect.isfunction(v) and v.__doc__]
        for method, function in own:
            lines += [f"`{name}.{method}{signature(function)}`", "", *_text(function), ""]
    return lines


def _text(value: Any) -> list[str]:
    """A docstring; what a class inherits from Python says nothing."""
    text = inspect.getdoc(value) or ""
    if isinstance(value, type) and not value.__dict__.get("__doc__"):
        return []
    text = re.sub(r"^(#+) ", r"\\\1 ", text, flags=re.MULTILINE)
    text = text.replace("](", "]\\(")  # an index, then a call: no link
    return re.sub(r"(?<!`)<(?=[a-zA-Z/])", "\\\\<", text).splitlines()


def write_pages(folder: Path) -> None:
    """Into a folder that git ignores."""
    folder.mkdir(exist_ok=True)
    for name in MODULES:
        module = importlib.import_module(name)
        about = (inspect.getdoc(module) or "").splitlines()
        lines = [f"# {name}", "", *about, ""]
        for each, value in public(module):
            lines += entry(each, value)
        _write(folder / f"{name}.md", "\n".join(lines))
    head = ["# API reference", "", "Names are those of JAX, under `meshjit`.", "", "```{toctree}", ":maxdepth: 1", ""]
    _write(folder / "index.md", "\n".join([*head, *MODULES, "```", ""]))


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
