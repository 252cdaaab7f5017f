"""Names among the axes of a reduction: `x.sum(axis="batch")` under `vmap(axis_name="batch")` or in shard_map, as in JAX.

    x.mean(axis=("batch", 0))       over dim 0, and over the members or devices
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from meshjit.trace import line_of, user_source
from meshjit.trace.members import find_axis

over: dict[str, Callable[[Any, tuple[str, ...]], Any]] = {}  # the collective of a kind of reduction; meshjit.lax fills it


def without_names(axis: Any) -> tuple[tuple[str, ...], Any]:
    """The names, and the dims as they were given."""
    entries = axis if isinstance(axis, tuple | list) else (axis,)
    names = tuple(entry for entry in entries if isinstance(entry, str))
    return names, tuple(entry for entry in entries if not isinstance(entry, str)) if names else axis


def size_of(names: Sequence[str]) -> int:
    """How many members or devices they have. NameError where no vmap or shard_map around has one of them."""
    return math.prod(find_axis(name, "axis_size").size for name in names)


def reduced_over(op: str, x: Any, names: tuple[str, ...]) -> Any:
    """What all members or devices have, reduced."""
    if op not in over:
        raise NotImplementedError(
            f"{op} over the named axis {names[0]!r} is not there, as in JAX\n  at {line_of(user_source())}\n"
            f"  fix: lax.all_gather(x, {names[0]!r}), and the function over its dim 0"
        )
    return over[op](x, names)
