"""What the folder of tests promises: test files hold tests, what they share is in tests/tools or conftest.py."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.tools.quick import QUICK

TESTS = Path(__file__).parent
FILES = sorted([*TESTS.glob("*.py"), *(TESTS / "tools").rglob("*.py")])


def imported(tree: ast.AST) -> list[str]:
    """The modules that any import statement names, `a.b` for `from a import b`, too."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_file_imports_a_test_file(path: Path) -> None:
    assert [name for name in imported(ast.parse(path.read_text())) if name.startswith("tests.test_")] == []


def test_only_tests_and_conftest_lie_beside_the_tools() -> None:
    assert sorted(path.name for path in TESTS.glob("*.py") if not path.name.startswith("test_")) == ["__init__.py", "conftest.py"]


def test_the_quick_tier_has_tests_of_every_room() -> None:
    rooms = [path.parent.name for path in (TESTS.parent / "meshjit").glob("*/__init__.py")]
    assert {*rooms, "sharding", "launch"} - set(QUICK) == set()
    for files in QUICK.values():
        for name in files:  # the first test of a file is always quick
            assert "\ndef test_" in (TESTS / f"{name}.py").read_text(), f"tests/{name}.py has no test"


def test_contributing_says_what_every_file_is_for() -> None:
    rows = re.findall(r"^\| (`test_.*?) \|", (TESTS.parent / "docs" / "contributing.md").read_text(), re.MULTILINE)
    patterns = [pattern for row in rows for pattern in re.findall(r"`(test_[\w*]+)`", row)]
    names = [path.stem for path in TESTS.glob("test_*.py")]
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in names)] == []
