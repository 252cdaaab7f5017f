"""vmap: the same Program for many inputs at once, by the ops' batch rules."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from meshjit.core.effects import Effect, effect_of
from meshjit.core.once import once_per_program
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.ops.base.batching import insert, move
from meshjit.trace.source import line_of
from sharding.axes import AxisRef, name_of
from sharding.spec import ShardingError, entry_axes


def batch(
    program: Program,
    in_dims: Sequence[int | None],
    size: int,
    out_dims: Sequence[int | None] | None,
    spread: Any = None,
    names: Sequence[str] | None = None,
) -> Program:
    """Inputs have a batch dim of extent `size` at in_dims (None: the same for all), outputs at out_dims.

    Where out_dims is None, an output has a batch dim, wherever the op that gives it puts it, if it differs between the members.
    `spread`: the entry of the batch dim in specs that pin batched values; without it the compiler chooses. ValueError where
    an output depends on batched inputs but its out_dim is None; `names` are what it calls the out_dims. What is the same for
    all members happens once; of effects that differ between them the ordered ones are refused, and the others left to the op's
    batch rule.
    """
    natural, dims = _batched(program, tuple(in_dims), size, spread)
    if out_dims is None or dims == tuple(out_dims):
        return natural
    with Builder(program.name) as builder:
        results = builder.inline(natural, [builder.input(v.type, v.hint) for v in natural.inputs])
        places = zip(results, dims, out_dims, names or ["out_axes"] * len(results), strict=True)
        return builder.build([_placed(x, dim, target, size, name) for x, dim, target, name in places])


@once_per_program
def _batched(
    program: Program, in_dims: tuple[int | None, ...], size: int, spread: Any
) -> tuple[Program, tuple[int | None, ...]]:
    """(the Program for all members, where each output's batch dim is)."""
    with Builder(program.name) as builder:
        env: dict[Var, Var] = {}
        dims: dict[Var, int | None] = {}
        for var, dim in zip(program.inputs, in_dims, strict=True):
            shape = var.shape if dim is None else (*var.shape[:dim], size, *var.shape[dim:])
            env[var] = builder.input(var.type.with_shape(shape), var.hint)
            dims[var] = dim
        for eqn in program.eqns:
            with builder.at(eqn.source):
                results, places = _batched_eqn(builder, eqn, [env[v] for v in eqn.inputs], [dims[v] for v in eqn.inputs], spread)
                env.update(zip(eqn.outputs, results, strict=True))
                dims.update(zip(eqn.outputs, places, strict=True))
        return builder.build([env[v] for v in program.outputs]), tuple(dims[v] for v in program.outputs)


def _batched_eqn(builder: Builder, eqn: Eqn, operands: list[Var], dims: list[int | None], spread: Any) -> tuple[Any, Any]:
    if all(d is None for d in dims):
        return builder.emit(eqn.op, operands, eqn.params), [None] * len(eqn.outputs)
    if eqn.op.regions is not None:
        nested = batch if spread is None else functools.partial(batch, spread=spread)
        params = eqn.params if spread is None or eqn.op.pinned is None else {**eqn.params, "spread": spread}
        return eqn.op.batch(operands, dims, params, nested)
    if effect_of(eqn) == Effect.IO | Effect.ORDERED:
        at = f" at {eqn.source}" if eqn.source else ""
        raise ValueError(f"vmap of {eqn.op.name}{at}: it is ordered, and the members of a batch have no order")
    if eqn.op.seed is None or spread is None:
        return eqn.op.batch(operands, dims, eqn.params)
    _check_free(eqn, entry_axes(spread))
    return eqn.op.batch(operands, dims, {**eqn.params, "spread": spread})


def _check_free(eqn: Eqn, axes: Sequence[AxisRef]) -> None:
    """ShardingError where the spec for a member has one of the axes that members are spread over."""
    assert eqn.op.seed is not None
    spec = eqn.op.seed(eqn.params)
    used = {name_of(axis) for entry in spec for axis in entry_axes(entry)}
    twice = next((axis for axis in map(name_of, axes) if axis in used), None)
    if twice is not None:
        raise ShardingError(
            f"vmap: spmd_axis_name spreads the batch over {twice!r}, which the constraint {spec} at {line_of(eqn.source)}"
            " uses for a member's dim\n  fix: leave it out of one of them; a mesh axis shards one dim of a value"
        )


def _placed(var: Var, dim: int | None, target: int | None, size: int, name: str) -> Var:
    if target is None:
        if dim is not None:
            raise ValueError(
                f"at vmap {name}, got axis spec None but output was batched on axis {dim}: it differs between the {size} members,"
                f" together it is {var.type}\n"
                "  fix: out_axes=0, or make it one for all members, by lax.pmean or lax.psum over vmap(axis_name=...)"
            )
        return var
    return insert(var, target, size) if dim is None else move(var, dim, target)
