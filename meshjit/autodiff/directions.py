"""Tangents and cotangents as users give them: of the type that they have to have, or an error with both types."""

from __future__ import annotations

from typing import Any

from meshjit.core.varying import REDUCED, UNREDUCED, Axes, differing, with_mark
from meshjit.trace import Argument, Tracer, argument_of, as_operand


def direction_of(value: Any, like: Argument, what: str, name: str, place: str, placed: bool) -> Any:
    """A tangent of the value `like`, or with the dual of a type a cotangent, as an operand.

    ValueError for another shape, and with `placed` where its type says that it is elsewhere; for another dtype TypeError of a
    tangent of jvp and ValueError of others, as in JAX."""
    argument = argument_of(value, name)
    if argument.type.shape != like.type.shape:
        raise ValueError(f"{what}: a {name} has shape {argument.type.shape}, {place} {like.type.shape}")
    if argument.type.dtype != like.type.dtype:
        raise (TypeError if what == "jvp" else ValueError)(
            f"{what}: a {name} has dtype {argument.type.dtype}, {place} {like.type.dtype}\n"
            f"  fix: {name}.astype({like.type.dtype})"
        )
    fix = _fix_of_placement(value, argument, like, name) if placed else None
    if fix is not None:
        raise ValueError(f"{what}: a {name} is {argument}, and has to be {like}\n  fix: {fix}")
    return as_operand(value, argument)


def _fix_of_placement(value: Any, given: Argument, like: Argument, name: str) -> str | None:
    """The call that brings a value to where its type has to say that it is, or makes it vary over axes of shard_map as it has to.

    None where nothing is to be done. What has no placement in its type, such as a NumPy array, may be anywhere."""
    if given.varying != like.varying:
        return _cast(given.varying, like.varying, name)
    if like.sharding is None or given.sharding is None or _is_untyped(value) or given.placed == like.placed:
        return None
    return f"meshjit.sharding.reshard({name}, {like.sharding.spec!r})"


def _is_untyped(value: Any) -> bool:
    """Whether it is an argument of jit that came without a placement in its type."""
    return isinstance(value, Tracer) and value.variable not in (value.tracing.specs or {})


def _cast(given: Axes, like: Axes, name: str) -> str:
    """The call that makes the one of the other."""
    surplus = tuple(sorted(differing(given) - differing(like)))
    if surplus:
        return f"meshjit.lax.psum({name}, {surplus})"
    kind = next((k for k, mark in _KINDS.items() if with_mark(like, mark) - with_mark(given, mark)), "varying")
    return f"meshjit.lax.pcast({name}, {tuple(sorted(with_mark(like - given, _KINDS[kind])))}, to={kind!r})"


_KINDS = {"varying": "", "unreduced": UNREDUCED, "reduced": REDUCED}
