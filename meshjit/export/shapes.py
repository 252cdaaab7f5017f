"""Symbolic shapes, of which there are none: a plan is made for extents, so a function is exported once for each shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meshjit import tree
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.trace import argument_of, line_of, user_source


@dataclass
class SymbolicScope:
    """Where names of extents would mean something. It takes no constraints, as there are no names."""

    constraints_str: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        if self.constraints_str:
            raise _no_names(f"constraints {list(self.constraints_str)}")


def is_symbolic_dim(p: Any) -> bool:
    """Whether an extent is a name: never."""
    del p
    return False


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[int, ...]:
    """The shape that a text such as "2, _, ..." stands for; `_` and `...` are taken from `like`.

    NotImplementedError for names of extents: a plan is made for numbers. ValueError for what cannot be read."""
    del scope
    if constraints:
        raise _no_names(f"constraints {list(constraints)}")
    entries = [e.strip() for e in (shape_spec or "...").strip().strip("()[]").split(",") if e.strip()]
    known = list(like or ())
    if "..." in entries:
        at = entries.index("...")
        if at != len(entries) - 1 or (like is None):
            raise ValueError(f"symbolic_shape: {shape_spec!r}: `...` must be last, and like= say what it stands for")
        entries = [*entries[:at], *["_"] * (len(known) - at)]
    return tuple(_extent(entry, known[i] if i < len(known) else None, shape_spec) for i, entry in enumerate(entries))


def _extent(entry: str, like: int | None, spec: str | None) -> int:
    if entry == "_":
        if like is None:
            raise ValueError(f"symbolic_shape: {spec!r}: `_` stands for an extent of like=, which has none there")
        return like
    if re.fullmatch(r"\d+", entry):
        return int(entry)
    raise _no_names(f"{entry!r} in {spec!r}")


def _no_names(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"symbolic shapes: {what} is not a number, and a plan is made for numbers\n  at {line_of(user_source())}\n"
        "  fix: export the function once for each shape that is needed, and choose by x.shape; pad to the next larger one"
    )


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """A tree of ShapeDtypeStruct like `args`, whose shapes are those of `shapes_specs`, a pytree prefix of texts or None (the
    argument's own). NotImplementedError for names of extents."""
    leaves, structure = tree.flatten(args)
    specs = tree.leaves(tree.broadcast(shapes_specs, args, is_leaf=lambda x: x is None), is_leaf=lambda x: x is None)
    types = [argument_of(leaf).type for leaf in leaves]
    shapes = [symbolic_shape(s, constraints=constraints, scope=scope, like=t.shape) for s, t in zip(specs, types, strict=True)]
    return tree.unflatten(structure, [ShapeDtypeStruct(shape, t.dtype) for shape, t in zip(shapes, types, strict=True)])
