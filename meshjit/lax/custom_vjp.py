"""custom_vjp: a function with rules of the user's for reverse mode: what to keep on the way forth, and cotangents from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshjit import numpy as mnp
from meshjit.api.tracebacks import boundary
from meshjit.core.program import Program
from meshjit.core.promotion import is_python_number
from meshjit.core.ref import Ref
from meshjit.core.region import Rule
from meshjit.core.types import is_inexact
from meshjit.errors import UnexpectedTracerError
from meshjit.lax.custom_jvp import require_value, type_of_result
from meshjit.lax.custom_rules import (
    CustomCall,
    CustomFunction,
    Function,
    SymbolicZero,
    custom_call,
    has_tangent,
    positional,
    traced_rule,
    with_static,
)
from meshjit.lax.device_collectives import as_varying
from meshjit.lax.linear import Closed, closed
from meshjit.lax.regions import apply, kind_of_result
from meshjit.lax.written_back import with_slots, written_back
from meshjit.numpy.filling import zeros_of
from meshjit.numpy.promote import cast, ops
from meshjit.trace import Argument, Tracer
from meshjit.trace.float0 import is_float0
from meshjit.trace.names import function_name, wraps
from meshjit.trace.refs import resolved
from meshjit.tree_views import tangents
from meshjit.trees import WORDS, WORDS as tree


@dataclass
class CustomVJPPrimal:
    """An argument's leaf as a fwd rule with symbolic_zeros gets it: its value, and whether it is being differentiated."""

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The values of a tree of CustomVJPPrimal."""

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, CustomVJPPrimal):
            raise TypeError(f"unexpected leaf type {type(leaf)}")
        return leaf.value

    return WORDS.map(value, tree, is_leaf=lambda x: isinstance(x, CustomVJPPrimal))


class custom_vjp(CustomFunction):  # noqa: N801 - JAX's name
    """A function whose reverse mode is what `defvjp` says (`jax.custom_vjp`). Forward mode is an error.

        @custom_vjp
        def f(x, y): ...

        def f_fwd(x, y): return f(x, y), residuals
        def f_bwd(residuals, g): return x_bar, y_bar

        f.defvjp(f_fwd, f_bwd)

    Args:
      nondiff_argnums, nondiff_argnames: arguments that are no arrays, such as functions. fwd gets them in their places, bwd
        gets them first: f_bwd(*nondiff, residuals, g).

    The rules are traced when a derivative is asked for, never before.
    """

    what = "custom_vjp"
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None
    symbolic_zeros = False
    optimize_remat = False

    def defvjp(
        self, fwd: Callable[..., Any], bwd: Callable[..., Any], symbolic_zeros: bool = False, optimize_remat: bool = False
    ) -> None:
        """The rules: fwd(*args) -> (value, residuals) and bwd(residuals, cotangent) -> a tuple of one cotangent per argument.

        None, for an argument or any tree in it, is zero. With `symbolic_zeros` fwd gets a CustomVJPPrimal for each leaf, and bwd
        SymbolicZero for cotangents that are zero. `optimize_remat` changes nothing: what nobody needs is never computed.
        """
        if symbolic_zeros and optimize_remat:
            raise NotImplementedError("remat optimization for custom_vjp does not support symbolic zeros")
        self.fwd, self.bwd, self.symbolic_zeros, self.optimize_remat = fwd, bwd, symbolic_zeros, optimize_remat

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name, fwd, bwd, static = function_name(self.fun), self.fwd, self.bwd, self.nondiff_argnums
        if fwd is None or bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {name} using defvjp.")
        args = positional(self.fun, args, kwargs, self.what)
        for i in static:
            _check_static(name, i, args[i])
        call = custom_call(self.fun, args, static, [fwd, bwd])
        if call is None:
            return self.fun(*args)
        if Ref.made:
            call = with_slots(call)
        rules = _Rules(call, with_static(fwd, args, static), fwd, bwd, tuple(args[i] for i in static), self.symbolic_zeros)
        params = {"body": call.body, **call.counts, "fwd": call.rule(function_name(fwd), rules.forward, rules.forward_of)}
        results = apply(ops("custom_vjp"), call.operands, call.types, call.traced.out_weak, call.traced.mesh, **params)
        return tree.unflatten(call.out_tree, results)


def _check_static(name: str, position: int, value: Any) -> None:
    if any(isinstance(x, Tracer) for x in tree.leaves(value)):
        raise UnexpectedTracerError(
            f"Found a JAX Tracer object passed as an argument to a custom_vjp function, {name}, in position {position}, "
            "indicated by nondiff_argnums as non-differentiable. Tracers cannot be passed there; nondiff_argnums is for "
            "arguments that can't be or contain tracers, such as functions\n"
            "  fix: leave it out of nondiff_argnums, and let bwd give None as its cotangent"
        )


class _Rules:
    """The user's rules at one call of the function."""

    def __init__(
        self, call: CustomCall, of_args: Function, fwd: Function, bwd: Function, static: Sequence[Any], symbolic: bool
    ) -> None:
        self.call, self.of_args, self.bwd, self.static, self.symbolic = call, of_args, bwd, static, symbolic
        self.names = function_name(fwd), function_name(bwd)

    def forward(self, flags: Sequence[bool]) -> tuple[Program, Rule]:
        """What `custom_vjp` asks; `flags` are of the closed values, too."""
        return self.forward_of(self.call.operands, flags)

    def forward_of(self, operands: Sequence[Any], flags: Sequence[bool]) -> tuple[Program, Rule]:
        """The same for these operands."""
        leaves, trees = self.call.leaves, list[Any]()
        count = len(self.call.closed)
        nonzero = [f and has_tangent(t) for f, t in zip(flags[count:], leaves.types, strict=True)]

        def of_leaves(*values: Any) -> list[Any]:
            if self.symbolic:
                values = tuple(CustomVJPPrimal(x, flag) for x, flag in zip(values, nonzero, strict=True))
            own = values[: leaves.structure.num_leaves]  # behind them are slots
            outs, residuals = self._checked(self.of_args(*tree.unflatten(leaves.structure, own)))
            leaves_kept, structure = tree.flatten(residuals)
            numbers = [x if is_python_number(x) else None for x in leaves_kept]  # which Python may ask for in bwd
            trees[:] = [(structure, numbers)]
            return [*outs, *(x for x in leaves_kept if not is_python_number(x)), *resolved(self.call.closed)]

        program, results = traced_rule(of_leaves, self.call, leaves.arguments, self.names[0], operands)
        own = program.outputs[: len(program.outputs) - count]  # the closed values behind them are for bwd
        self.call.require_arguments_only(program.with_outputs(own), flags, "custom_vjp")
        kept = results[len(self.call.out_types) :]
        residuals = [replace(a, weak=False) for a in kept[: len(kept) - count]]

        def backward(given: Sequence[Any], takes: Sequence[bool]) -> Program:
            return self.backward(takes, residuals, trees[0], flags, given)

        bwd = self.call.rule(self.names[1], functools.partial(backward, ()), backward)
        return _closed_first(program, len(self.call.out_types), count), bwd

    def _checked(self, pair: Any) -> tuple[list[Any], Any]:
        whose = f"Custom VJP fwd rule {self.names[0]} for function {self.call.name} must produce"
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise TypeError(
                f"{whose} a pair (list or tuple of length two) where the first element represents the primal output and the "
                "second element represents residuals (i.e. values stored from the forward pass for use on the backward pass), "
                f"but instead of a pair it produced {kind_of_result(pair)}"
            )
        outs, out_tree = tree.flatten(pair[0])
        require_value(whose, "the first element", self.call, outs, out_tree)
        return outs, pair[1]

    def backward(
        self,
        takes: Sequence[bool],
        residuals: Sequence[Argument],
        kept: tuple[Any, list[Any]],
        flags: Sequence[bool],
        operands: Sequence[Any],
    ) -> Program:
        """(closed values, residuals, cotangents of the results marked) -> cotangents of the operands marked. `takes` are of the
        inexact results, `operands` as in `traced_rule`; `kept` is the residuals' tree, with those leaves that are no values."""
        count, (structure, numbers) = len(residuals), kept
        outs = [replace(a, weak=False) for a in self.call.traced.out_arguments if is_inexact(a.type.dtype)]
        given = [a for a, flag in zip(outs, takes, strict=True) if flag]

        def of_leaves(*values: Any) -> list[Any]:
            rest, marks = iter(values[count:]), iter(takes)
            given = [next(rest) if is_inexact(t.dtype) and next(marks) else None for t in self.call.out_types]
            pairs = zip(given, self.call.traced.out_arguments, strict=True)
            cts = [self._zero(a.dual) if ct is None else ct for ct, a in pairs]
            arrays = iter(values[:count])
            own = tree.unflatten(structure, [next(arrays) if x is None else x for x in numbers])
            result = self.bwd(*self.static, own, tangents(self.call.out_tree, cts))
            flat = [*self._cotangents(result), *written_back(self.call.slots)]
            return [x for x, flag in zip(flat, flags[len(self.call.closed) :], strict=True) if flag]

        program, _ = traced_rule(of_leaves, self.call, [*residuals, *given], self.names[1], operands)
        self.call.require_arguments_only(program, flags, "custom_vjp")
        return program

    def _zero(self, a: Argument) -> Any:
        """A cotangent that is zero."""
        return SymbolicZero(a.type) if self.symbolic and is_inexact(a.type.dtype) else zeros_of(a)

    def _cotangents(self, result: Any) -> list[Any]:
        """One per leaf of the arguments, of its type; None in the rule's result is zero."""
        leaves = self.call.leaves
        expected = tree.structures(leaves.structure)
        if isinstance(result, list) and len(result) == len(expected):
            result = tuple(result)
        try:
            if not (isinstance(result, tuple) and len(result) == len(expected)):
                raise ValueError
            flat = [x for value, structure in zip(result, expected, strict=True) for x in _spread(value, structure)]
        except ValueError:
            raise TypeError(
                "Custom VJP bwd rule must produce an output with the same container (pytree) structure as the args tuple of the "
                "primal function, and in particular must produce a tuple of length equal to the number of arguments to the "
                f"primal function, but got bwd output structure {tree.structure(result)} for primal input structure "
                f"{leaves.structure}, from {self.names[1]} for {self.call.name}"
            ) from None
        return [self._cotangent(x, a) for x, a in zip(flat, leaves.arguments, strict=False)]  # behind them are slots

    def _cotangent(self, x: Any, argument: Argument) -> Any:
        type = argument.type
        if not has_tangent(type):
            return mnp.zeros(type.shape, type.dtype)
        if x is None:
            return zeros_of(argument.dual)
        given = None if is_float0(x) else type_of_result(x, f"the cotangent of {argument.name}")
        if given is None or given.shape != type.shape or not is_inexact(given.dtype):
            shown = given or f"float0{list(x.shape)}"
            raise ValueError(
                "Custom VJP bwd rule must produce an output with the same type as the args tuple of the primal function, but for "
                f"{argument.name} the bwd rule {self.names[1]} produced an output of type {shown} corresponding to an input of "
                f"type {type}"
            )
        if isinstance(x, SymbolicZero):
            return zeros_of(argument.dual)
        return as_varying(cast(x, type.dtype, False), argument.varying)


def _spread(value: Any, structure: Any) -> list[Any]:
    """The leaves of a cotangent of this structure, in which None stands for a whole subtree; ValueError for another structure."""
    if value is None:
        return [None] * structure.num_leaves
    below = tree.unflatten(structure, [object()] * structure.num_leaves)
    cts, prefix = tree.flatten(value, lambda x: x is None)
    try:
        parts = prefix.flatten_up_to(below)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return [ct for ct, part in zip(cts, parts, strict=True) for _ in tree.leaves(part)]


def _closed_first(program: Program, outs: int, count: int) -> Program:
    """The closed values come before the residuals, as bwd takes them."""
    values, kept = program.outputs[:outs], program.outputs[outs:]
    return program.with_outputs([*values, *kept[len(kept) - count :], *kept[: len(kept) - count]])


def custom_gradient(fun: Function) -> custom_vjp:
    """A function that gives (value, rule), as one that gives the value, and whose reverse mode is the rule: cotangent -> one
    cotangent per argument, a tuple if there are several (`jax.custom_gradient`). The rule may use what fun computed."""

    @custom_vjp
    @wraps(fun)
    def value_of(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)[0]

    def fwd(*args: Any) -> Any:
        value, rule = fun(*args)
        return value, _Residuals(closed(rule, value))

    def bwd(residuals: _Residuals, cotangent: Any) -> Any:
        result = residuals.rule(residuals.kept, cotangent)
        return (result,) if residuals.rule.out_tree == tree.structure(0) else result

    value_of.defvjp(fwd, bwd)
    return value_of


class _Residuals:
    """A rule of custom_gradient's without its closure: a tree whose leaves are what it closed over."""

    def __init__(self, rule: Closed, kept: Sequence[Any] | None = None) -> None:
        self.rule, self.kept = rule, rule.captured if kept is None else kept


tree.register_node(_Residuals, lambda r: (tuple(r.kept), r.rule), lambda rule, kept: _Residuals(rule, list(kept)))
