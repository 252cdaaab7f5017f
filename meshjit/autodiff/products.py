"""jvp, vjp and linearize: Jacobians times vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshjit import numpy as mnp, tree
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import Call, Function, call_of, direction_of, inexact, no_derivative, run, value_leaves
from meshjit.transform.jvp import jvp as jvp_program, linearize as linearize_program
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
    primals = tuple(primals)
    call = call_of(fun, primals, {}, "jvp")
    directions = _directions(call, primals, tuple(tangents), "jvp")
    program, flags = jvp_program(call.traced.program, call.padded(inexact(call.input_types)))
    weak = [*call.traced.out_weak, *(w for w, flag in zip(call.traced.out_weak, flags, strict=True) if flag)]
    results = run(program, [*call.inputs, *directions], weak, call.traced.mesh)
    count = len(call.traced.program.outputs)
    value = tree.unflatten(call.traced.out_tree, results[:count])
    derivative = tree.unflatten(call.traced.out_tree, _with_zeros(call, flags, iter(results[count:])))
    value_leaves(call.traced, has_aux, "jvp")
    return (value[0], derivative[0], value[1]) if has_aux else (value, derivative)


def _directions(call: Call, primals: tuple[Any, ...], tangents: tuple[Any, ...], what: str) -> list[Any]:
    """The tangents of the inexact arguments, checked."""
    flat, structure = tree.flatten((tangents, {}))
    if structure != call.in_tree:
        raise TypeError(
            f"{what}: primals and tangents differ in structure: {tree.structure(primals)} and {tree.structure(tangents)}"
        )
    types = call.input_types
    return [
        direction_of(t, type, what, "tangent", "its primal")
        for t, type, has in zip(flat, types, inexact(types), strict=True)
        if has
    ]


def _with_zeros(call: Call, flags: Sequence[bool], found: Iterator[Any]) -> list[Any]:
    """One tangent per output: zeros where none flows."""
    outputs = call.traced.program.outputs
    return [next(found) if f else mnp.zeros(v.shape, v.dtype) for f, v in zip(flags, outputs, strict=True)]


@boundary
def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(value, the derivative at `primals` as a function of the tangents) (`jax.linearize`).

    What does not depend on the tangents is computed once; with has_aux (value, function, aux) is given.
    """
    call = call_of(fun, primals, {}, "linearize")
    linear = linearize_program(call.traced.program, call.padded(inexact(call.input_types)))
    count = len(call.traced.program.outputs)
    kept = len(linear.forward.outputs) - count
    results = run(linear.forward, call.inputs, [*call.traced.out_weak, *[False] * kept], call.traced.mesh)
    value, residuals = tree.unflatten(call.traced.out_tree, results[:count]), results[count:]
    value_leaves(call.traced, has_aux, "linearize")

    def derivative(*tangents: Any) -> Any:
        directions = _directions(call, primals, tangents, "linearize")
        weak = [w for w, flag in zip(call.traced.out_weak, linear.flags, strict=True) if flag]
        found = iter(run(linear.tangent, [*residuals, *directions], weak, call.traced.mesh))
        result = tree.unflatten(call.traced.out_tree, _with_zeros(call, linear.flags, found))
        return result[0] if has_aux else result

    return (value[0], derivative, value[1]) if has_aux else (value, derivative)


@boundary
def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(value, function from cotangents of the value to a tuple of those of the primals) (`jax.vjp`).

    The function may be called often; integer primals get zeros of dtype float0. With has_aux fun returns (value, aux)
    and (value, function, aux) is given.
    """
    call = call_of(fun, primals, {}, "vjp")
    wrt = inexact(call.input_types)
    value_count = value_leaves(call.traced, has_aux, "vjp")
    pulled = vjp_program(call.traced.program, call.padded(wrt), value_count)
    count = len(call.traced.program.outputs)
    kept = len(pulled.forward.outputs) - count
    results = run(pulled.forward, call.inputs, [*call.traced.out_weak, *[False] * kept], call.traced.mesh)
    value, residuals = tree.unflatten(call.traced.out_tree, results[:count]), results[count:]
    wanted = tree.structure(value[0] if has_aux else value)
    weak = [w for w, flag in zip(call.weak, wrt, strict=True) if flag]

    def pull(cotangents: Any) -> Any:
        flat, structure = tree.flatten(cotangents)
        if structure != wanted:
            raise TypeError(
                f"vjp: the function returned {value_count} arrays, it was given {len(flat)} cotangents"
                f" in another structure\n  result: {wanted}\n  cotangents: {structure}"
            )
        given = [
            direction_of(flat[i], v.type, "vjp", "cotangent", "the result")
            for i, (v, takes) in enumerate(zip(call.traced.program.outputs, pulled.takes, strict=True))
            if takes
        ]
        found = iter(run(pulled.backward, [*residuals, *given], weak, call.traced.mesh))
        leaves = [next(found) if flag else no_derivative(t) for flag, t in zip(wrt, call.input_types, strict=True)]
        return tree.unflatten(call.in_tree, leaves)[0]

    return (value[0], pull, value[1]) if has_aux else (value, pull)
