"""Cotangents that are added to Refs where they are computed, rather than returned (`VJP.with_refs`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshjit.core.ref import Ref
from meshjit.numpy.refs import addupdate
from meshjit.trees import USERS as tree


@tree.register_static
@dataclass(frozen=True)
class GradValue:
    """Asks for a cotangent as a value."""


@tree.register_static
@dataclass(frozen=True)
class DontWant:
    """Asks for no cotangent."""


@tree.register_static
@dataclass(frozen=True)
class GradRef:
    """Stands for a cotangent that was added to a Ref."""


@tree.register_static
@dataclass(frozen=True)
class DidntWant:
    """Stands for a cotangent that nobody asked for."""


def into_refs(pull: Callable[..., tuple[Any, ...]], structure: Any, wishes: tuple[Any, ...]) -> Callable[..., tuple[Any, ...]]:
    """`pull`, which gives a tuple of this structure, with what `wishes` says of every leaf."""
    places, given = tree.flatten(wishes, is_leaf=lambda x: isinstance(x, GradValue | DontWant))
    if given != structure:
        raise TypeError(
            f"vjp with_refs: the arguments have the structure {structure}, it was given {given}\n"
            "  fix: for every array a Ref, jax.ad.GradValue() or jax.ad.DontWant()"
        )

    def pulled(cotangents: Any) -> tuple[Any, ...]:
        results = tree.leaves(pull(cotangents))
        return tree.unflatten(structure, [_placed(x, where) for x, where in zip(results, places, strict=True)])

    return pulled


def _placed(cotangent: Any, where: Any) -> Any:
    if isinstance(where, Ref):
        addupdate(where, ..., cotangent)
        return GradRef()
    return DidntWant() if isinstance(where, DontWant) else cotangent
