"""What documents promise by their form: tables with all their rows, every field of an Op, files that exist."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshjit.core import op

ROOT = Path(__file__).parent.parent
FILES = sorted(path for room in ("meshjit", "sharding", "launch") for path in (ROOT / room).rglob("*.py"))


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def test_numbered_tables_have_a_line_for_every_row() -> None:
    for path in FILES:
        for text in docstrings(path):
            rows = [int(number) for number in re.findall(r"^ *(\d+)\.?  +\S", text, re.MULTILINE)]
            assert rows in ([], list(range(len(rows))), list(range(1, len(rows) + 1))), f"{path.relative_to(ROOT)}: rows {rows}"


def test_every_field_of_an_op_is_documented() -> None:
    assert op.__doc__ is not None
    fields = set(re.findall(r"^    (\w+)(?:\(|,|  | )", op.__doc__, re.MULTILINE))
    assert [f.name for f in dataclasses.fields(op.Op) if f.name not in fields] == []


@pytest.mark.parametrize("document", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]), ids=lambda path: path.name)
def test_documents_name_files_that_exist(document: Path) -> None:
    names = re.findall(r"`([a-z_/0-9]+/[a-z_0-9]+\.[a-z]+)`", document.read_text())  # NAME is no name
    places = ("", "meshjit", "sharding", "meshjit/ops", "tests")
    assert [name for name in names if not any((ROOT / place / name).exists() for place in places)] == []


def terms() -> list[str]:
    rows = re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    return [row for row in rows if row not in ("word", "---")]


def test_the_glossary_is_sorted() -> None:
    assert terms() == sorted(terms(), key=str.lower)


def test_every_word_of_the_glossary_is_in_use() -> None:
    code = "\n".join(path.read_text() for path in FILES).lower()
    words = [word.strip().lower() for term in terms() for word in term.split(",")]
    assert [word for word in words if not re.search(rf"\b{word.replace(' ', '[ _]')}(s|es|ed|d)?\b", code)] == []
