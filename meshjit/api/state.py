"""Which results of a function are the next state of which arguments, and so lie as these do.

A step takes a state and gives the next one: `step(params, batch) -> (params, loss)`. A result whose tree and types are those of
an argument is that argument's next state, the first with the first; else, the entries of a result that is a list or tuple. So a
state comes back as it went in, and the next call takes it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from meshjit.core.types import TensorType
from meshjit.trees import WORDS as tree


def state_ties(in_tree: Any, out_tree: Any, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Mapping[int, int]:
    """Number of the result's leaf → number of the argument's leaf."""
    args, kwargs = tree.unflatten(in_tree, list(range(len(inputs))))
    result = tree.unflatten(out_tree, list(range(len(outputs))))
    waiting = [*args, *kwargs.values()]
    ties: dict[int, int] = {}

    def tie(part: Any) -> bool:
        for argument in waiting:
            there, here = tree.leaves(part), tree.leaves(argument)
            same = tree.structure(part) == tree.structure(argument) and [outputs[i] for i in there] == [inputs[i] for i in here]
            if here and same:
                ties.update(zip(there, here, strict=True))
                waiting[:] = [other for other in waiting if other is not argument]
                return True
        return False

    if not tie(result) and isinstance(result, list | tuple):
        for part in cast(Sequence[Any], result):
            tie(part)
    return ties
