"""What transformations make of a scan: its derivative, the derivative backwards, many scans at once, fewer results.

Derivatives for reverse mode are two scans, of which only the second depends on tangents:

    forward   carries, ys, and every value of the body that the derivative needs, stacked over the iterations
    tangent   linear in carried and sliced tangents; reads the stacked values as xs

What the derivative needs and is the same in every iteration is not stacked: it is an operand of the second scan, made
outside of the loop. Forward mode alone is one scan that carries values and tangents together, and stacks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.core.op import REGISTRY, Params, Types
from meshjit.core.program import Builder, Eqn, Program, Var, current_builder
from meshjit.core.region import depending
from meshjit.core.types import is_inexact
from meshjit.ops.base.batching import batch_size, insert, move
from meshjit.ops.base.constants import zeros
from meshjit.ops.control.nested import Flags, batched_outputs, chosen, reached, with_tangents


def parts(params: Params, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Operands of the scan, or inputs of its body, as (consts, carries, xs)."""
    first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
    return list(values[:first]), list(values[first:second]), list(values[second:])


def _scan(body: Program, consts: Sequence[Var], carry: Sequence[Var], xs: Sequence[Var], params: Params) -> list[Var]:
    settings = {name: params[name] for name in ("length", "reverse", "unroll")}
    counts = {"num_consts": len(consts), "num_carry": len(carry)}
    results = current_builder().emit(REGISTRY["scan"], [*consts, *carry, *xs], {"body": body, **settings, **counts})
    return list(results)


# -- derivative


def differentiate_scan(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    """(results, their tangents); see the module's text."""
    flags = _carried_flags([t is not None for t in tangents], params, derivative)
    directions = [t or zeros(x.type) for x, t, flag in zip(primals, tangents, flags, strict=True) if flag]
    write = _two_scans if derivative.splits else _joint_scan
    results, pushed, out_flags = write(primals, directions, flags, params, derivative)
    rest = iter(pushed)
    return results, [next(rest) if flag else None for flag in out_flags]


def _carried_flags(flags: list[bool], params: Params, derivative: Any) -> list[bool]:
    """A carry has a tangent if its first value has one or any iteration gives it one."""
    first, count, body = params["num_consts"], params["num_carry"], params["body"]
    flags = [f and is_inexact(v.dtype) for f, v in zip(flags, body.inputs, strict=True)]
    while True:
        outs = derivative.flags(body, flags)[:count]
        grown = [a or b for a, b in zip(flags[first : first + count], outs, strict=True)]
        if grown == flags[first : first + count]:
            return flags
        flags[first : first + count] = grown


def _joint_scan(
    primals: Sequence[Var], tangents: Sequence[Var], flags: Flags, params: Params, derivative: Any
) -> tuple[list[Var], list[Var], list[bool]]:
    body, count = params["body"], params["num_carry"]
    joint, out_flags = derivative.joint(body, flags)
    _, carry_flags, _ = parts(params, flags)
    tangent_flags = [*carry_flags, *out_flags[count:]]
    joint = with_tangents(joint, len(body.outputs), out_flags, tangent_flags)
    sides = parts(params, range(len(primals)))
    places = [p for p, flag in enumerate(flags) if flag]

    def both(group: Sequence[int], own: Sequence[Any], other: Sequence[Any]) -> list[Any]:
        return [*(own[i] for i in group), *(t for p, t in zip(places, other, strict=True) if p in group)]

    inputs, in_tangents = joint.inputs[: len(primals)], joint.inputs[len(primals) :]
    outputs, out_tangents = joint.outputs[: len(body.outputs)], joint.outputs[len(body.outputs) :]
    carried = sum(carry_flags)
    joint = joint.with_inputs([v for side in sides for v in both(side, inputs, in_tangents)]).with_outputs(
        [*outputs[:count], *out_tangents[:carried], *outputs[count:], *out_tangents[carried:]]
    )
    consts, carry, xs = (both(side, primals, tangents) for side in sides)
    results = _scan(joint, consts, carry, xs, params)
    pushed = [*results[count : count + carried], *results[count + carried + len(outputs) - count :]]
    values = [*results[:count], *results[count + carried : count + carried + len(outputs) - count]]
    return values, pushed, tangent_flags


def _two_scans(
    primals: Sequence[Var], tangents: Sequence[Var], flags: Flags, params: Params, derivative: Any
) -> tuple[list[Var], list[Var], list[bool]]:
    body, count = params["body"], params["num_carry"]
    cut = derivative.parts(body, flags)
    consts, carry, xs = parts(params, primals)
    own_consts, _, own_xs = parts(params, cut.forward.inputs)
    _, carry_flags, _ = parts(params, flags)
    residuals = cut.forward.outputs[len(body.outputs) :]
    changing = depending(cut.forward.eqns, cut.forward.inputs[len(consts) :])
    stacked = [r for r in dict.fromkeys(residuals) if r in changing and r not in own_xs]
    fixed = [r for r in dict.fromkeys(residuals) if r not in changing]
    forward = cut.forward.with_outputs([*cut.forward.outputs[: len(body.outputs)], *stacked])
    results = _scan(forward, consts, carry, xs, params)
    outside = dict(zip([*own_consts, *own_xs], [*consts, *xs], strict=True))
    outside.update(zip(stacked, results[len(body.outputs) :], strict=True))
    outside.update(zip(fixed, _computed(cut.forward, fixed, own_consts, consts), strict=True))

    tangent_flags = [*carry_flags, *cut.flags[count:]]
    tangent = _tangent_body(cut.tangent, body, cut.flags, tangent_flags)
    own_residuals, own_tangents = tangent.inputs[: len(residuals)], tangent.inputs[len(residuals) :]
    is_fixed = [r not in changing for r in residuals]
    is_x = [not flag for flag in is_fixed]
    of_consts, of_carry, of_xs = parts(params, _numbered(flags))

    def of(group: Sequence[int | None], values: Sequence[Any]) -> list[Any]:
        return [values[i] for i in group if i is not None]

    tangent = tangent.with_inputs([
        *chosen(own_residuals, is_fixed), *of(of_consts, own_tangents), *of(of_carry, own_tangents),
        *chosen(own_residuals, is_x), *of(of_xs, own_tangents),
    ])  # fmt: skip
    outer = [outside[r] for r in residuals]
    pushed = _scan(
        tangent,
        [*chosen(outer, is_fixed), *of(of_consts, tangents)],
        of(of_carry, tangents),
        [*chosen(outer, is_x), *of(of_xs, tangents)],
        params,
    )
    return results[: len(body.outputs)], pushed, tangent_flags


def _tangent_body(tangent: Program, body: Program, flags: Flags, out_flags: Flags) -> Program:
    """The tangent part with zeros for carries whose tangent an iteration does not touch."""
    with Builder(tangent.name) as builder:
        rest = iter(builder.inline(tangent, [builder.input(v.type, v.hint) for v in tangent.inputs]))
        tangents = [next(rest) if flag else None for flag in flags]
        types = body.output_types
        return builder.build([t or zeros(type) for t, type, flag in zip(tangents, types, out_flags, strict=True) if flag])


def _numbered(flags: Flags) -> list[int | None]:
    """The place of each marked one among the marked."""
    numbers = iter(range(len(flags)))
    return [next(numbers) if flag else None for flag in flags]


def _computed(program: Program, values: Sequence[Var], inputs: Sequence[Var], operands: Sequence[Var]) -> list[Var]:
    """The values `wanted` of the program, which depend on these inputs only, computed in the current builder."""
    needed, kept = set(values), list[Eqn]()
    for eqn in reversed(program.eqns):
        if any(v in needed for v in eqn.outputs):
            needed.update(eqn.inputs)
            kept.append(eqn)
    part = Program(program.name, tuple(inputs), tuple(reversed(kept)), tuple(values))
    return current_builder().inline(part, operands)


# -- transpose


def transpose_scan(
    cotangents: Sequence[Var | None], operands: Sequence[Var | None], in_types: Types, params: Params, backward: Any
) -> list[Var | None]:
    """The linear scan from the last iteration to the first. Cotangents of consts are summed in a carry."""
    linear = carried_along([x is None for x in operands], params)
    lin_consts, lin_carry, lin_xs = parts(params, linear)
    consts, carry, xs = parts(params, operands)
    if not all(lin_carry):
        raise TypeError(
            "scan: a carry that does not depend on the linear inputs stands beside ones that do\n"
            "  fix: use vjp, or compute that carry in a scan of its own"
        )
    pulled = backward(params["body"], linear)
    known, given = pulled.inputs[: -len(cotangents)], pulled.inputs[len(pulled.inputs) - len(cotangents) :]
    known_consts, known_xs = known[: len(consts) - sum(lin_consts)], known[len(consts) - sum(lin_consts) :]
    count = len(carry)
    with Builder(pulled.name) as builder:
        env = {v: builder.input(v.type, v.hint) for v in known_consts}
        sums = [builder.input(t) for t in chosen(in_types[: len(consts)], lin_consts)]
        env.update((v, builder.input(v.type)) for v in given[:count])
        env.update((v, builder.input(v.type, v.hint)) for v in (*known_xs, *given[count:]))
        terms = builder.inline(pulled, [env[v] for v in pulled.inputs])
        total = [REGISTRY["add"](a, b) for a, b in zip(sums, terms, strict=False)]
        body = builder.build([*total, *terms[len(sums) :]])
    full = [ct or zeros(v.type) for ct, v in zip(cotangents, params["body"].outputs[:count], strict=False)]
    full += [ct for ct in cotangents[count:] if ct is not None]
    results = _scan(
        body,
        chosen(consts, [not flag for flag in lin_consts]),
        [*(zeros(t) for t in chosen(in_types[: len(consts)], lin_consts)), *full[:count]],
        [*chosen(xs, [not flag for flag in lin_xs]), *full[count:]],
        {**params, "reverse": not params["reverse"]},
    )
    rest = iter(results)
    terms = [next(rest) if flag else None for flag in linear]
    return [ct if x is None else None for ct, x in zip(terms, operands, strict=True)]


def carried_along(flags: list[bool], params: Params, outputs: Callable[[Program, Flags], list[bool]] = reached) -> list[bool]:
    """The body's inputs that depend on operands whose flag is set: a carry may from the second iteration on, although it
    begins as something that does not. `outputs` says which outputs depend on which inputs."""
    first, count = params["num_consts"], params["num_carry"]
    while True:
        outs = outputs(params["body"], flags)[:count]
        grown = [a or b for a, b in zip(flags[first : first + count], outs, strict=True)]
        if grown == flags[first : first + count]:
            return flags
        flags[first : first + count] = grown


# -- batch, prune


def batch_scan(
    operands: Sequence[Var], dims: Sequence[int | None], params: Params, batched: Callable[..., Program]
) -> tuple[list[Var], list[int | None]]:
    """A carry is batched if its first value is or anything it comes to depend on; all batch dims come first."""
    body, count, first = params["body"], params["num_carry"], params["num_consts"]
    size = batch_size(operands, dims)

    def outputs(body: Program, flags: Flags) -> list[bool]:
        return batched_outputs(body, [0 if flag else None for flag in flags], size, batched)

    flags = carried_along([d is not None for d in dims], params, outputs)
    outs = outputs(body, flags)
    inside = [0 if flag else None for flag in flags]
    outs = [*flags[first : first + count], *outs[count:]]
    program = batched(body, inside, size, [0 if flag else None for flag in outs])
    arguments: list[Var] = []
    for i, (x, dim, flag) in enumerate(zip(operands, dims, flags, strict=True)):
        place = 1 if i >= first + count else 0  # dim 0 of xs is the loop's
        arguments.append(x if not flag else insert(x, place, size) if dim is None else move(x, dim, place))
    results = _scan(program, *parts(params, arguments), params)
    return results, [None if not flag else 0 if i < count else 1 for i, flag in enumerate(outs)]


def prune_scan(params: Params, used: Flags, dce: Callable[[Program], Program]) -> tuple[list[int], list[int], Params]:
    """Without ys that nobody reads, carries that only feed themselves, and operands that the rest does not need."""
    body, count, first = params["body"], params["num_carry"], params["num_consts"]
    live = list(used[:count])
    while True:
        kept = [*chosen(body.outputs[:count], live), *chosen(body.outputs[count:], used[count:])]
        small = dce(body.with_outputs(kept))
        read = {v for eqn in small.eqns for v in eqn.inputs} | set(small.outputs)
        grown = [flag or body.inputs[first + i] in read for i, flag in enumerate(live)]
        if grown == live:
            break
        live = grown
    results = [*(i for i in range(count) if live[i]), *(i for i in range(count, len(used)) if used[i])]
    carries = range(first, first + count)
    operands = [i for i, v in enumerate(body.inputs) if (live[i - first] if i in carries else v in read)]
    small = small.with_inputs([body.inputs[i] for i in operands])
    counts = {"num_consts": sum(i < first for i in operands), "num_carry": sum(live)}
    return operands, results, {**params, "body": small, **counts}


