"""Values of classes that say themselves how `vmap` takes them apart and puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.trees import USERS

Call = Callable[..., Any]


@dataclass(frozen=True)
class Rules:
    """A member of a value, and a value of its members; both are given what does the same for their parts."""

    spec_type: type
    to_member: Call
    from_member: Call


RULES: dict[type, Rules] = {}


def register_vmappable(
    data_type: type, spec_type: type, axis_size_type: type, to_elt: Call, from_elt: Call, make_iota: Call | None = None
) -> None:
    """Values of `data_type` are leaves for `vmap`, whose axes for them are of `spec_type`.

    Args:
      axis_size_type: int; NotImplementedError for others.
      to_elt: `to_elt(cont, get_index, value, spec)` gives what a member of the batch has for `value`; `cont(part, axis)` is the
        member of a part, `get_index()` the member's number.
      from_elt: `from_elt(cont, size, element, spec)` gives the value of all members; `cont(size, part, axis)` has a part of all.
      make_iota: for other sizes than ints.

    Source: jax.interpreters.batching.register_vmappable."""
    if axis_size_type is not int:
        raise NotImplementedError(
            f"register_vmappable: the extent of a batch is an int, and axis_size_type is {axis_size_type.__name__}\n  fix: int"
        )
    RULES[data_type] = Rules(spec_type, to_elt, from_elt)


def is_vmappable(x: Any) -> bool:
    """Whether its class is registered: `vmap` sees a leaf there."""
    return type(x) in RULES


class OwnResult(Exception):
    """A function returned a value of a registered class."""


def has_own(tree: Any) -> bool:
    return any(map(is_vmappable, USERS.leaves(tree, is_vmappable)))


def check_arrays(result: Any) -> None:
    """OwnResult where a leaf is of a registered class."""
    if has_own(result):
        raise OwnResult


def of_parts(mapped: Callable[..., Call], fun: Call, in_axes: Any, out_axes: Any, axis_size: int | None) -> Call:
    """fun over a batch, which `mapped(fun, in_axes, out_axes, axis_size)` gives where no value is of a registered class."""

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = USERS.flatten((args, kwargs), is_vmappable)
        specs = [*_specs(in_axes, USERS.structure(args, is_vmappable), "in_axes")]
        specs += [0] * (len(leaves) - len(specs))
        parts = [pair for x, spec in zip(leaves, specs, strict=True) for pair in _parts_of(x, spec)]
        size = axis_size if axis_size is not None else next((np.shape(x)[d] for x, d in parts if d is not None), 0)
        dims: list[Any] = []  # the axes of the results' parts; filled when fun is traced
        ended: list[Any] = []

        def of_members(values: list[Any], number: Any) -> list[Any]:
            given = iter(values)
            members = [_member(x, spec, given, lambda: number) for x, spec in zip(leaves, specs, strict=True)]
            args, kwargs = USERS.unflatten(structure, members)
            results, out_structure = USERS.flatten(fun(*args, **kwargs), is_vmappable)
            out_specs = _specs(out_axes, out_structure, "out_axes")
            out_parts = [pair for x, spec in zip(results, out_specs, strict=True) for pair in _out_parts(x, spec, size)]
            dims[:] = [d for _, d in out_parts]
            ended[:] = [results, out_specs, out_structure]
            return [x for x, _ in out_parts]

        values = mapped(of_members, ([d for _, d in parts], 0), dims, axis_size)([x for x, _ in parts], mnp.arange(size))
        results, out_specs, out_structure = ended
        given = iter(values)
        return USERS.unflatten(out_structure, [_value(x, s, given, size) for x, s in zip(results, out_specs, strict=True)])

    return call


def _specs(axes: Any, structure: Any, what: str) -> list[Any]:
    """An axis for every leaf; those of registered classes may be of another type."""
    own = tuple({rules.spec_type for rules in RULES.values()})
    axes = tuple(axes) if isinstance(axes, list) and what == "in_axes" else axes
    return USERS.flatten_prefix(axes, structure, what, is_leaf=lambda x: x is None or isinstance(x, own))


def _parts_of(x: Any, spec: Any) -> list[tuple[Any, Any]]:
    """The arrays in an argument's leaf that members have their own of, or share, each with its axis."""
    if not is_vmappable(x):
        return [(x, spec)]
    parts: list[tuple[Any, Any]] = []

    def take(part: Any, axis: Any) -> Any:
        parts.extend(_parts_of(part, axis))
        return part

    RULES[type(x)].to_member(take, lambda: np.int32(0), x, spec)
    return parts


def _member(x: Any, spec: Any, given: Iterator[Any], number: Callable[[], Any]) -> Any:
    """What a member has for the leaf, of the parts that it is given in their order."""
    if not is_vmappable(x):
        return next(given)
    return RULES[type(x)].to_member(lambda part, axis: _member(part, axis, given, number), number, x, spec)


def _out_parts(x: Any, spec: Any, size: int) -> list[tuple[Any, Any]]:
    if not is_vmappable(x):
        return [(x, spec)]
    parts: list[tuple[Any, Any]] = []

    def take(_: int, part: Any, axis: Any) -> Any:
        parts.extend(_out_parts(part, axis, size))
        return part

    RULES[type(x)].from_member(take, size, x, spec)
    return parts


def _value(x: Any, spec: Any, given: Iterator[Any], size: int) -> Any:
    """The leaf of a result, of the parts that all members gave."""
    if not is_vmappable(x):
        return next(given)
    return RULES[type(x)].from_member(lambda size, part, axis: _value(part, axis, given, size), size, x, spec)
