"""What is worked out once per Program: layers that share one Program share what is made of it, too.

No dictionary with weak keys: each of its keys has a weak reference with a callback. Where an object has two of these, its end
asks CPython 3.11 for memory, which may start the search for garbage, which may free one of the two while they are gone through:
the process crashes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Concatenate, Generic, ParamSpec, TypeVar
from weakref import ref

from meshjit.core.program import Program

P = ParamSpec("P")
T = TypeVar("T")


def once_per_program(
    function: Callable[Concatenate[Program, P], T],
) -> Callable[Concatenate[Program, P], T]:
    """`function(program, *args)` answers once for a Program, as long as that lives, and arguments that can be hashed.

    Keyword arguments are no part of the question."""

    @functools.wraps(function)
    def once(program: Program, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answers: dict[Hashable, T] = program.answers.setdefault(function, {})
        if args not in answers:
            answers[args] = function(program, *args, **kwargs)
        return answers[args]

    return once


class Once(Generic[T]):
    """The same for answers that go with whoever has this object: `function(program)` is worked out once for each Program."""

    def __init__(self, function: Callable[[Program], T]) -> None:
        self.function = function
        self.answers: dict[int, tuple[ref[Program], T]] = {}  # by id; an answer may outlive its Program until the next one

    def __call__(self, program: Program) -> T:
        entry = self.answers.get(id(program))
        if entry is None or entry[0]() is not program:
            self.answers = {i: entry for i, entry in self.answers.items() if entry[0]() is not None}
            entry = self.answers[id(program)] = ref(program), self.function(program)
        return entry[1]
