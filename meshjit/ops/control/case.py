"""case: one of several branches, by an index that is the same for the whole program; out of range means the last one.

Params: branches (Programs with the same input and output types). Operands: an i32[] index, then the branches' inputs;
results: the branches' outputs. `jax.lax.cond` and `switch` are this op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.core.effects import is_ordered
from meshjit.core.evaluate import evaluated
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.region import Region, Steps
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply, negate
from meshjit.ops.base.batching import batch_size, move
from meshjit.ops.base.bits import not_, or_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full, full_like, zeros
from meshjit.ops.base.families import require
from meshjit.ops.base.reduction import reduce_or
from meshjit.ops.base.shape import broadcast_in_dim
from meshjit.ops.control.guarding import guarded
from meshjit.ops.control.nested import Flags, batched_outputs, chosen, require_no_io, require_types, whole_rule, with_tangents

INDEX = TensorType((), np.dtype(np.int32))


def _type(in_types: Types, params: Params) -> Types:
    branches = params["branches"]
    require(len(branches) > 0, "case", "there must be at least one branch")
    require(bool(in_types) and in_types[0] == INDEX, "case", f"the index must be {INDEX}, operands are {in_types}")
    for i, branch in enumerate(branches):
        require_types("case", f"branch {i}: input", in_types[1:], branch.input_types)
        require_types("case", f"branch {i}: output", branches[0].output_types, branch.output_types)
    return branches[0].output_types


def _regions(params: Params) -> tuple[Region, ...]:
    return tuple(
        Region(b, tuple(range(1, 1 + len(b.inputs))), tuple(range(len(b.outputs)))) for b in params["branches"]
    )


def _steps(index: Any, *operands: Any, branches: tuple[Program, ...]) -> Steps:
    return (yield branches[int(index) if 0 <= index < len(branches) else len(branches) - 1], operands)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Branches read the operands from outside of their regions."""
    branches = params["branches"]
    bodies = [lambda inner, b=branch: inner.program(b, operands[1:]) for branch in branches]
    return e.branches(operands[0], bodies, outs, is_ordered(*branches))


def _case(index: Var, operands: Sequence[Var], branches: Sequence[Program]) -> list[Var]:
    return list(current_builder().emit(case, [index, *operands], {"branches": tuple(branches)}))


# -- derivative


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    flags = [t is not None for t in tangents[1:]]
    directions = [t for t in tangents[1:] if t is not None]
    branches = params["branches"]
    index, operands, count = primals[0], primals[1:], len(branches[0].outputs)
    if not derivative.splits:
        joint = [derivative.joint(b, flags) for b in branches]
        out_flags = _either([f for _, f in joint])
        results = _case(index, [*operands, *directions], [with_tangents(b, count, f, out_flags) for b, f in joint])
        values, pushed = results[:count], results[count:]
    else:
        parts = [derivative.parts(b, flags) for b in branches]
        out_flags = _either([p.flags for p in parts])
        kept = [[r for r in dict.fromkeys(p.forward.outputs[count:])] for p in parts]
        own = [_residuals_kept(p.forward, k) for p, k in zip(parts, kept, strict=True)]
        results = _case(index, operands, [_all_residuals(p.forward, count, own, i) for i, p in enumerate(parts)])
        residuals = results[count:]
        linear = [
            _tangent_branch(p, count, len(operands), own, i, out_flags, branches[0].output_types) for i, p in enumerate(parts)
        ]
        values, pushed = results[:count], _case(index, [*operands, *residuals, *directions], linear)
    rest = iter(pushed)
    return values, [next(rest) if flag else None for flag in out_flags]


def _either(flags: Sequence[Flags]) -> list[bool]:
    return [any(column) for column in zip(*flags, strict=True)]


def _residuals_kept(forward: Program, residuals: Sequence[Var]) -> list[Var]:
    """Those that are not operands anyway."""
    return [r for r in residuals if r not in forward.inputs]


def _all_residuals(forward: Program, count: int, own: Sequence[Sequence[Var]], place: int) -> Program:
    """One branch giving the residuals of all: its own, and zeros in place of the others'."""
    with Builder(forward.name) as builder:
        inputs = [builder.input(v.type, v.hint) for v in forward.inputs]
        outputs = builder.inline(forward.with_outputs([*forward.outputs[:count], *own[place]]), inputs)
        residuals: list[Var] = []
        for i, group in enumerate(own):
            residuals += outputs[count:] if i == place else [zeros(v.type) for v in group]
        return builder.build([*outputs[:count], *residuals])


def _tangent_branch(
    part: Any, count: int, operand_count: int, own: Sequence[Sequence[Var]], place: int, out_flags: Flags, types: Types
) -> Program:
    """(operands, residuals of all branches, tangents) -> the wanted tangents."""
    forward, tangent = part.forward, part.tangent
    with Builder(tangent.name) as builder:
        env = {v: builder.input(v.type, v.hint) for v in forward.inputs}
        for i, group in enumerate(own):
            inputs = [builder.input(v.type) for v in group]
            env.update(zip(group, inputs, strict=True) if i == place else ())
        residuals = [env[r] for r in forward.outputs[count:]]
        directions = [builder.input(v.type) for v in tangent.inputs[len(residuals) :]]
        rest = iter(builder.inline(tangent, [*residuals, *directions]))
        pushed = [next(rest) if flag else None for flag in part.flags]
        return builder.build([t or zeros(type) for t, type, flag in zip(pushed, types, out_flags, strict=True) if flag])


def _transpose(
    cotangents: Sequence[Var | None], operands: Sequence[Var | None], in_types: Types, params: Params, backward: Any
) -> list[Var | None]:
    linear = [x is None for x in operands[1:]]
    assert operands[0] is not None, "a tangent is no index"
    primals = [x for x in operands[1:] if x is not None]
    directions = [ct for ct in cotangents if ct is not None]
    rest = iter(_case(operands[0], [*primals, *directions], [backward(b, linear) for b in params["branches"]]))
    return [None, *(next(rest) if flag else None for flag in linear)]


# -- batch, prune


def _batch(
    operands: Sequence[Var], dims: Sequence[int | None], params: Params, batched: Callable[..., Program]
) -> tuple[list[Var], list[int | None]]:
    """With an index for each member all branches are computed and chosen from; else one branch runs for all."""
    size, branches = batch_size(operands, dims), params["branches"]
    placed = [x if d is None else move(x, d, 0) for x, d in zip(operands, dims, strict=True)]
    flags = [d is not None for d in dims]
    inside = [0 if flag else None for flag in flags[1:]]
    if flags[0]:
        return _each_member(placed[0], placed[1:], inside, size, branches, batched)
    out_flags = _either([batched_outputs(b, inside, size, batched) for b in branches])
    places = [0 if flag else None for flag in out_flags]
    return _case(placed[0], placed[1:], [batched(b, inside, size, places) for b in branches]), places


def _each_member(
    index: Var,
    operands: Sequence[Var],
    dims: Sequence[int | None],
    size: int,
    branches: Sequence[Program],
    batched: Callable[..., Program],
) -> tuple[list[Var], list[int | None]]:
    """All branches for all members, each member's results from the branch of its index."""
    require_no_io("cond", branches)
    takers = _takers(index, len(branches))
    outs = [0] * len(branches[0].outputs)
    members: list[Sequence[Var]] = []
    for branch, taken in zip(branches, takers, strict=True):
        whole = batched(guarded(branch, [d is not None for d in dims]), [0, None, *dims], size, outs)
        some = reduce_or(taken, axes=(0,))
        members.append(current_builder().inline(whole, [taken, some, *operands]))
    return [_chosen(takers, values) for values in zip(*members, strict=True)], list(outs)


def _takers(index: Var, count: int) -> list[Var]:
    """For each branch, which members take it; the last is taken by all that no other is for."""
    masks = [compare(index, full_like(index, i), direction="EQ") for i in range(count - 1)]
    if not masks:
        return [full(index.type.with_dtype(np.dtype(np.bool_)), True)]
    return [*masks, not_(functools.reduce(or_, masks))]


def _chosen(takers: Sequence[Var], values: Sequence[Var]) -> Var:
    """Each member's value from the branch that it takes."""
    result = values[-1]
    for taken, value in zip(takers[:-1], values[:-1], strict=True):
        result = select(broadcast_in_dim(taken, shape=value.shape, dimensions=(0,)), value, result)
    return result


def _prune(params: Params, used: Flags, dce: Callable[[Program], Program]) -> tuple[list[int], list[int], Params]:
    branches = [dce(b.with_outputs(chosen(b.outputs, used))) for b in params["branches"]]
    read = [{v for eqn in b.eqns for v in eqn.inputs} | set(b.outputs) for b in branches]
    needed = [
        any(b.inputs[i] in r for b, r in zip(branches, read, strict=True)) for i in range(len(branches[0].inputs))
    ]
    branches = [b.with_inputs(chosen(b.inputs, needed)) for b in branches]
    operands = [0, *(i + 1 for i, flag in enumerate(needed) if flag)]
    return operands, [i for i, flag in enumerate(used) if flag], {**params, "branches": tuple(branches)}


def _samples() -> Iterator[Sample]:
    def branch(types: Sequence[str], write: Callable[..., Sequence[Var]]) -> Program:
        with Builder("branch") as builder:
            return builder.build(write(*[builder.input(TensorType.parse(t)) for t in types]))

    def indices(generator: np.random.Generator, position: int, type: TensorType) -> np.ndarray[Any, Any]:
        if position == 0:
            return np.asarray(generator.integers(-1, 4), np.int32)
        return generator.integers(-4, 5, type.shape).astype(type.dtype)

    for dtype in ("f32", "i32"):
        types = [f"{dtype}[6,4]", f"{dtype}[6,4]"]
        branches = [
            branch(types, lambda a, b: [add(a, b), b]),
            branch(types, lambda a, b: [multiply(a, b), a]),
            branch(types, lambda a, b: [negate(b), b]),
        ]
        for count in (1, 2, 3):
            operands = tuple(map(TensorType.parse, ("i32[]", *types)))
            yield Sample(operands, {"branches": tuple(branches[:count])}, indices)


case = Op(
    name="case",
    type_rule=_type,
    factor_rule=whole_rule,
    evaluate=evaluated(_steps),
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    transpose=_transpose,
    regions=_regions,
    steps=_steps,
    prune=_prune,
)

