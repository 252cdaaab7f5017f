"""jvp, vjp and linearize: Jacobians times vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from meshjit.api import jit
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.directions import direction_of
from meshjit.autodiff.function import (
    Call,
    Function,
    Outcome,
    call_of,
    check_function,
    gradients,
    no_reduce_axes,
    run,
)
from meshjit.autodiff.gradient import positions_of
from meshjit.autodiff.into_refs import into_refs
from meshjit.core.keys import PRNGKeyArray
from meshjit.core.op import REGISTRY
from meshjit.core.program import Program
from meshjit.core.types import is_inexact
from meshjit.numpy.filling import zeros_of
from meshjit.trace import Argument, argument_of
from meshjit.trace.float0 import is_float0
from meshjit.trace.values import Known
from meshjit.transform.jvp import Linearized, jvp as jvp_program, linearize as linearize_program, require_meaning
from meshjit.transform.transpose import Pullback, backward, vjp as vjp_program
from meshjit.tree_views import tangents as tangents_of, users_treedef
from meshjit.trees import USERS, WORDS as tree


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
    directions = _directions(call, tuple(tangents), "jvp", placed=False)  # which brings them to their primals, as in JAX
    program, flags = jvp_program(call.traced.program, call.chosen, known=call.known(*directions))
    require_meaning(program)
    weak = [*call.traced.out_weak, *(w for w, flag in zip(call.traced.out_weak, flags, strict=True) if flag)]
    types = [*[None] * len(call.traced.out_weak), *_of_tangents(call, flags)]
    results = run(program, [*call.inputs, *directions], weak, call.traced.mesh, types)
    count = len(call.traced.program.outputs)
    outputs = results[:count]
    call.store(outputs)
    derivative = tangents_of(call.value_tree, _with_zeros(call, flags, iter(results[count:]))[: call.value_count])
    return call.with_aux(outputs, call.value(outputs), derivative)


def _directions(call: Call, tangents: tuple[Any, ...], what: str, placed: bool) -> list[Any]:
    """The tangents of the operands, checked; with `placed` they have to be where their primals are."""
    flat, structure = USERS.flatten(tangents)
    expected = users_treedef(call.in_tree)
    if structure != expected:
        raise TypeError(f"{what}: primals and tangents differ in structure: {expected} and {structure}")
    for t, a, flag in zip(flat, call.arguments, call.wrt, strict=True):
        if not flag and not is_float0(t):
            raise TypeError(_not_float0(what, t, a))
    pairs = [(t, a) for t, a, flag in zip(flat, call.arguments, call.wrt, strict=True) if flag]
    return [direction_of(t, a, what, "tangent", "its primal", placed) for t, a in pairs]


def _not_float0(what: str, tangent: Any, primal: Argument) -> str:
    given = cast(Any, tangent).aval if isinstance(tangent, PRNGKeyArray) else argument_of(tangent, "tangent").type
    return (
        f"primal and tangent arguments to jax.{what} do not match; dtypes must be equal, or in case of int/bool primal dtype the "
        f"tangent dtype must be float0. Got primal dtype {primal.type.dtype} of {primal.name} and so expected tangent dtype "
        f"float0, but got tangent {given}\n"
        "  fix: np.zeros(x.shape, meshjit.dtypes.float0)"
    )


def _with_zeros(call: Call, flags: Sequence[bool], tangents: Iterator[Any]) -> list[Any]:
    """One tangent per output: zeros where none flows, of dtype float0 for integers."""
    pairs = zip(flags, call.traced.out_arguments, strict=False)  # behind them are contents of refs, without tangents
    return [next(tangents) if flag else zeros_of(a) for flag, a in pairs]


def _of_tangents(call: Call, flags: Sequence[bool]) -> list[Argument | None]:
    """The types of the outputs' tangents, of those that have one."""
    return [a for a, flag in zip(call.traced.out_arguments, flags, strict=False) if flag]


@boundary
def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(value, the derivative at `primals` as a function of the tangents) (`jax.linearize`).

    What does not depend on the tangents is computed once; with has_aux (value, function, aux) is given. The function is a
    `tree_util.Partial`, whose leaves are what it keeps: it may leave jit, and be an argument of another.
    """
    return linearized(call_of(fun, primals, {}, "linearize", has_aux=has_aux))


def linearized(call: Call) -> tuple[Any, ...]:
    """(value, function of the tangents of the chosen arguments), and aux where there is one."""
    linear = linearize_program(call.traced.program, call.chosen, known=call.known())
    outputs, residuals = _forward(call, linear.forward)
    call.store(outputs)
    return call.with_aux(outputs, call.value(outputs), tree.Partial(_Tangents(_without_values(call), linear), residuals))


def _forward(call: Call, program: Program) -> tuple[list[Any], list[Any]]:
    """The function's outputs, and what the derivative keeps."""
    count = len(call.traced.program.outputs)
    weak = [*call.traced.out_weak, *[False] * (len(program.outputs) - count)]
    results = run(program, call.inputs, weak, call.traced.mesh)
    return results[:count], results[count:]


def _without_values(call: Call) -> Call:
    """What a derivative needs of a call to be used later: no arrays."""
    traced = replace(call.traced, captured=())
    return replace(call, traced=traced, operands=[], outcome=Outcome(call.outcome.has_aux, call.outcome.what))


class _Tangents:
    """(residuals, *tangents) -> tangents of the value: `linearize` makes a Partial of it. `push` takes tangents placed anyhow."""

    def __init__(self, call: Call, linear: Linearized) -> None:
        self.call, self.linear = call, linear

    def __call__(self, residuals: Sequence[Any], *tangents: Any) -> Any:
        return self.push(residuals, tangents, placed=True)

    def push(self, residuals: Sequence[Any], tangents: tuple[Any, ...], placed: bool = False) -> Any:
        call, linear = self.call, self.linear
        require_meaning(linear.tangent)
        directions = _directions(call, tangents, "linearize", placed)
        weak = [w for w, flag in zip(call.traced.out_weak, linear.flags, strict=True) if flag]
        types = _of_tangents(call, linear.flags)
        results = iter(run(linear.tangent, [*residuals, *directions], weak, call.traced.mesh, types))
        return tangents_of(call.value_tree, _with_zeros(call, linear.flags, results)[: call.value_count])

    def __repr__(self) -> str:
        return f"<the derivative of {self.call.traced.program.name} in a direction>"


@boundary
def vjp(fun: Function, *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = ()) -> Any:
    """(value, function from cotangents of the value to a tuple of those of the primals) (`jax.vjp`).

    The function may be called often; integer primals get zeros of dtype float0. With has_aux fun returns (value, aux)
    and (value, function, aux) is given. The function is a `VJP`, a tree: it may leave jit, and be an argument of another.
    reduce_axes: JAX's from before, no axes; NotImplementedError for any.
    """
    no_reduce_axes(reduce_axes, "vjp")
    return pulled_back(call_of(fun, primals, {}, "vjp", has_aux=has_aux))


def pulled_back(call: Call) -> tuple[Any, ...]:
    """(value, function from its cotangents to those of the chosen arguments), and aux where there is one."""
    program, known = call.traced.program, call.known()
    if known is not None and any(eqn.op is REGISTRY["custom_vjp"] for eqn in program.eqns):
        pulled: Pullback | Linearized = linearize_program(program, call.chosen_back, known=known)
    else:
        pulled = vjp_program(program, call.chosen_back, call.value_count, known)
    outputs, residuals = _forward(call, pulled.forward)
    call.store(outputs)
    leaves = dict(zip(pulled.forward.inputs, [i for i, flag in enumerate(call.wrt) if flag], strict=False))
    places = [leaves.get(v) for v in pulled.forward.outputs[len(outputs) :]]
    opaque = [x for x, place in zip(residuals, places, strict=True) if place is None]
    values = {place: x for x, place in zip(residuals, places, strict=True) if place is not None}
    args_res = list(tree.unflatten(call.in_tree, [values.get(i, NotNeeded()) for i in range(len(call.arguments))]))
    kind = _Cotangents if isinstance(pulled, Pullback) else _AskedCotangents
    pull = kind(_without_values(call), pulled, tuple(places))
    return call.with_aux(
        outputs, call.value(outputs), VJP(pull, users_treedef(call.in_tree), users_treedef(call.value_tree), args_res, opaque)
    )


@tree.register_static
@dataclass(frozen=True)
class NotNeeded:
    """Stands in `VJP.args_res` for an argument that the way back does not need."""


class _Cotangents:
    """(residuals, cotangents of the value) -> those of the arguments. `places`: which leaf of the arguments a residual is, None
    for one that was computed."""

    def __init__(self, call: Call, pulled: Any, places: tuple[int | None, ...]) -> None:
        self.call, self.pulled, self.places = call, pulled, places

    def residuals(self, arguments: Sequence[Any], opaque: Sequence[Any]) -> list[Any]:
        """In the order in which the way back takes them."""
        rest = iter(opaque)
        return [next(rest) if place is None else arguments[place] for place in self.places]

    def __call__(self, residuals: Sequence[Any], cotangents: Any, placed: bool = True) -> Any:
        """With `placed` the cotangents have to be where the results are."""
        call = self.call
        flat, structure = USERS.flatten(cotangents)
        if structure != users_treedef(call.value_tree):
            raise ValueError(
                f"vjp: the function returned {call.value_count} arrays, it was given {len(flat)} cotangents"
                f" in another structure\n  result: {users_treedef(call.value_tree)}\n  cotangents: {structure}"
            )
        types = [a.dual for a in call.traced.out_arguments[: call.value_count]]
        takes = [i for i, a in enumerate(types) if is_inexact(a.type.dtype)]
        directions = {i: direction_of(flat[i], types[i], "vjp", "cotangent", "the result", placed) for i in takes}
        return gradients(call, iter(self.run(residuals, directions)))

    def run(self, residuals: Sequence[Any], directions: dict[int, Any]) -> list[Any]:
        """The cotangents of the operands; `directions` are those of results by their number."""
        return self._run(self.pulled.backward, [*residuals, *directions.values()])

    def _run(self, program: Program, given: Sequence[Any]) -> list[Any]:
        results = run(program, given, self.call.weak, self.call.traced.mesh, self.call.types_back)
        return self.call.slots.taken(results, program)


class _AskedCotangents(_Cotangents):
    """Outside of jit a custom_vjp may ask for values: its bwd is traced for each cotangent, as in JAX. `pulled` is Linearized."""

    def run(self, residuals: Sequence[Any], directions: dict[int, Any]) -> list[Any]:
        linear = self.pulled
        given = [*residuals, *(ct for i, ct in directions.items() if linear.flags[i])]
        tangent = linear.tangent.with_outputs(linear.tangent.outputs[: len(given) - len(residuals)])
        is_tangent = [i >= len(residuals) for i in range(len(tangent.inputs))]
        return self._run(backward(tangent, is_tangent, Known(given, self.call.traced.mesh)), given)


@dataclass(eq=False)
class VJP:
    """What `vjp` gives: a function of the cotangents of the value, and a tree whose leaves are what it keeps.

    args_res: one entry per argument, with its leaves that are kept, NotNeeded for the others.
    opaque_residuals: what else is kept, in no order that means anything.
    """

    fun: Function
    in_tree: Any
    out_tree: Any
    args_res: list[Any]
    opaque_residuals: list[Any]

    def __call__(self, cotangents: Any, *more: Any) -> Any:
        name = self.fun.call.traced.program.name
        if more:
            raise TypeError(
                f"The function returned by vjp applied to {name} was called with {1 + len(more)} arguments, but it takes one: "
                f"the cotangent of the one value that {name} returned, also where that is a tuple\n"
                "  fix: f_vjp((a, b)) in place of f_vjp(a, b)"
            )
        return self.pull(cotangents, placed=True)

    def with_refs(self, *wishes: Any) -> Function:
        """The same function, which adds cotangents to Refs. `wanted` has the structure of the arguments, with a Ref,
        `ad.GradValue()` or `ad.DontWant()` for every array; results have GradRef or DidntWant in place of what is no value."""
        return into_refs(self, self.in_tree, wishes)

    def pull(self, cotangents: Any, placed: bool = False) -> Any:
        """The same for cotangents that are anywhere."""
        arguments = tree.leaves(self.args_res, is_leaf=lambda x: isinstance(x, NotNeeded))
        return self.fun(self.fun.residuals(arguments, self.opaque_residuals), cotangents, placed)

    def __repr__(self) -> str:
        return f"<the derivative of {self.fun.call.traced.program.name} backwards, which keeps {tree.leaves(self)}>"


tree.register_node(
    VJP,
    lambda vjp: ((vjp.args_res, vjp.opaque_residuals), (vjp.fun, vjp.in_tree, vjp.out_tree)),
    lambda fixed, kept: VJP(*fixed, *kept),
)


def fwd_and_bwd(
    fun: Function, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Function, Function]:
    """(fwd, bwd) with fwd(*args) -> (value, residuals) and bwd(residuals, cotangent) -> cotangents of the arguments `argnums`,
    both jitted once for all calls (`jax.fwd_and_bwd`). With has_aux fwd gives (value, residuals, aux)."""
    check_function(fun, "fwd_and_bwd")

    def fwd(*args: Any, **kwargs: Any) -> Any:
        return pulled_back(call_of(fun, args, kwargs, "vjp", positions_of(fun, argnums, len(args), "vjp"), has_aux))

    def bwd(residuals: Any, cotangent: Any) -> Any:
        cotangents = residuals(cotangent)
        return cotangents[0] if isinstance(argnums, int | np.integer) else cotangents

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
