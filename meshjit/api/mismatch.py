"""How the containers of a call differ from those that a function was compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from meshjit.trees import WORDS as tree

_LONGEST = 120  # of the whole signature in a message; longer ones are left to the differences


def tree_mismatch(in_tree: Any, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`arguments (*, {'w1': *}), called with (*, {'w2': *})`, and a line for each place that differs."""
    made_for, called = signature_text(in_tree), signature_text(tree.structure((args, kwargs)))
    short = len(made_for) + len(called) <= _LONGEST
    first = f"arguments {made_for}, called with {called}" if short else "arguments in other containers than it is called with"
    return "\n".join([first, *(f"  {line}" for line in _differences(in_tree, names, args, kwargs))])


def _differences(
    in_tree: Any, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[str]:
    """One line per place, the outermost that differ."""
    wanted_args, wanted_kwargs = tree.unflatten(in_tree, names)
    if len(args) != len(wanted_args):
        yield f"it takes {len(wanted_args)} positional arguments, {len(args)} were given"
    for i, (expected, actual) in enumerate(zip(wanted_args, args, strict=False)):
        yield from _below(expected, actual, _root(expected, f"args[{i}]"))
    for name in wanted_kwargs:
        if name in kwargs:
            yield from _below(wanted_kwargs[name], kwargs[name], name)
        else:
            yield f"{name}= is missing"
    for name in kwargs:
        if name not in wanted_kwargs:
            yield f"{name}= is not known to it"


def _root(expected: Any, otherwise: str) -> str:
    """The argument's own name, which its leaves' names begin with."""
    leaves = tree.leaves(expected)
    match = re.match(r"\w+", leaves[0]) if leaves else None
    return match[0] if match else otherwise


def _below(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if tree.structure(expected) == tree.structure(actual):
        return
    mine, theirs = tree.children(expected), tree.children(actual)
    if mine is None or theirs is None or type(expected) is not type(actual):
        yield f"{path} is {tree.kind_text(actual)}, compiled for {tree.kind_text(expected)}"
        return
    keys, others = dict(mine), dict(theirs)
    if list(keys) == list(others):
        before = list(_deeper(keys, others, path))
        yield from before or [f"{path} has other static fields"]
        return
    missing, new = [k for k in keys if k not in others], [k for k in others if k not in keys]
    yield from (f"{path}{key} is missing" for key in missing)
    yield from (f"{path}{key} is not known to it" for key in new)
    yield from _deeper(keys, others, path)


def _deeper(keys: dict[str, Any], others: dict[str, Any], path: str) -> Iterator[str]:
    for key, child in keys.items():
        if key in others:
            yield from _below(child, others[key], path + key)


def signature_text(in_tree: Any) -> str:
    """The structure of `(args, kwargs)` as a call: `(*, {'w': *}, b=*)`."""
    args, kwargs = tree.unflatten(in_tree, [_STAR] * in_tree.num_leaves)
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


class _Star:
    def __repr__(self) -> str:
        return "*"


_STAR = _Star()
