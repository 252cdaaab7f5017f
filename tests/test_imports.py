"""Imports stand at the top of files, so that import-linter's layers are what runs. pyproject.toml has the layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import launch
import sharding

ROOT = Path(__file__).parents[1]
FILES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "meshjit").rglob("*.py"))]

# Where functions import modules of the project, and why.
LATE = {
    "meshjit/core/program.py": "a Program prints itself, and the printer reads Programs",
    "meshjit/numpy/promote.py": "a list of arrays is a stack of them, and stacking takes what this file makes of operands",
    "meshjit/numpy/selection.py": "apply_along_axis is a vmap, which stands above numpy",
    "meshjit/numpy/vectorize.py": "it is a vmap, which stands above numpy",
    "meshjit/runtime/array.py": "methods that make Arrays",
    "meshjit/runtime/array_shards.py": "methods that make Arrays",
    "meshjit/runtime/array_values.py": "methods that make Arrays",
    "meshjit/runtime/placing.py": "an Array is moved by a program, and programs are run on Arrays that were placed",
}


def local_imports(path: str) -> Iterator[str]:
    """Imports of the project's own modules that stand in functions, as `name: statement`."""
    for function in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node).split()[1].startswith(("meshjit", "sharding", "launch")):
                    yield f"{function.name}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES)
def test_imports_stand_at_the_top(path: str) -> None:
    """What an op needs from a file above its own it calls as `ops.name` (meshjit/ops/__init__.py)."""
    assert list(local_imports(path)) == [] or path in LATE


def test_nothing_is_excused_that_needs_no_excuse() -> None:
    assert [path for path in LATE if not list(local_imports(path))] == []


@pytest.mark.parametrize("package", [launch, sharding])
def test_no_module_has_the_name_of_something_else(package: ModuleType) -> None:
    """Importing a module binds it in its package, over whatever has its name, whenever a module is imported under a further name."""
    folder = Path(str(package.__file__)).parent
    named = {path.stem: getattr(package, path.stem, None) for path in folder.glob("[a-z]*.py")}
    assert [name for name, value in named.items() if value is not None and not isinstance(value, ModuleType)] == []


def test_packages_that_jax_has_at_hand_come_when_asked_for() -> None:
    code = "import meshjit as jax; assert jax.experimental.io_callback and jax.export.export and 'export' in dir(jax)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""
