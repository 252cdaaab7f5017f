"""What a loop carries: as it comes in, so the body gives it back, or an error says what differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.core.program import Program
from meshjit.core.promotion import promote
from meshjit.core.varying import NOWHERE
from meshjit.lax.regions import Leaves
from meshjit.trace import Argument, Traced, line_of, user_source, vary, varying_of
from meshjit.trees import WORDS as tree
from sharding.spec import spec_text


def fixed_carry(what: str, carry: Leaves, trace: Callable[[Leaves], Traced]) -> tuple[Leaves, Traced]:
    """The carry in dtypes that the body gives back, and the body traced for them.

    A weak carry (a Python number) that comes out in another dtype becomes what the two promote to, and is weak no longer; what
    then differs is an error. One that comes out in its dtype stays weak in the body, as in JAX."""
    while True:
        traced = trace(carry)
        pairs = list(zip(carry.arguments, _carry_outputs(what, carry, traced), strict=True))
        dtypes = [_common_dtype(a, o) for a, o in pairs]
        if all(a.type.dtype == d for (a, _), d in zip(pairs, dtypes, strict=True)):
            for a, o in pairs:
                if a.type != o.type:
                    raise TypeError(_other_carry(what, traced.program, a, o))
            return carry, traced
        carry = carry.cast(dtypes, [a.weak and a.type.dtype == d for (a, _), d in zip(pairs, dtypes, strict=True)])


def as_varying_as(state: Any, *read: Any) -> Any:
    """The first state of a loop in code for single devices, whose leaves vary over all axes over which any of them does, or what
    iterations read. For loops of functions that users call; theirs say so themselves (`lax.pcast`)."""
    leaves, structure = tree.flatten(state)
    axes = NOWHERE.union(*(varying_of(x) for x in (*leaves, *read)))
    return tree.unflatten(structure, [vary(x, axes) for x in leaves])


def _common_dtype(first: Argument, back: Argument) -> np.dtype[Any]:
    """The dtype of a carry that adapts to what the body gives back, if it is weak."""
    if not first.weak or first.type.dtype == back.type.dtype:
        return first.type.dtype
    return promote([(first.type.dtype, True), (back.type.dtype, back.weak)])[0]


def _carry_outputs(what: str, carry: Leaves, traced: Traced) -> list[Argument]:
    """The body's carry, checked against the one it was given."""
    structure = traced.out_tree if what == "while_loop" else tree.structures(traced.out_tree)[0]
    if structure != carry.structure:
        # The carry of a fori_loop is a pair of its own counter and the value.
        first, back = (tree.structures(s)[1] if what == "fori_loop" else s for s in (carry.structure, structure))
        raise TypeError(
            f"{what}: {traced.program.name} must give back a carry like the one it is given\n"
            f"  at {line_of(user_source())}\n  given: {first}\n  returned: {back}"
        )
    outputs = list(traced.out_arguments[: len(carry.values)])
    for first, back in zip(carry.arguments, outputs, strict=True):
        if first.varying != back.varying:
            raise TypeError(_varies_otherwise(what, traced.program, first, back))
        if first.type != back.type and not (first.weak and first.type.shape == back.type.shape):
            raise TypeError(_other_carry(what, traced.program, first, back))
        if first.placed != back.placed:
            raise TypeError(_other_carry(what, traced.program, first, back))
    return outputs


_NAMES = {"while_loop": ("init_val", "carry"), "fori_loop": ("init[1]", "init_val")}


def _carry_name(what: str, first: Argument) -> str:
    return first.name.replace(*_NAMES[what], 1) if what in _NAMES else first.name


def _varies_otherwise(what: str, program: Program, first: Argument, back: Argument) -> str:
    name, here, there = _carry_name(what, first), tuple(sorted(first.varying)), tuple(sorted(back.varying))
    more = tuple(sorted(back.varying - first.varying)) or tuple(sorted(first.varying - back.varying))
    which = f"the first {name}, before the loop" if back.varying - first.varying else f"{name}, where the iteration gives it back"
    return (
        f"{what}: the carry {name} {first.type} varies over {here or 'no axis'} at first, and over {there or 'no axis'} after one"
        f" iteration of {program.name}, at {line_of(user_source())}\n"
        "  which devices hold the same is decided once for all iterations\n"
        f"  fix: lax.pcast({name}, {more}, to='varying') of {which}"
    )


def _other_carry(what: str, program: Program, first: Argument, back: Argument) -> str:
    name = _carry_name(what, first)
    fix = f"cast it: x.astype({first.type.dtype})" if first.type.shape == back.type.shape else "keep its shape the same"
    fix = f"meshjit.sharding.reshard it to {spec_text(back.sharding.spec)}" if first.type == back.type and back.sharding else fix
    return (
        f"{what}: the carry changes its type in {program.name}, at {line_of(user_source())}\n"
        f"  {name} is {first} at first and {back} after one iteration\n"
        f"  a loop is compiled once for all iterations\n  fix: {fix}, in the loop or before it"
    )
