"""Runs the commands of docs/inspect.md: `python -m tests.tools.guide` writes what they print behind them; a test holds the page to it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/inspect.md"
COMMAND = re.compile(r"^    \$ .*$")


def rendered(text: str) -> str:
    """The page with every command's output behind it, instead of what stands there."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples/language_model.py", Path(folder, "model.py"))
        lines: list[str] = []
        old = text.splitlines()
        at = 0
        while at < len(old):
            lines.append(old[at])
            at += 1
            if COMMAND.match(lines[-1]):
                while at < len(old) and old[at].startswith("    ") and not COMMAND.match(old[at]):
                    at += 1
                lines += [f"    {line if line.strip() else '.'}".rstrip() for line in output(lines[-1].strip()[2:], folder)]
    return "\n".join(lines) + "\n"


def output(command: str, folder: str) -> list[str]:
    """What a command prints, run where the model is."""
    setup = f"meshjit() {{ {sys.executable} -m meshjit.cli \"$@\"; }}; "
    done = subprocess.run(["bash", "-c", setup + command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=900)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": tempfile.gettempdir()}


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
