"""A Program with constants as operands means the same, whichever of them are chosen."""

from __future__ import annotations

import itertools

import numpy as np

import meshjit.numpy as mnp
from meshjit import lax, tree
from meshjit.core.evaluate import evaluate
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.trace import Argument, trace_to_program
from meshjit.transform.numbers import numbers_of, with_operands, without_numbers

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def traced(rate: float, row: list[float]) -> Program:
    def fun(x):  # type: ignore[no-untyped-def]
        looped = lax.fori_loop(0, 2, lambda i, c: c * 3.0 + i, x)
        return x * rate + np.array(row, np.float32), mnp.full((2, 2), rate), looped

    return trace_to_program(fun, [Argument(TensorType((2, 3), np.dtype(np.float32)))], tree.structure(((0,), {}))).program


def test_any_choice_of_operands_means_the_same() -> None:
    program = traced(0.5, [1.0, 2.0, 4.0])
    numbers, want = numbers_of(program), evaluate(program, [X])
    assert {n.splat for n in numbers} == {True, False} and all(n.value.shape == () for n in numbers if n.splat)
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(len(numbers)), k) for k in (0, 1, len(numbers))):
        found = verify(with_operands(program, numbers, chosen))
        got = evaluate(found, [X, *(numbers[i].value for i in chosen)])
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_programs_that_differ_in_numbers_alone_are_one_without_them() -> None:
    one, other = (print_program(without_numbers(traced(*given)), sources=False) for given in [(0.5, [1, 2, 4]), (3.0, [7, 8, 9])])
    assert one == other and "0.5" not in one
    assert "3.0" in one  # the body of a loop keeps its own
