"""grad and value_and_grad: derivatives of functions with one real (or holomorphic) number as their result."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import tree
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import Call, Function, call_of, check_function, no_derivative, run, value_leaves
from meshjit.core.types import is_inexact
from meshjit.trace import line_of, user_source
from meshjit.trace.program import function_name
from meshjit.transform.transpose import gradient


def grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False
) -> Function:
    """The gradient of a scalar function with respect to the positional arguments `argnums` (`jax.grad`).

    Args:
      fun: returns a real floating number, or (number, aux) with has_aux; with holomorphic a complex one.
      argnums: an int, or several for a tuple of gradients; negative ones count from the end.
      allow_int: integer arguments get zeros of dtype float0 instead of an error.

    Returns: a function with fun's arguments that gives the gradient, a tree like the argument; with has_aux
    (gradient, aux). The gradient of a real function of complex x + iy is dx - i dy, as in JAX.
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @boundary
    @functools.wraps(fun)
    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient_of


def value_and_grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False
) -> Function:
    """(value, gradient) at once (`jax.value_and_grad`); ((value, aux), gradient) with has_aux. Arguments as for grad."""
    check_function(fun, "grad")

    @boundary
    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        positions = positions_of(fun, argnums, len(args), "grad")
        call = call_of(fun, args, kwargs, "grad")
        asked = _marked(args, kwargs, positions)
        _check_inputs(call, asked, holomorphic, allow_int)
        _check_result(call, value_leaves(call.traced, has_aux, "grad"), holomorphic)
        wrt = [a and is_inexact(t.dtype) for a, t in zip(asked, call.input_types, strict=True)]
        results = _run_gradient(call, wrt)
        outputs = len(call.traced.program.outputs)
        value = tree.unflatten(call.traced.out_tree, results[:outputs])
        return value, _as_arguments(args, positions, call, wrt, results[outputs:], argnums)

    return value_and_gradient


def positions_of(fun: Function, argnums: int | Sequence[int], count: int, what: str) -> list[int]:
    """argnums counted from the front; ValueError for one that the call does not have."""
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for n in numbers:
        if not isinstance(n, int | np.integer):
            raise TypeError(f"{what} of {function_name(fun)}: argnums must be ints, got {argnums!r}")
        if not -count <= n < count:
            raise ValueError(
                f"{what} of {function_name(fun)}: argnums has {n}, but it was called with {count} positional arguments"
            )
    return [int(n) % count for n in numbers]


def _marked(args: tuple[Any, ...], kwargs: dict[str, Any], positions: Sequence[int]) -> list[bool]:
    flags: list[bool] = []
    for i, x in enumerate(args):
        flags += [i in positions] * len(tree.leaves(x))
    return flags + [False] * len(tree.leaves(kwargs))


def _check_inputs(call: Call, asked: Sequence[bool], holomorphic: bool, allow_int: bool) -> None:
    for flag, type, name in zip(asked, call.input_types, call.names, strict=True):
        if not flag:
            continue
        if not is_inexact(type.dtype) and not allow_int:
            raise TypeError(
                f"grad needs floating or complex arguments, but {name} is {type}\n"
                f"  fix: pass {name} as a float (x.astype(float)), or leave it out of argnums"
            )
        if holomorphic and type.dtype.kind != "c":
            raise TypeError(
                f"grad of a real argument {name} {type} with holomorphic=True, which needs complex arguments\n"
                f"  fix: leave holomorphic out, or pass {name} as a complex array"
            )


def _check_result(call: Call, count: int, holomorphic: bool) -> None:
    name = call.traced.program.name
    first = call.traced.program.outputs[0].type if count == 1 else None
    if first is None or first.shape != ():
        shown = first if first is not None else f"{count} arrays"
        raise TypeError(
            f"gradient only defined for scalar-output functions; {name} returned {shown}\n"
            f"  at {line_of(user_source())}\n"
            "  fix: reduce it (mnp.mean, mnp.sum), use has_aux=True for other results, or jacrev"
        )
    if not is_inexact(first.dtype):
        raise TypeError(f"gradient needs a real floating result; {name} returned {first}")
    if (first.dtype.kind == "c") != holomorphic:
        fix = "return mnp.real or mnp.abs of it, or set holomorphic=True" if not holomorphic else "leave holomorphic out"
        wanted = "a complex" if holomorphic else "a real floating"
        raise TypeError(f"gradient needs {wanted} result; {name} returned {first}\n  fix: {fix}")


def _run_gradient(call: Call, wrt: Sequence[bool]) -> list[Any]:
    """Forward and backward in one, with 1 as the value's cotangent; aux has none."""
    program = gradient(call.traced.program, call.padded(wrt), count=1)
    value = call.traced.program.outputs[0]
    weak = [*call.traced.out_weak, *(w for w, flag in zip(call.weak, wrt, strict=True) if flag)]
    return run(program, [*call.inputs, np.ones(value.shape, value.dtype)], weak, call.traced.mesh)


def _as_arguments(
    args: tuple[Any, ...],
    positions: Sequence[int],
    call: Call,
    wrt: Sequence[bool],
    found: Sequence[Any],
    argnums: int | Sequence[int],
) -> Any:
    """The flat gradients as trees like the arguments."""
    rest, flags, types = iter(found), iter(wrt), iter(call.input_types)
    trees: dict[int, Any] = {}
    for i, x in enumerate(args):
        leaves, structure = tree.flatten(x)
        marks = [(next(flags), next(types)) for _ in leaves]
        if i in positions:
            trees[i] = tree.unflatten(structure, [next(rest) if m else no_derivative(t) for m, t in marks])
    return trees[positions[0]] if isinstance(argnums, int) else tuple(trees[i] for i in positions)
