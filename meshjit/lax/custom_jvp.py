"""custom_jvp: a function with a rule of the user's for its derivative in a direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from meshjit.api.tracebacks import boundary
from meshjit.core.program import Program
from meshjit.core.types import TensorType
from meshjit.lax.custom_rules import (
    CustomCall,
    CustomFunction,
    Function,
    SymbolicZero,
    custom_call,
    has_tangent,
    positional,
    traced_rule,
)
from meshjit.lax.regions import apply, kind_of_result
from meshjit.numpy.filling import zeros_of
from meshjit.numpy.promote import ops
from meshjit.trace import argument_of
from meshjit.trace.float0 import FLOAT0, is_float0
from meshjit.trace.names import function_name
from meshjit.tree_views import hidden_dims, tangents as tangents_of, users_treedef
from meshjit.trees import USERS, WORDS as tree


class custom_jvp(CustomFunction):  # noqa: N801 - JAX's name
    """A function whose derivative is what `defjvp` says (`jax.custom_jvp`), in forward and, by transposition, in reverse mode.

        @custom_jvp
        def f(x, y): ...

        @f.defjvp
        def f_jvp(primals, tangents):
            return f(*primals), ...            # the value, and its tangent of the same structure, shapes and dtypes

    Args:
      nondiff_argnums, nondiff_argnames: arguments that are no arrays, or have no derivatives, such as functions. The rule gets
        them first: f_jvp(*nondiff, primals, tangents).

    The rule is traced when a derivative is asked for, never before. Its result has to be linear in the tangents.
    """

    what = "custom_jvp"
    jvp: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """The rule: (primals, tangents) -> (value, tangent). A decorator.

        Tangents of integers are zeros of dtype float0; those of arguments that are not differentiated are zeros, with
        `symbolic_zeros` SymbolicZero objects, which results may be, too."""
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """One function per argument: (its tangent, value, *primals) -> its part of the value's tangent; None for no part."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals: Any, tangents: Any) -> Any:
            value = self(*primals)
            if len(jvps) != len(primals):
                raise ValueError(
                    f"defjvps of {function_name(self.fun)} was given {len(jvps)} functions, and the function {len(primals)} "
                    "arguments\n  fix: one function per argument, None for one without a part in the tangent"
                )
            parts = [rule(t, value, *primals) for t, rule in zip(tangents, jvps, strict=True) if rule is not None]
            zeros = tree.map(lambda x: zeros_of(argument_of(x)), value)
            return value, tree.map(lambda x, *ts: sum(ts[1:], ts[0]), value, *(parts or [zeros]))

        self.defjvp(jvp)

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = function_name(self.fun)
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {name} using defjvp.")
        args = positional(self.fun, args, kwargs, self.what)
        rule, static = self.jvp, self.nondiff_argnums
        call = custom_call(self.fun, args, static, [rule])
        if call is None:
            return self.fun(*args)
        asked = _Rule(call, rule, tuple(args[i] for i in static), self.symbolic_zeros)
        params = {"body": call.body, **call.counts, "jvp": call.rule(function_name(rule), asked.program, asked.seeing)}
        results = apply(ops("custom_jvp"), call.operands, call.types, call.traced.out_weak, call.traced.mesh, **params)
        return tree.unflatten(call.out_tree, results)


class _Rule:
    """The user's rule at one call of the function."""

    def __init__(self, call: CustomCall, rule: Function, static: Sequence[Any], symbolic: bool) -> None:
        self.call, self.rule, self.static, self.symbolic = call, rule, static, symbolic
        self.name = function_name(rule)

    def program(self, flags: Sequence[bool]) -> tuple[Program, tuple[bool, ...]]:
        """What `custom_jvp` asks; `flags` are of the closed values, too."""
        return self.seeing(self.call.operands, flags)

    def seeing(self, operands: Sequence[Any], flags: Sequence[bool]) -> tuple[Program, tuple[bool, ...]]:
        """The same for these operands of the Program, or for the first of them."""
        leaves, out_flags = self.call.leaves, list[bool]()
        nonzero = [f and has_tangent(t) for f, t in zip(flags[len(self.call.closed) :], leaves.types, strict=True)]
        tangents = [replace(a, name="", weak=False) for a, flag in zip(leaves.arguments, nonzero, strict=True) if flag]

        def of_leaves(*values: Any) -> list[Any]:
            rest = iter(values[len(nonzero) :])
            zeros = [SymbolicZero(a.type) if self.symbolic else zeros_of(a) for a in leaves.arguments]
            directions = [next(rest) if flag else zero for flag, zero in zip(nonzero, zeros, strict=True)]
            primals = tree.unflatten(leaves.structure, values[: len(nonzero)])
            pair = self.rule(*self.static, primals, tangents_of(leaves.structure, directions))
            outs, pushed = self._checked(pair)
            pairs = zip(self.call.out_types, pushed, strict=True)
            out_flags[:] = [has_tangent(type) and not isinstance(t, SymbolicZero) for type, t in pairs]
            return [*outs, *(t for t, flag in zip(pushed, out_flags, strict=True) if flag)]

        program, _ = traced_rule(of_leaves, self.call, [*leaves.arguments, *tangents], self.name, operands)
        self.call.require_arguments_only(program, flags, "custom_jvp")
        return program, tuple(out_flags)

    def _checked(self, pair: Any) -> tuple[list[Any], list[Any]]:
        """Values and tangents that the rule gave, flat; TypeError where they are not like the function's own value."""
        whose = f"Custom JVP rule {self.name} for function {self.call.name} must produce"
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise TypeError(
                f"{whose} a pair (list or tuple of length two) representing primal and tangent outputs, "
                f"but got {kind_of_result(pair)}"
            )
        (outs, out_tree), (tangents, tangent_tree) = tree.flatten(pair[0]), USERS.flatten(pair[1])
        if users_treedef(out_tree) != tangent_tree:
            raise TypeError(
                f"{whose} primal and tangent outputs with equal container (pytree) structures, "
                f"but got {out_tree} and {tangent_tree}"
            )
        require_value(whose, "the first element", self.call, outs, out_tree)
        for x, t, hidden in zip(outs, tangents, hidden_dims(out_tree), strict=True):
            type = argument_of(x).type
            self._check_tangent(type.with_shape(type.shape[: type.rank - hidden]), t)
        return outs, tangents

    def _check_tangent(self, type: TensorType, tangent: Any) -> None:
        if is_float0(tangent) or (isinstance(tangent, SymbolicZero) and tangent.dtype == FLOAT0):
            shown, fits = f"float0{list(tangent.shape)}", not has_tangent(type) and tangent.shape == type.shape
        else:
            given = type_of_result(tangent, f"the tangent that {self.name} gives")
            shown, fits = str(given), given == type
        if not fits:
            expected = type if has_tangent(type) else f"float0{list(type.shape)}"
            raise TypeError(
                "Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes. "
                f"Expected {expected} (tangent type of {type}) but got {shown}, from {self.name} for {self.call.name}"
            )


def type_of_result(x: Any, what: str) -> TensorType:
    """Of an array or a SymbolicZero that a rule gave."""
    if not isinstance(x, SymbolicZero):
        return argument_of(x, what).type
    return x.aval if isinstance(x.aval, TensorType) else TensorType(tuple(x.shape), x.dtype)  # of typeof(...), from a library


def require_value(whose: str, which: str, call: CustomCall, outs: Sequence[Any], out_tree: Any) -> None:
    """TypeError where a rule's value has another structure, or leaves of other types, than the function's own."""
    if out_tree != call.out_tree:
        raise TypeError(
            f"{whose} a pair (list or tuple of length two) where {which} represents the primal output, equal in value to the "
            f"output of {call.name}, and in particular of the same container/pytree structure, but it has {out_tree}, "
            f"while {call.name} has output container/pytree structure {call.out_tree}"
        )
    types = [argument_of(x, "the value that the rule gives").type for x in outs]
    if types != list(call.out_types):
        raise TypeError(
            f"{whose} a pair (list or tuple of length two) where {which} represents the primal output, equal in value to the "
            f"output of {call.name}, and in particular with leaves of the same shape/dtype, but it has shapes/dtypes of "
            f"{_shown(types)}, while {call.name} has output shapes/dtypes of {_shown(call.out_types)}"
        )


def _shown(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))
