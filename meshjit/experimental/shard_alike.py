"""`jax.experimental.shard_alike`: two trees of arrays that lie alike, wherever that is."""

from typing import Any

from meshjit.core.op import REGISTRY
from meshjit.missing import explain as _explain
from meshjit.trace import argument_of, as_operand, bind, line_of, user_source
from meshjit.trees import WORDS as tree


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """x and y as they are, each array of the one placed as that of the other in its place.

    Where neither says where it is, the compiler chooses for both. Uses of the results may bring them elsewhere afterwards.
    ValueError for trees or shapes that differ."""
    (xs, structure), (ys, other) = tree.flatten(x), tree.flatten(y)
    if structure != other:
        raise ValueError(
            f"shard_alike: x is a tree {structure}, y is {other}\n  at {line_of(user_source())}\n  fix: two of one structure"
        )
    pairs = [_alike(a, b, name) for a, b, name in zip(xs, ys, tree.path_names(x, "x"), strict=True)]
    return tree.unflatten(structure, [a for a, _ in pairs]), tree.unflatten(structure, [b for _, b in pairs])


def _alike(x: Any, y: Any, name: str) -> tuple[Any, Any]:
    first, second = argument_of(x, name), argument_of(y, f"y{name[1:]}")
    if first.type.shape != second.type.shape:
        raise ValueError(
            f"shard_alike: {name} is {first.type}, {second.name} is {second.type}\n  at {line_of(user_source())}\n"
            "  fix: two arrays of one shape"
        )
    return bind(REGISTRY["shard_alike"], as_operand(x, first), as_operand(y, second))


_explain(__name__)
