"""checkpoint: less memory for the way back, more work (`jax.checkpoint`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from meshjit import tree
from meshjit.autodiff.function import check_function, named_leaves, operands_of, run, trace_flat
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.ops.control.checkpoint import POLICIES
from meshjit.trace import Argument, Traced, active_trace, argument_of, bind, function_name, user_source

Policy = tuple[Any, ...]
_FIX = "checkpoint(fun, static_argnums=...) for a positional argument that is a setting, or close over it"


class _Policies:
    """`meshjit.checkpoint_policies`: what a checkpointed function's derivative keeps (`jax.checkpoint_policies`)."""

    nothing_saveable: Policy = ("nothing_saveable",)
    everything_saveable: Policy = ("everything_saveable",)
    dots_saveable: Policy = ("dots_saveable",)
    checkpoint_dots: Policy = ("dots_saveable",)
    dots_with_no_batch_dims_saveable: Policy = ("dots_with_no_batch_dims_saveable",)
    checkpoint_dots_with_no_batch_dims: Policy = ("dots_with_no_batch_dims_saveable",)

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        return ("save_only_these_names", *names)

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Policy:
        return ("save_anything_except_these_names", *names)

    @staticmethod
    def save_any_names_but_these(*names: str) -> Policy:
        return ("save_any_names_but_these", *names)


checkpoint_policies = _Policies()


def checkpoint(
    fun: Callable[..., Any],
    *,
    concrete: bool = False,
    prevent_cse: bool = True,
    static_argnums: int | Sequence[int] = (),
    policy: Policy | None = None,
) -> Callable[..., Any]:
    """fun, whose derivative keeps only its arguments and computes the rest again (`jax.checkpoint`, `jax.remat`).

    Args:
      prevent_cse: keep the compiler from merging what is computed twice. False inside a scan, where it cannot happen.
      static_argnums: positions of arguments that are no arrays, or that Python needs to see (`if train:`).
      policy: one of `meshjit.checkpoint_policies`; None keeps nothing.
    """
    check_function(fun, "checkpoint")
    if concrete:
        raise NotImplementedError("checkpoint(concrete=True) is not supported, as in JAX: mark such arguments static")
    chosen = policy or checkpoint_policies.nothing_saveable
    if not (isinstance(chosen, tuple) and chosen and chosen[0] in POLICIES):
        raise TypeError(
            f"checkpoint: policy must be one of meshjit.checkpoint_policies, got {policy!r}\n"
            f"  there are {', '.join(POLICIES)}"
        )
    static = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        fixed = {i % len(args) for i in static} if args else set[int]()
        dynamic = tuple(x for i, x in enumerate(args) if i not in fixed)

        @functools.wraps(fun)
        def of_arrays(*arrays: Any, **named: Any) -> Any:
            rest = iter(arrays)
            return fun(*(x if i in fixed else next(rest) for i, x in enumerate(args)), **named)

        leaves, in_tree, names = named_leaves(of_arrays if fixed else fun, dynamic, kwargs)
        arguments = [argument_of(x, n, _FIX) for x, n in zip(leaves, names, strict=True)]
        operands = operands_of(leaves, arguments)
        trace = _traced if fixed else _traced_once
        traced = trace(of_arrays if fixed else fun, arguments, operands, in_tree)
        with Builder(traced.program.name) as builder, builder.at(user_source()):
            inputs = [builder.input(v.type, v.hint) for v in traced.program.inputs]
            params = {"body": traced.program, "policy": chosen, "prevent_cse": bool(prevent_cse), "again": False}
            program = builder.build(builder.emit(REGISTRY["checkpoint"], inputs, params))
        return tree.unflatten(traced.out_tree, run(program, [*operands, *traced.captured], traced.out_weak, traced.mesh))

    return checkpointed


def _traced(fun: Callable[..., Any], arguments: Sequence[Argument], operands: Sequence[Any], in_tree: Any) -> Traced:
    return trace_flat(fun, arguments, operands, in_tree, function_name(fun))


def _traced_once(fun: Callable[..., Any], arguments: Sequence[Argument], operands: Sequence[Any], in_tree: Any) -> Traced:
    """One Program for all calls in one function being traced, as in JAX, so that equal layers are one: unless the function
    closes over arrays, or asked what its arguments are."""
    trace, key = active_trace(), (fun, tuple(arguments), in_tree)
    if trace is None or not isinstance(fun, Hashable):
        return _traced(fun, arguments, operands, in_tree)
    traced = trace.bodies.get(key)
    if traced is None:
        traced = _traced(fun, arguments, operands, in_tree)
        if not (traced.captured or traced.by_value):
            trace.bodies[key] = traced
    return traced


def checkpoint_name(x: Any, name: str) -> Any:
    """x under a name that policies such as `save_only_these_names` speak about (`jax.ad_checkpoint.checkpoint_name`)."""
    return tree.map(lambda leaf: bind(REGISTRY["name"], leaf, name=name), x)
