"""custom_vmap and sequential_vmap: functions with a rule of the user's for many of them at once (`jax.custom_batching`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from meshjit import numpy as mnp
from meshjit.api.tracebacks import boundary
from meshjit.core.program import Program
from meshjit.core.region import Rule
from meshjit.lax.custom_rules import CustomCall, CustomFunction, Function, custom_call, positional, traced_rule
from meshjit.lax.loops import map as map_slices
from meshjit.lax.regions import apply, kind_of_result
from meshjit.numpy.promote import ops
from meshjit.trace.names import function_name
from meshjit.tree_views import about_leaves, users_treedef
from meshjit.trees import USERS, WORDS as tree


class custom_vmap(CustomFunction):  # noqa: N801 - JAX's name
    """A function whose batches are what `def_vmap` says (`jax.custom_batching.custom_vmap`).

        @custom_vmap
        def f(x, y): ...

        @f.def_vmap
        def f_rule(axis_size, in_batched, xs, ys):
            return result, is_batched            # of the structure of f's result; batch dims come first

    Forward mode goes through the rule, too; for reverse mode put custom_vjp around the function.
    """

    what = "custom_vmap"
    vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule; a decorator. `in_batched` is a list of trees of bools, one per argument."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = positional(self.fun, args, kwargs, self.what)
        if self.vmap_rule is None:
            name = function_name(self.fun)
            raise AttributeError(f"No batching rule defined for custom_vmap function {name} using def_vmap.")
        call = custom_call(self.fun, args, (), [self.vmap_rule])
        if call is None:
            return tree.map(mnp.asarray, self.fun(*args))
        rule = Rule(function_name(self.vmap_rule), _Rule(call, self.vmap_rule).program)
        params = {"body": call.body, **call.counts, "rule": rule}
        results = apply(ops("custom_vmap"), call.operands, call.types, call.traced.out_weak, call.traced.mesh, **params)
        return tree.unflatten(call.out_tree, results)


class _Rule:
    """The user's rule at one call of the function."""

    def __init__(self, call: CustomCall, rule: Function) -> None:
        self.call, self.rule, self.name = call, rule, function_name(rule)

    def program(self, size: int, flags: Sequence[bool]) -> tuple[Program, tuple[bool, ...]]:
        """What `custom_vmap` asks; `flags` are of the closed values, too."""
        leaves, out_flags = self.call.leaves, list[bool]()
        batched = flags[len(self.call.closed) :]
        arguments = [
            replace(a, type=a.type.with_shape((size, *a.type.shape)) if flag else a.type, sharding=None)
            for a, flag in zip(leaves.arguments, batched, strict=True)
        ]

        def of_leaves(*values: Any) -> list[Any]:
            marks = list(about_leaves(leaves.structure, batched))
            outs, marked = self._checked(self.rule(size, marks, *tree.unflatten(leaves.structure, values)))
            out_flags[:] = map(bool, marked)
            return outs

        program, _ = traced_rule(of_leaves, self.call, arguments, self.name)
        self._check_types(size, program, out_flags)
        return program, tuple(out_flags)

    def _checked(self, pair: Any) -> tuple[list[Any], list[Any]]:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise TypeError(
                f"the custom vmap rule {self.name} must return (result, is_batched), it returned {kind_of_result(pair)}"
            )
        (outs, out_tree), (marked, marked_tree) = tree.flatten(pair[0]), USERS.flatten(pair[1])
        if users_treedef(out_tree) != marked_tree:
            raise ValueError(
                "structure of output value and output batching specification returned by custom vmap rule "
                f"({self.name}) do not match.\nOutput values: {users_treedef(out_tree)}\nBatching spec: {marked_tree}"
            )
        if out_tree != self.call.out_tree:
            raise ValueError(
                f"structure of output returned by custom vmap rule ({self.name}) does not match that of original "
                f"custom-vmapped function.\nOriginal output: {self.call.out_tree}\nRule output: {out_tree}"
            )
        return outs, marked

    def _check_types(self, size: int, program: Program, out_flags: Sequence[bool]) -> None:
        for given, own, flag in zip(program.output_types, self.call.out_types, out_flags, strict=True):
            expected = own.with_shape((size, *own.shape)) if flag else own
            if given != expected:
                raise ValueError(
                    f"the custom vmap rule {self.name} gave {given} for a result {own} of {self.call.name} that is "
                    f"{'batched' if flag else 'not batched'}: expected {expected}"
                )


def sequential_vmap(f: Function) -> custom_vmap:
    """fun, whose members under vmap run one after another in a loop (`jax.custom_batching.sequential_vmap`)."""
    function = custom_vmap(f)

    @function.def_vmap
    def rule(axis_size: int, in_batched: Any, *args: Any) -> Any:
        flat, structure = tree.flatten(args)
        flags = tree.leaves(in_batched)

        def member(mapped: Any) -> Any:
            rest = iter(mapped)
            return function(*tree.unflatten(structure, [next(rest) if flag else x for x, flag in zip(flat, flags, strict=True)]))

        result = map_slices(member, [x for x, flag in zip(flat, flags, strict=True) if flag])
        return result, USERS.map(lambda _: True, result)

    return function
