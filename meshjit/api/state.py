"""Which results of a function are the next state of which arguments, and so lie as these do.

A step takes a state and gives the next one: `step(params, batch) -> (params, loss)`. A result whose tree and types are those of
an argument is that argument's next state, the first with the first; else, the entries of a result that is a list or tuple. So a
state comes back as it went in, and the next call takes it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from meshjit.core.types import TensorType
from meshjit.trees import WORDS as tree


def state_ties(in_tree: Any, out_tree: Any, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Mapping[int, int]:
    """Number of the result's leaf → number of the argument's leaf."""
    waiting = [entry for part in _entries(in_tree, 0) for entry in _entries(*part)]  # of the arguments, then of those by name
    ties: dict[int, int] = {}

    def tie(structure: Any, first: int) -> bool:
        count = structure.num_leaves
        types = [*outputs[first : first + count]]
        for argument in waiting:
            other, place = argument
            if count and structure == other and types == [*inputs[place : place + count]]:
                ties.update(zip(range(first, first + count), range(place, place + count), strict=True))
                waiting.remove(argument)
                return True
        return False

    node = tree.outermost(out_tree)
    if not tie(out_tree, 0) and node is not None and issubclass(node[0], list | tuple):
        for part in _entries(out_tree, 0):
            tie(*part)
    return ties


def _entries(treedef: Any, first: int) -> list[tuple[Any, int]]:
    """(structure, number of its first leaf) of what is one level down."""
    structures = tree.structures(treedef)
    starts = accumulate((s.num_leaves for s in structures), initial=first)
    return list(zip(structures, starts, strict=False))
