"""jvp, vjp and linearize: Jacobians times vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshjit import numpy as mnp, tree
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import Call, Function, call_of, direction_of, gradients, run
from meshjit.transform.jvp import jvp as jvp_program, linearize as linearize_program, require_meaning
from meshjit.transform.transpose import vjp as vjp_program


@boundary
def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """(value, derivative of fun at `primals` in the direction `tangents`) (`jax.jvp`).

    Both are tuples or lists of one structure; with has_aux fun returns (value, aux) and so (value, derivative, aux) is
    given. TypeError where structures or dtypes differ, ValueError where shapes do.
    """
    if not (isinstance(primals, tuple | list) and isinstance(tangents, tuple | list)):
        kinds = f"{type(primals).__name__} and {type(tangents).__name__}"
        raise TypeError(f"jvp: primals and tangents must be tuples or lists of the arguments, got {kinds}")
    call = call_of(fun, tuple(primals), {}, "jvp", has_aux=has_aux)
    directions = _directions(call, tuple(tangents), "jvp")
    program, flags = jvp_program(call.traced.program, call.chosen)
    require_meaning(program)
    weak = [*call.traced.out_weak, *(w for w, flag in zip(call.traced.out_weak, flags, strict=True) if flag)]
    results = run(program, [*call.inputs, *directions], weak, call.traced.mesh)
    count = len(call.traced.program.outputs)
    outputs = results[:count]
    derivative = call.value(_with_zeros(call, flags, iter(results[count:])))
    return call.with_aux(outputs, call.value(outputs), derivative)


def _directions(call: Call, tangents: tuple[Any, ...], what: str) -> list[Any]:
    """The tangents of the operands, checked."""
    flat, structure = tree.flatten(tangents)
    if structure != call.in_tree:
        raise TypeError(f"{what}: primals and tangents differ in structure: {call.in_tree} and {structure}")
    return [
        direction_of(t, a.type, what, "tangent", "its primal")
        for t, a, flag in zip(flat, call.arguments, call.wrt, strict=True)
        if flag
    ]


def _with_zeros(call: Call, flags: Sequence[bool], tangents: Iterator[Any]) -> list[Any]:
    """One tangent per output: zeros where none flows."""
    outputs = call.traced.program.outputs
    return [next(tangents) if f else mnp.zeros(v.shape, v.dtype) for f, v in zip(flags, outputs, strict=True)]


@boundary
def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(value, the derivative at `primals` as a function of the tangents) (`jax.linearize`).

    What does not depend on the tangents is computed once; with has_aux (value, function, aux) is given.
    """
    return linearized(call_of(fun, primals, {}, "linearize", has_aux=has_aux))


def linearized(call: Call) -> tuple[Any, ...]:
    """(value, function of the tangents of the chosen arguments), and aux where there is one."""
    linear = linearize_program(call.traced.program, call.chosen)
    count = len(call.traced.program.outputs)
    kept = len(linear.forward.outputs) - count
    results = run(linear.forward, call.inputs, [*call.traced.out_weak, *[False] * kept], call.traced.mesh)
    outputs, residuals = results[:count], results[count:]

    def derivative(*tangents: Any) -> Any:
        require_meaning(linear.tangent)
        directions = _directions(call, tangents, "linearize")
        weak = [w for w, flag in zip(call.traced.out_weak, linear.flags, strict=True) if flag]
        results = iter(run(linear.tangent, [*residuals, *directions], weak, call.traced.mesh))
        return call.value(_with_zeros(call, linear.flags, results))

    return call.with_aux(outputs, call.value(outputs), derivative)


@boundary
def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(value, function from cotangents of the value to a tuple of those of the primals) (`jax.vjp`).

    The function may be called often; integer primals get zeros of dtype float0. With has_aux fun returns (value, aux)
    and (value, function, aux) is given.
    """
    return pulled_back(call_of(fun, primals, {}, "vjp", has_aux=has_aux))


def pulled_back(call: Call) -> tuple[Any, ...]:
    """(value, function from its cotangents to those of the chosen arguments), and aux where there is one."""
    pulled = vjp_program(call.traced.program, call.chosen, call.value_count)
    count = len(call.traced.program.outputs)
    kept = len(pulled.forward.outputs) - count
    results = run(pulled.forward, call.inputs, [*call.traced.out_weak, *[False] * kept], call.traced.mesh)
    outputs, residuals = results[:count], results[count:]

    def pull(cotangents: Any) -> Any:
        flat, structure = tree.flatten(cotangents)
        if structure != call.value_tree:
            raise ValueError(
                f"vjp: the function returned {call.value_count} arrays, it was given {len(flat)} cotangents"
                f" in another structure\n  result: {call.value_tree}\n  cotangents: {structure}"
            )
        types = call.traced.program.output_types
        directions = [direction_of(flat[i], types[i], "vjp", "cotangent", "the result") for i, t in enumerate(pulled.takes) if t]
        return gradients(call, iter(run(pulled.backward, [*residuals, *directions], call.weak, call.traced.mesh)))

    return call.with_aux(outputs, call.value(outputs), pull)
