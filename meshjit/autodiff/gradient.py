"""grad and value_and_grad: derivatives of functions with one real (or holomorphic) number as their result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import Call, Function, call_of, check_function, gradients, no_reduce_axes, run
from meshjit.core.types import is_inexact
from meshjit.trace import line_of, user_source
from meshjit.trace.names import function_name, wraps
from meshjit.transform.transpose import gradient


def grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Function:  # fmt: skip
    """The gradient of a scalar function with respect to the positional arguments `argnums` (`jax.grad`).

    Args:
      fun: returns a real floating number, or (number, aux) with has_aux; with holomorphic a complex one.
      argnums: an int, or several for a tuple of gradients; negative ones count from the end.
      allow_int: integer arguments get zeros of dtype float0 instead of an error.
      reduce_axes: JAX's from before, no axes; NotImplementedError for any.

    Returns: a function with fun's arguments that gives the gradient, a tree like the argument; with has_aux
    (gradient, aux). The gradient of a real function of complex x + iy is dx - i dy, as in JAX.
    """
    no_reduce_axes(reduce_axes, "grad")
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @boundary
    @wraps(fun)
    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return gradient_of


def value_and_grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Function:  # fmt: skip
    """(value, gradient) at once (`jax.value_and_grad`); ((value, aux), gradient) with has_aux. Arguments as for grad."""
    check_function(fun, "grad")
    no_reduce_axes(reduce_axes, "value_and_grad")

    @boundary
    @wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        positions = positions_of(fun, argnums, len(args), "grad")
        call = call_of(fun, args, kwargs, "grad", distinct(positions), has_aux)
        _check_inputs(call, holomorphic, allow_int)
        _check_result(call, holomorphic)
        results = _run_gradient(call)
        outputs, rest = results[: len(call.traced.program.outputs)], iter(results[len(call.traced.program.outputs) :])
        trees = gradients(call, rest)
        chosen = dict(zip(distinct(positions), trees, strict=True))
        slope = chosen[positions[0]] if isinstance(argnums, int | np.integer) else tuple(chosen[p] for p in positions)
        value = call.with_aux(outputs, call.value(outputs))
        return (value if has_aux else value[0]), slope

    return value_and_gradient


def positions_of(fun: Function, argnums: int | Sequence[int], count: int, what: str) -> list[int]:
    """argnums counted from the front; ValueError for one that the call does not have."""
    numbers = [argnums] if isinstance(argnums, int | np.integer) else list(argnums)
    for n in numbers:
        if not isinstance(n, int | np.integer):
            raise TypeError(f"{what} of {function_name(fun)}: argnums must be ints, got {argnums!r}")
        if not -count <= n < count:
            raise (TypeError if what == "grad" and n >= 0 else ValueError)(
                f"{what} of {function_name(fun)}: argnums has {n}, but it was called with {count} positional arguments\n"
                f"  at {line_of(user_source())}\n  fix: pass what is differentiated by position, and count from 0"
            )
    return [int(n) % count for n in numbers]


def distinct(positions: Sequence[int]) -> list[int]:
    """Each position once."""
    return list(dict.fromkeys(positions))


def _check_inputs(call: Call, holomorphic: bool, allow_int: bool) -> None:
    for argument, flag in zip(call.arguments, call.wrt, strict=True):
        type, name = argument.type, argument.name
        if not flag and not allow_int:
            raise TypeError(
                f"grad needs floating or complex arguments, but {name} is {type}\n"
                f"  fix: pass {name} as a float (x.astype(float)), leave it out of argnums, or set allow_int=True"
            )
        if holomorphic and type.dtype.kind != "c":
            raise TypeError(
                f"grad of a real argument {name} {type} with holomorphic=True, which needs complex arguments\n"
                f"  fix: leave holomorphic out, or pass {name} as a complex array"
            )


def _check_result(call: Call, holomorphic: bool) -> None:
    name, count = call.traced.program.name, call.value_count
    first = call.traced.program.outputs[0].type if count == 1 else None
    if first is None or first.shape != ():
        shown = first if first is not None else f"{count} arrays" if count else "no array"
        raise TypeError(
            f"gradient only defined for scalar-output functions; {name} returned {shown}\n"
            f"  at {line_of(user_source())}\n"
            "  fix: reduce it (mnp.mean, mnp.sum), use has_aux=True for other results, or jacrev"
        )
    if not is_inexact(first.dtype):
        raise TypeError(f"gradient needs a real floating result; {name} returned {first}")
    if (first.dtype.kind == "c") != holomorphic:
        fix = "return mnp.real or mnp.abs of it, or set holomorphic=True" if not holomorphic else "leave holomorphic out"
        expected = "a complex" if holomorphic else "a real floating"
        raise TypeError(f"gradient needs {expected} result; {name} returned {first}\n  fix: {fix}")


def _run_gradient(call: Call) -> list[Any]:
    """Forward and backward in one, with 1 as the value's cotangent; aux has none. What is written to refs is stored."""
    value = call.traced.program.outputs[0]
    seed = np.ones(value.shape, value.dtype)
    program = gradient(call.traced.program, call.chosen_back, 1, call.known(seed))
    weak = [*call.traced.out_weak, *call.weak]
    types = [*[None] * len(call.traced.out_weak), *call.types_back]
    results = run(program, [*call.inputs, seed], weak, call.traced.mesh, types)
    call.store(results[: len(call.traced.program.outputs)])
    return call.slots.taken(results, program)
