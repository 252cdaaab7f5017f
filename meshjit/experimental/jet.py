"""Derivatives of high order along a curve, all at once, by power series (`jax.experimental.jet`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import call_of, run
from meshjit.core.promotion import is_python_number
from meshjit.core.types import is_inexact
from meshjit.missing import explain as _explain
from meshjit.transform.jvp import require_meaning
from meshjit.transform.taylor import taylor
from meshjit.trees import USERS, WORDS as tree

_explain(__name__)


@boundary
def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    factorial_scaled: bool = True,
    **_: Any,
) -> tuple[Any, Any]:
    """(fun(*primals), derivatives of order 1, 2, … of fun along a curve through `primals`), whose derivatives `series` has.

    primals: arrays, one for each argument of `fun`. series: for each of them its derivatives along the curve, as many for all:
    their number is the highest order. factorial_scaled: False means coefficients of power series, the derivatives over 1!, 2!, …
    Each array of the result has a list of its derivatives. The work grows with the square of the order where an op is linear in
    each operand, and with its cube otherwise; a loop's derivative of order k costs 2**k loops.

    Raises ValueError for series of different lengths, for what is no array, and for a term of another shape than its primal.
    Source: `jax.experimental.jet`.

        jet(mnp.sin, (0.5,), ((1.0, 0.0),)) = (sin(0.5), [cos(0.5), -sin(0.5)])
    """
    orders = {len(terms) for terms in series}
    if len(orders) != 1 or len(series) != len(primals):
        raise ValueError(
            f"jet terms have inconsistent lengths for different arguments: {len(primals)} primals, and series of"
            f" {', '.join(str(len(terms)) for terms in series) or 'no'} terms\n  fix: as many terms for each primal, with zeros"
        )
    (order,) = orders
    _check_arrays(primals, series)
    call = call_of(fun, tuple(primals), {}, "jet")
    scales = [math.factorial(k) if factorial_scaled else 1 for k in range(1, order + 1)]
    pairs = [(x, terms) for x, terms, flag in zip(call.arguments, series, call.wrt, strict=True) if flag]
    operands = [_term(t, x, n, k) for n, (x, terms) in enumerate(pairs) for k, t in zip(scales, terms, strict=True)]
    program, flags = taylor(call.traced.program, tuple(call.chosen), order)
    require_meaning(program)
    count = len(call.traced.program.outputs)
    is_weak = all(is_python_number(t) or getattr(t, "weak_type", False) for _, terms in pairs for t in terms)
    owners = [w for w, flag in zip(call.traced.out_weak, flags, strict=True) if flag for _ in scales]
    weak = [*call.traced.out_weak, *(w and is_weak for w in owners)]
    results = run(program, [*call.inputs, *operands], weak, call.traced.mesh)
    call.store(results[:count])
    rest = iter(results[count:])
    terms = [
        [_scaled(next(rest), k) for k in scales] if flag else [mnp.zeros(v.shape, v.dtype)] * order
        for v, flag in zip(call.traced.program.outputs, flags, strict=True)
    ]
    return call.value(results[:count]), tree.unflatten(call.value_tree, terms[: call.value_count])


def _check_arrays(primals: Sequence[Any], series: Sequence[Sequence[Any]]) -> None:
    for i, (x, terms) in enumerate(zip(primals, series, strict=True)):
        if not USERS.all_leaves([x]):
            raise ValueError(f"primal value at position {i} is not an array")
        for j, term in enumerate(terms):
            if not USERS.all_leaves([term]):
                raise ValueError(f"term {j} for argument {i} is not an array")


def _term(value: Any, primal: Any, position: int, factorial: int) -> Any:
    """A coefficient of the power series, in the primal's dtype."""
    term = mnp.asarray(value, primal.type.dtype)
    if term.shape != primal.type.shape:
        raise ValueError(
            f"jet: a term for argument {position} has shape {term.shape}, its primal {primal.type.shape}\n"
            "  fix: numpy.broadcast_to(term, primal.shape)"
        )
    return term if factorial == 1 else term / np.asarray(factorial, primal.type.dtype)


def _scaled(term: Any, factorial: int) -> Any:
    return term if factorial == 1 or not is_inexact(term.dtype) else term * float(factorial)


def jet2(fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]]) -> tuple[Any, Any]:
    """`jet` of coefficients of power series."""
    return jet(fun, primals, series, factorial_scaled=False)
