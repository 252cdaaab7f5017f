"""custom_linear_solve and custom_root: solutions whose derivatives are those of the equation, not of how it was solved.

    A x = b                 dx = A⁻¹ (db - dA x);  backwards  b̄ = A⁻ᵀ x̄
    f(θ, x) = 0             dx = -(∂f/∂x)⁻¹ ∂f/∂θ dθ
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit import numpy as mnp
from meshjit.api.tracebacks import boundary
from meshjit.core.types import is_inexact
from meshjit.lax.custom_jvp import custom_jvp
from meshjit.lax.custom_rules import Function
from meshjit.lax.linear import Closed, closed, linear_call, linear_transpose, no_tangents
from meshjit.trace import argument_of, bind_program
from meshjit.trace.float0 import float0_zeros
from meshjit.transform.jvp import jvp, linearize, require_meaning
from meshjit.trees import WORDS as tree


@dataclass(frozen=True)
class _System:
    """A x = b: x -> A x, its transpose, and b -> x for both, with aux behind x; None where the way back was not given."""

    matvec: Closed
    vecmat: Closed | None
    solve: Closed
    transpose_solve: Closed | None
    size: int  # leaves of b

    def transposed(self) -> _System:
        assert self.vecmat is not None and self.transpose_solve is not None
        return _System(self.vecmat, self.matvec, self.transpose_solve, self.solve, self.size)


def _solution(system: _System, captured: Any, b: Sequence[Any], count: int | None = None) -> list[Any]:
    """x and aux, flat, or the first `count` of them. `captured` are the values that each part of the system closes over."""

    @custom_jvp
    def solution(captured: Any, b: Any) -> Any:
        return linear_call(lambda kept, b: system.solve.flat(kept[2], b)[:count], back, captured, b)

    def back(kept: Any, cotangent: Any) -> Any:
        if system.transpose_solve is None:
            raise TypeError("transpose_solve required for backwards mode automatic differentiation of custom_linear_solve")
        swapped = [kept[1], kept[0], kept[3], kept[2]]
        return _solution(system.transposed(), swapped, cotangent[: system.size], system.size)

    @solution.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (captured, b), (captured_dot, b_dot) = primals, tangents
        x = solution(captured, b)
        change = _derivative(system.matvec, captured[0], captured_dot[0], x[: system.size])
        right = [db - dax for db, dax in zip(b_dot, change, strict=True)]
        x_dot = _solution(system, captured, right, system.size)  # without aux, which is not linear in b
        return x, [*x_dot, *(_zero_of(y) for y in x[system.size :])]

    fixed = [captured[0], captured[1], *(no_tangents(part) for part in captured[2:])]
    return solution(fixed, list(b))


def _zero_of(x: Any) -> Any:
    return mnp.zeros_like(x) if is_inexact(argument_of(x).type.dtype) else float0_zeros(argument_of(x).type.shape)


def _derivative(part: Closed, captured: Sequence[Any], directions: Sequence[Any], x: Sequence[Any]) -> list[Any]:
    """How part(captured, x) changes as what it closed over does, x being fixed."""
    nonzero = [*(is_inexact(argument_of(c).type.dtype) for c in captured), *(False for _ in x)]
    program, flags = jvp(part.program, nonzero)
    require_meaning(program)
    given = [d for d, flag in zip(directions, nonzero, strict=False) if flag]
    results = bind_program(program, [*captured, *x, *given], None, part.mesh)
    rest = iter(results[len(flags) :])
    return [next(rest) if flag else _zero_of(y) for y, flag in zip(results, flags, strict=False)]


@boundary
def custom_linear_solve(
    matvec: Function,
    b: Any,
    solve: Callable[[Function, Any], Any],
    transpose_solve: Callable[[Function, Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """solve(matvec, b), the x with matvec(x) = b, and derivatives as that equation has them (`jax.lax.custom_linear_solve`).

    Args:
      matvec: a linear function of a tree like b, to a tree of the same structure and shapes.
      transpose_solve: the same as solve for the transpose of matvec, which it is given; needed for reverse mode, unless
        `symmetric`, where solve does.
      has_aux: solve gives (x, aux); aux has no derivative.

    TypeError for another structure than b's, ValueError for other shapes.
    """
    flat, structure = tree.flatten(b)
    transpose_solve = solve if transpose_solve is None and symmetric else transpose_solve
    whole = closed(matvec, b)
    _check_like(whole, flat, structure, "matvec", "b", False)
    solving = closed(lambda b: solve(matvec, b), b)
    _check_like(solving, flat, structure, "solve", "b", has_aux)
    vecmat, back = None, None
    if transpose_solve is not None:
        transpose = matvec if symmetric else lambda x: linear_transpose(matvec, b)(x)[0]
        vecmat = closed(transpose, b)
        back = closed(lambda b: transpose_solve(transpose, b), b)
        _check_like(back, flat, structure, "transpose_solve", "b", has_aux)
    parts = [whole, vecmat, solving, back]
    system = _System(*(part and part.bare for part in parts), size=len(flat))
    captured = [[] if part is None else part.captured for part in parts]
    return tree.unflatten(solving.out_tree, _solution(system, captured, flat))


def _check_like(part: Closed, flat: Sequence[Any], structure: Any, what: str, which: str, has_aux: bool) -> None:
    """A function of the user's gives a tree like the one it was given, with has_aux in front of an aux."""
    out_tree = part.out_tree
    if has_aux:
        pair = tree.structures(out_tree)
        if len(pair) != 2:
            raise TypeError(f"{what}() with has_aux must return a pair (solution, aux), it returned {out_tree}")
        out_tree = pair[0]
    if out_tree != structure:
        raise TypeError(f"{what}() output pytree structure must match {which}, got {out_tree} and {structure}.")
    shapes = [t.shape for t in part.program.output_types[: len(flat)]]
    expected = [argument_of(x).type.shape for x in flat]
    if shapes != expected:
        raise ValueError(f"{what}() output shapes must match {which}, got {shapes} and {expected}")


@boundary
def custom_root(
    f: Function,
    initial_guess: Any,
    solve: Callable[[Function, Any], Any],
    tangent_solve: Callable[[Function, Any], Any],
    has_aux: bool = False,
) -> Any:
    """solve(f, initial_guess), an x with f(x) = 0, with derivatives by the implicit function theorem with respect to what f
    closes over (`jax.lax.custom_root`).

    Args:
      tangent_solve: (g, y) -> the x with g(x) = y, g being f linearized at the root.
      has_aux: solve gives (x, aux); aux has no derivative.
    """
    flat, structure = tree.flatten(initial_guess)
    whole = closed(f, initial_guess)
    _check_like(whole, flat, structure, "f", "initial_guess", False)
    solving = closed(lambda guess: solve(f, guess), initial_guess)
    _check_like(solving, flat, structure, "solve", "initial_guess", has_aux)
    tangents = closed(lambda x, b: tangent_solve(_linearized(f, x), b), initial_guess, initial_guess)
    _check_like(tangents, flat, structure, "tangent_solve", "x", False)
    captured = [whole.captured, no_tangents(solving.captured), no_tangents(tangents.captured)]
    solution = _root(whole.bare, solving.bare, tangents.bare, len(flat))
    return tree.unflatten(solving.out_tree, solution(captured, no_tangents(flat)))


def _root(f: Closed, solving: Closed, tangents: Closed, size: int) -> Function:
    """(captured values of the three, guess) -> the root and aux, flat."""

    @custom_jvp
    def root(captured: Any, guess: Any) -> Any:
        return solving.flat(captured[1], guess)

    @root.defjvp
    def rule(primals: Any, directions: Any) -> Any:
        captured, guess = primals
        result = root(captured, guess)
        x = result[:size]
        change = _derivative(f, captured[0], directions[0][0], x)
        x_dot = [-t for t in tangents.flat(captured[2], [*x, *change])]
        return result, [*x_dot, *(_zero_of(y) for y in result[size:])]

    return root


def _linearized(f: Function, x: Any) -> Function:
    """The derivative of f at x, as a function of the direction."""
    part = closed(f, x)
    flat = tree.leaves(x)
    linear = linearize(part.program, [*(False for _ in part.captured), *(True for _ in flat)])
    require_meaning(linear.tangent)
    values = bind_program(linear.forward, [*part.captured, *flat], None, part.mesh)
    outs, kept = values[: len(linear.flags)], values[len(linear.flags) :]

    def along(direction: Any) -> Any:
        given = [mnp.asarray(d, argument_of(v).type.dtype) for d, v in zip(tree.leaves(direction), flat, strict=True)]
        rest = iter(bind_program(linear.tangent, [*kept, *given], None, part.mesh))
        slopes = [next(rest) if flag else _zero_of(y) for y, flag in zip(outs, linear.flags, strict=True)]
        return tree.unflatten(part.out_tree, slopes)

    return along
