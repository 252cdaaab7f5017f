"""Whole programs as JAX's users write them, with only their imports changed: they print what they print with JAX 0.10.2.

`tests/programs/NAME.py` runs with JAX, `NAME.txt` is what it printed there on eight CPU devices:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/programs/NAME.py > tests/programs/NAME.txt
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
pytestmark = pytest.mark.device


def imports_changed(text: str) -> str:
    """The program for meshjit: its import statements name meshjit, nothing else changes."""
    text = re.sub(r"^(import|from) jax\b", r"\1 meshjit", text, flags=re.MULTILINE)
    return re.sub(r"^import meshjit$", "import meshjit as jax", text, flags=re.MULTILINE)


def words_and_numbers(text: str) -> tuple[list[str], list[float]]:
    words = re.sub(r"[\s,\[\]()]+", " ", NUMBER.sub(" # ", text)).split()
    return words, [float(n) for n in NUMBER.findall(text)]


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_prints_what_it_prints_with_jax(name: str, tmp_path: Path) -> None:
    script = tmp_path / f"{name}.py"
    script.write_text(imports_changed((PROGRAMS / f"{name}.py").read_text()))
    environment = {**os.environ, "MESHJIT_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(PROGRAMS.parent.parent)}
    process = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=300)
    assert process.returncode == 0, process.stderr[-3000:]
    words, numbers = words_and_numbers(process.stdout)
    expected_words, expected_numbers = words_and_numbers((PROGRAMS / f"{name}.txt").read_text())
    assert words == expected_words
    assert numbers == pytest.approx(expected_numbers, rel=1e-2, abs=2e-3)
