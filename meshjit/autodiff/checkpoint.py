"""checkpoint: less memory for the way back, more work (`jax.checkpoint`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from meshjit.autodiff.function import call_of, check_function, named_leaves, operands_of, run, trace_flat
from meshjit.autodiff.policies import policy_of
from meshjit.core.memories import MemorySpace, values_in
from meshjit.core.op import REGISTRY
from meshjit.core.primitives import primitive_of
from meshjit.core.program import Builder, Program, Var
from meshjit.core.region import run_regions
from meshjit.core.site import with_own_sites
from meshjit.trace import argument_of, as_operand, bind, function_name, line_of, user_source
from meshjit.trace.float0 import without_float0
from meshjit.trace.names import hint_of, parameter_names, wraps
from meshjit.trace.once import traced_once
from meshjit.trace.refs import store_outputs
from meshjit.trace.types import ShapedArray
from meshjit.transform.transpose import vjp as vjp_program
from meshjit.trees import WORDS as tree
from sharding.memory import DEVICE

_FIX = "checkpoint(fun, static_argnums=...) for a positional argument that is a setting, or close over it"


def checkpoint(
    fun: Callable[..., Any],
    *,
    concrete: bool = False,
    prevent_cse: bool | Sequence[bool] = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    policy: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """fun, whose derivative keeps only its arguments and computes the rest again (`jax.checkpoint`, `jax.remat`).

    Args:
      prevent_cse: keep the compiler from merging what is computed twice. False inside a scan, where it cannot happen.
      static_argnums, static_argnames: arguments that are no arrays, or that Python needs to see (`if train:`).
      policy: one of `meshjit.checkpoint_policies`, or a function like these: (primitive, *types of its operands, **its params) ->
        whether its results are kept. None keeps nothing.
    """
    check_function(fun, "checkpoint")
    if concrete:
        raise NotImplementedError("checkpoint(concrete=True) is not supported, as in JAX: mark such arguments static")
    chosen, static = policy_of(policy), {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)
    by_name = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
    barrier = bool(prevent_cse) if isinstance(prevent_cse, bool) else any(prevent_cse)

    @wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        names = parameter_names(fun, len(args)) if by_name else []
        named_places = {i for i, name in enumerate(names) if name in by_name}
        _check_static(static, len(args))
        fixed = {i % len(args) for i in static} | named_places if args else set[int]()
        settings = {name: kwargs.pop(name) for name in by_name & set(kwargs)}
        dynamic, kwargs = without_float0((tuple(x for i, x in enumerate(args) if i not in fixed), kwargs))

        @wraps(fun)
        def of_arrays(*arrays: Any, **named: Any) -> Any:
            rest = iter(arrays)
            return fun(*(x if i in fixed else next(rest) for i, x in enumerate(args)), **named, **settings)

        fixes = bool(fixed or settings)
        leaves, in_tree, names = named_leaves(of_arrays if fixes else fun, dynamic, kwargs)
        arguments = [argument_of(x, n, _FIX) for x, n in zip(leaves, names, strict=True)]
        operands = operands_of(leaves, arguments)
        known = (*_typed((i, args[i]) for i in sorted(fixed)), *_typed(sorted(settings.items())))
        traced = traced_once(
            fun,
            ("checkpoint", tuple(arguments), in_tree, known),
            lambda: trace_flat(of_arrays if fixes else fun, arguments, operands, in_tree, function_name(fun)),
            share=True,  # so that equal layers are one
        )
        with Builder(traced.program.name) as builder, builder.at(user_source()):
            inputs = [builder.input(v.type, v.hint) for v in traced.program.inputs]
            params = {"body": with_own_sites(traced.program), "policy": chosen, "prevent_cse": barrier, "again": False}
            program = builder.build(builder.emit(REGISTRY["checkpoint"], inputs, params))
        results = run(program, [*operands, *traced.captured], traced.out_weak, traced.mesh)
        store_outputs(traced.writes, results)
        return tree.unflatten(traced.out_tree, results[: len(results) - len(traced.writes)])

    return checkpointed


def _check_static(numbers: Iterable[int], count: int) -> None:
    beyond = [i for i in numbers if not -count <= i < count]
    if beyond:
        raise ValueError(
            f"the `static_argnums` argument to `checkpoint` can only take integers from {-count} to {count - 1} here, where "
            f"{count} arguments were given by position; got {beyond[0]}\n  at {line_of(user_source())}\n"
            "  fix: static_argnames=... for what may come by keyword"
        )


def _typed(settings: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, type, Any]]:
    """With their types, for 1 and 1.0 are equal."""
    return ((where, type(x), x) for where, x in settings)


def checkpoint_name(x: Any, name: str) -> Any:
    """x under a name that policies such as `save_only_these_names` speak about (`jax.ad_checkpoint.checkpoint_name`)."""

    def named(leaf: Any) -> Any:
        argument = argument_of(leaf)
        return bind(REGISTRY["name"], as_operand(leaf, argument), weak_type=argument.weak, name=name)

    return tree.map(named, x)


# -- what a derivative keeps


def saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[ShapedArray, str]]:
    """The values that the derivative of fun(*args, **kwargs) keeps: types, and where they come from."""
    names = [*parameter_names(fun, len(args)), *kwargs]

    def of_all(*values: Any) -> Any:
        return fun(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    kind = inspect.Parameter.POSITIONAL_ONLY
    of_all.__signature__ = inspect.Signature([inspect.Parameter(hint_of(name), kind) for name in names])
    call = call_of(of_all, (*args, *kwargs.values()), {}, "vjp")
    forward = vjp_program(call.traced.program, call.chosen, call.value_count).forward
    kept = dict.fromkeys(forward.outputs[len(call.traced.program.outputs) :])
    paths = [a.name for a, flag in zip(call.arguments, call.wrt, strict=True) if flag]
    arguments = dict(zip(forward.inputs, paths, strict=False))
    order = [*forward.inputs, *(v for eqn in forward.eqns for v in eqn.outputs)]
    memories = values_in(forward)
    types = {v: ShapedArray(v.shape, v.dtype, memory_space=MemorySpace.of(memories.get(v, DEVICE))) for v in kept}
    return [(types[v], _origin(v, forward, arguments)) for v in order if v in kept]


def _origin(var: Var, program: Program, arguments: dict[Var, str]) -> str:
    """`from the argument x`, `named 'h' from train.py:3 (f)` or `output of sin from train.py:3 (f)`."""
    if var in program.inputs:
        return f"from the argument {arguments[var]}" if var in arguments else "from a constant"
    eqn = next(eqn for eqn in program.eqns if var in eqn.outputs)
    if eqn.op.memory is not None:
        return _origin(eqn.inputs[0], program, arguments)
    for region in run_regions(eqn) if eqn.op.written_out is not None else ():
        inner = region.program.outputs[region.results.index(eqn.outputs.index(var))]
        if inner not in region.program.inputs:
            return _origin(inner, region.program, arguments)
        return _origin(eqn.inputs[region.program.inputs.index(inner)], program, arguments)
    where = f" from {eqn.source.file}:{eqn.source.line} ({eqn.source.function})" if eqn.source else ""
    prim = primitive_of(eqn).name
    return (f"named {eqn.params['name']!r}" if prim == "name" else f"output of {prim}") + where


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what the derivative of fun(*args, **kwargs) keeps (`jax.ad_checkpoint.print_saved_residuals`)."""
    for type, origin in saved_residuals(f, *args, **kwargs):
        print(type.str_short(short_dtypes=True), origin)
