"""config.debug_nans and debug_infs: look at results, and find the op that made a NaN by computing everything once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.evaluate import evaluate, evaluate_eqn
from meshjit.core.program import Eqn, Program
from meshjit.core.types import is_inexact, type_of
from meshjit.runtime.array import Array
from meshjit.trace.source import line_of

Test = Callable[[Any], Any]


def active_tests() -> list[tuple[str, Test]]:
    """What to look for: its name, and the ufunc that finds it."""
    tests: list[tuple[str, Test]] = [("NaN", np.isnan)] if config.debug_nans else []
    return [*tests, ("infinity", np.isinf)] if config.debug_infs else tests


def kind_in(results: Sequence[Array]) -> str | None:
    """What one of the results holds that is looked for: "NaN", "infinity"; None where none does."""
    return next((kind for kind, test in active_tests() if any(_holds(x, test) for x in results)), None)


def check_results(
    title: str,
    results: Sequence[Array],
    names: Callable[[], Sequence[str]],
    program: Program,
    arguments: Sequence[Array],
    argument_names: Callable[[], Sequence[str]],
) -> None:
    """FloatingPointError that names the first result with a NaN and, where all values can be read here, what made it."""
    for kind, test in active_tests():
        for i, result in enumerate(results):
            if _holds(result, test):
                first = f"{title}: {names()[i]} {result.type} holds {kind}"
                raise FloatingPointError(f"{first}\n  {_cause(kind, test, program, arguments, argument_names)}")


def _holds(array: Array, test: Test) -> bool:
    """Whether a shard of this process does, without its padding."""
    if not is_inexact(array.dtype):
        return False
    if array.is_fully_addressable:
        return bool(test(array.numpy()).any())
    return any(bool(test(shard.data.numpy()).any()) for shard in array.addressable_shards)


def _cause(
    kind: str, test: Test, program: Program, arguments: Sequence[Array], names: Callable[[], Sequence[str]]
) -> str:
    if not all(x._is_readable for x in arguments):
        return f"its arguments span processes, so this one cannot tell which operation made the {kind}"
    values = [x.numpy() for x in arguments]
    for name, value in zip(names(), values, strict=True):
        if _bad(value, test):
            return f"it came in with {name}"
    culprit = _first(program, values, test)
    if culprit is None:
        return f"computed one operation after another there is no {kind}: it comes from XLA's optimisations or rounding"
    ranges = ", ".join(_range(x) for x in culprit.operands) or "none"
    at = f" at {line_of(culprit.eqn.source)}" if culprit.eqn.source is not None else ""
    return f"made by {culprit.eqn.op.name}{at}{culprit.inside}\n  its operands: {ranges}"


def _bad(value: Any, test: Test) -> bool:
    return is_inexact(value.dtype) and bool(test(value).any())


@dataclass(frozen=True)
class _Culprit:
    """The first equation with a bad result, its operands, which are good, and the loop that it belongs to."""

    eqn: Eqn
    operands: Sequence[Any]
    inside: str = ""


def _first(program: Program, values: Sequence[Any], test: Test) -> _Culprit | None:
    env: dict[Any, Any] = dict(zip(program.inputs, values, strict=True))
    with np.errstate(all="ignore"):
        for eqn in program.eqns:
            operands = [env[v] for v in eqn.inputs]
            results = evaluate_eqn(eqn, operands)
            if any(_bad(r, test) for r in results):
                return _within(eqn, operands, test) or _Culprit(eqn, operands)
            env.update(zip(eqn.outputs, results, strict=True))
    return None


def _within(eqn: Eqn, operands: Sequence[Any], test: Test) -> _Culprit | None:
    """The same inside of a loop or branch: which equation, and in which step."""
    if eqn.op.steps is None:
        return None
    asking = eqn.op.steps(*operands, **eqn.params)
    runs: Counter[int] = Counter()  # of each nested Program so far: a loop has a condition and a body
    try:
        program, values = next(asking)
        while True:
            values = [np.asarray(v) for v in values]
            results = evaluate(program, values)
            if any(_bad(r, test) for r in results):
                culprit = _first(program, values, test)
                step = f", in step {runs[id(program)]} of {eqn.op.name}"
                return None if culprit is None else replace(culprit, inside=culprit.inside + step)
            runs[id(program)] += 1
            program, values = asking.send(results)
    except StopIteration:
        return None


def _range(value: Any) -> str:
    """`f32[8] from -1.0 to 3.0`"""
    if value.size == 0 or value.dtype.kind == "c":
        return str(type_of(value))
    low, high = value.min(), value.max()
    return f"{type_of(value)} = {low}" if low == high else f"{type_of(value)} from {low} to {high}"
