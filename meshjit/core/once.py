"""What is worked out once per Program: layers that share one Program share what is made of it, too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from meshjit.core.program import Program

P = ParamSpec("P")
T = TypeVar("T")


def once_per_program(
    function: Callable[Concatenate[Program, P], T],
) -> Callable[Concatenate[Program, P], T]:
    """`function(program, *args)` answers once for a Program, as long as that lives, and arguments that can be hashed.

    Keyword arguments are no part of the question. The answer must not hold the Program itself, which would never go then."""
    answers: WeakKeyDictionary[Program, dict[Hashable, T]] = WeakKeyDictionary()

    @functools.wraps(function)
    def once(program: Program, /, *args: P.args, **kwargs: P.kwargs) -> T:
        by_arguments = answers.setdefault(program, {})
        if args not in by_arguments:
            by_arguments[args] = function(program, *args, **kwargs)
        return by_arguments[args]

    return once
