"""Sequences in which few things stand many times: what a decision's choices make and ask for.

    [x, -], [-, x], [x, -]      different ([x, -], [-, x])   at [0, 1, 0]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

T = TypeVar("T", bound=Hashable)


class ByChoice(Sequence[T], Generic[T]):
    """Something of each choice: the `different` ones, and `at`, which of them each choice has; `numbers` are the same."""

    def __init__(self, each: Iterable[T]) -> None:
        numbers: dict[T, int] = {}
        self.numbers = [numbers.setdefault(one, len(numbers)) for one in each]
        self.at: Any = np.array(self.numbers, np.intp)
        self.different = tuple(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, choice: int) -> T: ...
    @overload
    def __getitem__(self, choice: slice) -> Sequence[T]: ...
    def __getitem__(self, choice: int | slice) -> T | Sequence[T]:
        if isinstance(choice, slice):
            return [self.different[n] for n in self.numbers[choice]]
        return self.different[self.numbers[choice]]

    def of(self, choices: Any) -> list[T]:
        """The different ones of these choices."""
        return [self.different[n] for n in dict.fromkeys(self.at[choices].tolist())]
