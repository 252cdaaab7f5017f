"""vmap: the same Program for many inputs at once, by the ops' batch rules."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from meshjit.core.effects import Effect, effect_of
from meshjit.core.program import Builder, Program, Var
from meshjit.ops.base.batching import insert, move


def batch(
    program: Program, in_dims: Sequence[int | None], size: int, out_dims: Sequence[int | None], spread: Any = None
) -> Program:
    """Inputs have a batch dim of extent `size` at in_dims (None: the same for all), outputs at out_dims.

    `spread`: the entry of the batch dim in specs that pin batched values; without it the compiler chooses. ValueError where
    an output depends on batched inputs but its out_dim is None. What is the same for all members happens once; of effects that
    differ between them the ordered ones are refused, and the others left to the op's batch rule.
    """
    with Builder(program.name) as builder:
        env: dict[Var, Var] = {}
        dims: dict[Var, int | None] = {}
        for var, dim in zip(program.inputs, in_dims, strict=True):
            shape = var.shape if dim is None else (*var.shape[:dim], size, *var.shape[dim:])
            env[var] = builder.input(var.type.with_shape(shape), var.hint)
            dims[var] = dim
        for eqn in program.eqns:
            with builder.at(eqn.source):
                operands = [env[v] for v in eqn.inputs]
                in_places = [dims[v] for v in eqn.inputs]
                if all(d is None for d in in_places):
                    results, places = list(builder.emit(eqn.op, operands, eqn.params)), [None] * len(eqn.outputs)
                elif eqn.op.regions is None and effect_of(eqn) == Effect.IO | Effect.ORDERED:
                    at = f" at {eqn.source}" if eqn.source else ""
                    raise ValueError(f"vmap of {eqn.op.name}{at}: it is ordered, and the members of a batch have no order")
                elif eqn.op.regions is not None:
                    nested = batch if spread is None else functools.partial(batch, spread=spread)
                    params = eqn.params if spread is None or eqn.op.pinned is None else {**eqn.params, "spread": spread}
                    results, places = eqn.op.batch(operands, in_places, params, nested)
                elif eqn.op.seed is not None and spread is not None:
                    results, places = eqn.op.batch(operands, in_places, {**eqn.params, "spread": spread})
                else:
                    results, places = eqn.op.batch(operands, in_places, eqn.params)
                env.update(zip(eqn.outputs, results, strict=True))
                dims.update(zip(eqn.outputs, places, strict=True))
        outputs = [
            _placed(env[v], dims[v], target, size) for v, target in zip(program.outputs, out_dims, strict=True)
        ]
        return builder.build(outputs)


def _placed(var: Var, dim: int | None, target: int | None, size: int) -> Var:
    if target is None:
        if dim is not None:
            raise ValueError(
                f"vmap: out_axes is None for a result that differs between the members of the batch, {var.type} with the batch\n"
                "  fix: out_axes=0, or make it one for all members, by lax.pmean or lax.psum over vmap(axis_name=...)"
            )
        return var
    return insert(var, target, size) if dim is None else move(var, dim, target)
