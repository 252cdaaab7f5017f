"""Verifies functions as a script calls them: each compiled function once, with the arguments of its first call."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from meshjit.api.stages import Compiled
from meshjit.api.watching import watching
from meshjit.inspect.verification import VerificationError
from meshjit.inspect.verify import verify_planned


@dataclass(frozen=True)
class Check:
    """One function's report, or what differs."""

    title: str
    passed: bool
    text: str


@contextmanager
def checks(name: str | None = None) -> Generator[list[Check]]:
    """Inside the block every function that `jit` compiles (or the one of this name) is verified, and the report printed.

    The list that the block gets grows with every check. The script goes on with the results of its own function.
    """
    results: list[Check] = []

    def listen(stage: Any) -> None:
        if isinstance(stage, Compiled) and name in (None, stage.fun_name):
            stage.run = _checked_run(stage, results)

    with watching(listen):
        yield results


def _checked_run(compiled: Any, results: list[Check]) -> Any:
    """`compiled.run`, which verifies before the first call; an instance's attribute, so that it can be taken away."""

    def run(leaves: Any, *rest: Any) -> Any:
        del compiled.run
        try:
            check = Check(compiled.name, True, str(verify_planned(compiled.lowered.planned, leaves)))
        except VerificationError as error:
            check = Check(compiled.name, False, str(error))
        results.append(check)
        print(check.text, file=sys.stdout if check.passed else sys.stderr, flush=True)
        return compiled.run(leaves, *rest)

    return run
