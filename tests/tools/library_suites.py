"""`python -m tests.tools.library_suites FOLDER [file ...]`: which share of a library's own tests passes under `meshjit.as_jax`.

FOLDER is the library's unpacked source distribution:

    pip download --no-binary :all: --no-deps optax && tar xzf optax-*.tar.gz

Each test file runs in a process of its own, under the Python that runs this (or MESHJIT_TEST_ECOSYSTEM), which needs the library,
pytest and what the tests import. Prints a row per file with the reasons of what failed below it, then all reasons, the most
frequent first. Of a file that does not end in time, the tests that had ended count, and the one that was running as failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
OUTCOMES = ("passed", "failed", "skipped")


@dataclass
class Share:
    """Tests of one file by outcome. `reasons`: the last line of each failure, how often."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return " | ".join(str(self.counts[outcome]) for outcome in OUTCOMES)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.library_suites")
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", help="test files, relative to FOLDER; by default all *_test.py and test_*.py")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one file")
    options = parser.parse_args()
    folder = options.folder.resolve()
    files = options.files or [str(path.relative_to(folder)) for path in test_files(folder)]
    total, reasons = Counter[str](), Counter[str]()
    print(f"| file | {' | '.join(OUTCOMES)} |\n|---|--:|--:|--:|")
    for file in files:
        share = run(folder, file, options.timeout)
        print(f"| `{file}` | {share} |", flush=True)
        for reason, count in share.reasons.most_common():
            print(f"    {count:5}  {reason}", flush=True)
        total += share.counts
        reasons += share.reasons
    tried = total["passed"] + total["failed"]
    print(f"\n{total['passed']} of {tried} pass ({total['passed'] / max(tried, 1):.1%}); {total['skipped']} skipped\n")
    for reason, count in reasons.most_common():
        print(f"{count:5}  {reason}")


def test_files(folder: Path) -> list[Path]:
    return sorted({*folder.rglob("*_test.py"), *folder.rglob("test_*.py")})


def run(folder: Path, file: str, timeout: float) -> Share:
    """One file; one that ends without a report (its process dies, it takes too long) is one failure more than its tests'."""
    python = os.environ.get("MESHJIT_TEST_ECOSYSTEM", sys.executable)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    environment.pop("MESHJIT_NUM_CPU_DEVICES", None)  # of this package; some tests set XLA_FLAGS themselves
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [python, "-m", "pytest", "-p", "meshjit.as_jax", "-v", f"--junitxml={report}", "-p", "no:cacheprovider", file]
        with (Path(scratch) / "told.txt").open("w+") as told:
            try:
                code = subprocess.run(command, cwd=folder, env=environment, stdout=told, stderr=told, timeout=timeout).returncode
            except subprocess.TimeoutExpired:
                return told_share(told, f"did not end in {timeout:.0f} s")
            return read(report) if report.exists() else told_share(told, f"no report, exit status {code}")


def told_share(told: IO[str], why: str) -> Share:
    """What pytest had said by then: `file::Class::test PASSED [ 5%]`, a line per test."""
    told.seek(0)
    lines = [line for line in told.read().splitlines() if "::" in line]
    ended = Counter(word.lower() for line in lines for word in line.split()[1:2] if word.lower() in OUTCOMES)
    running = next((line.split()[0] for line in reversed(lines) if len(line.split()) == 1), "?")
    return Share(ended + Counter(failed=1), Counter([f"{why}, in {running}"]))


def read(report: Path) -> Share:
    share = Share()
    for case in ElementTree.parse(report).iter("testcase"):
        failures = [child for child in case if child.tag in ("failure", "error")]
        outcome = "failed" if failures else "skipped" if case.find("skipped") is not None else "passed"
        share.counts[outcome] += 1
        share.reasons.update(reason_of(child) for child in failures[:1])
    return share


def reason_of(failure: ElementTree.Element) -> str:
    """Its error's first line; of a file that did not import, the line that names the error."""
    text = failure.text or ""
    lines = [line[2:].strip() for line in text.splitlines() if line.startswith("E  ")] or text.splitlines()[-1:]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Warning)\b", line)]
    return ((errors or lines)[0] if lines else failure.get("message", ""))[:200]


if __name__ == "__main__":
    main()
