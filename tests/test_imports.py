"""Imports stand at the top of files, so that import-linter's layers are what runs. pyproject.toml has the layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "meshjit" / "ops").rglob("*.py"))


def local_imports(path: Path) -> Iterator[str]:
    """Imports of the project's own modules that stand in functions, as `name: statement`."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and ast.unparse(node).split()[1].startswith(("meshjit", "sharding")):
                    yield f"{function.name}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_imports(path: Path) -> None:
    """What an op needs from a file above its own it calls as `ops.name` (meshjit/ops/__init__.py)."""
    assert list(local_imports(path)) == []
