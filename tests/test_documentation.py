"""Pages: what is made from the code is current, blocks of Python run, examples print what their pages say, every page has its place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshjit.options import OPTIONS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import generate_reference as reference  # noqa: E402

QUICK = ("hmc", "shallow_water", "what_jax_gets_wrong")  # the others: docs/generate_reference.py --examples --check
MADE = {"options.md", "command_line.md", *(f"{name}.md" for name in (*reference.RUN, *reference.OTHERS))}


def test_what_is_made_from_the_code_is_current() -> None:
    made = dict(reference.pages(run=False))
    assert {path.name for path in made} | {"command_line.md"} == MADE
    assert [path.name for path, text in made.items() if path.read_text() != text] == [], "python docs/generate_reference.py"


def test_every_variable_has_its_line() -> None:
    """Also those that are no options: whoever reads one in the code writes what it is for."""
    read = set()
    for room in ("meshjit", "launch", "sharding"):
        for path in (ROOT / room).rglob("*.py"):
            read |= set(re.findall(r"[\"'](MESHJIT_[A-Z_0-9]*[A-Z0-9])[\"']", path.read_text()))
    page = (DOCS / "options.md").read_text()
    assert {name for option in OPTIONS for name in option.variables} <= set(re.findall(r"`([A-Z_0-9]+)`", page))
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_every_page_has_its_place() -> None:
    listed = set(re.findall(r"^([a-z_/]+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    there = {str(path.relative_to(DOCS).with_suffix("")) for path in [*DOCS.glob("*.md"), *DOCS.glob("examples/*.md")]}
    assert listed - {"api/index"} == there - {"index"}
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert examples == {*reference.RUN, *reference.OTHERS}


@pytest.mark.device
@pytest.mark.parametrize("name", QUICK)
def test_examples_print_what_their_pages_say(name: str) -> None:
    here, there = reference.printed_by(name), reference.recorded(name)
    assert there and reference.alike(here, there), here


def test_what_is_printed_may_differ_by_rounding_alone() -> None:
    assert reference.alike("loss 1.234, 3 steps", "loss 1.236, 3 steps")
    assert not reference.alike("loss 1.234", "loss 1.5") and not reference.alike("loss 1", "los 1") and not reference.alike("1", "1 2")


def blocks() -> list[tuple[str, str]]:
    pages = [(path, path.read_text()) for path in sorted(DOCS.glob("*.md"))]
    found = [(path.name, block) for path, text in pages for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]
    return [(name, block) for name, block in found if name in ("first_hour.md",)]


@pytest.mark.parametrize(("page", "block"), blocks())
def test_blocks_of_python_run(page: str, block: str, tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MESHJIT_", "JAX_", "XLA_"))}
    environ = {**kept, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    text = (DOCS / page).read_text()
    shapes = re.findall(r"\d+(?=,\))", done.stdout)  # of shards, as the sentence below has them
    assert f"`{done.stdout.strip()}`" in text or f"{', '.join(shapes[:-1])} and {shapes[-1]} elements" in text
