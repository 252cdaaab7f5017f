"""Branches under `jax.lax`'s names: cond and switch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.program import Builder, Program
from meshjit.core.promotion import promote
from meshjit.core.types import TensorType
from meshjit.lax.regions import (
    apply,
    captured_first,
    check_callable,
    in_python,
    leaves_of,
    on_one_mesh,
    split_captured,
    trace_region,
)
from meshjit.lax.unchanged import in_all, without
from meshjit.numpy.promote import cast, ops, value
from meshjit.trace import Argument, Traced, function_name, line_of, user_source, vary, varying_of
from meshjit.trace.float0 import without_float0
from meshjit.trace.refs import store_outputs
from meshjit.trace.tracer import is_known
from meshjit.trees import WORDS as tree

Function = Callable[..., Any]
_NOTHING = object()


def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any, operand: Any = _NOTHING) -> Any:
    """true_fun(*operands) if pred else false_fun(*operands), only that branch being run (`jax.lax.cond`).

    cond(pred, true_operand, true_fun, false_operand, false_fun) is an older form of it.

    Args:
      pred: a scalar; a number counts as true where it is not 0. Under vmap with differing preds both branches run.
      true_fun, false_fun: must give results of the same structure, shapes and dtypes (weak ones adapt).
    """
    if operand is not _NOTHING:
        operands = (operand,)
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]) and not callable(true_fun):
        return _with_operands_of_their_own(pred, true_fun, false_fun, *operands)
    if not (callable(true_fun) and callable(false_fun)):
        raise TypeError(
            f"cond: true_fun and false_fun must be functions, got {true_fun!r:.30} and {false_fun!r:.30}\n"
            f"  at {line_of(user_source())}\n  fix: cond(pred, lambda: 1, lambda: 2); operands come after the functions"
        )
    pred = bool(pred) if isinstance(pred, int) else pred
    _, type, _ = value(pred, "pred")
    if type.shape != ():
        raise TypeError(
            f"cond: pred must be a scalar, it is {type}\n  fix: jnp.any(pred) or jnp.all(pred); elementwise choice is jnp.where"
        )
    if in_python() and is_known(pred):
        return true_fun(*operands) if bool(pred) else false_fun(*operands)
    truth = pred if type.dtype == np.bool_ else mnp.not_equal(pred, 0)
    return _branch("cond", cast(truth, np.int32), [false_fun, true_fun], operands)


def switch(index: Any, branches: Sequence[Function], *operands: Any, operand: Any = _NOTHING) -> Any:
    """branches[index](*operands), index being clamped to those there are (`jax.lax.switch`)."""
    if operand is not _NOTHING:
        operands = (operand,)
    if not branches:
        raise ValueError(f"switch: there are no branches\n  at {line_of(user_source())}\n  fix: give one function per index")
    for branch in branches:
        check_callable("switch", branch)
    if isinstance(index, int) and not isinstance(index, bool):
        index = min(max(index, 0), len(branches) - 1)
    _, type, _ = value(index, "index")
    if type.shape != () or type.dtype.kind not in "iu":
        raise TypeError(f"switch: index must be an integer scalar, it is {type}")
    if len(branches) == 1:
        return branches[0](*operands)
    if in_python() and is_known(index):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    return _branch("switch", cast(mnp.clip(index, 0, len(branches) - 1), np.int32), branches, operands)


def _with_operands_of_their_own(pred: Any, own: Any, true_fun: Function, others: Any, false_fun: Function) -> Any:
    return cond(pred, lambda own, _: true_fun(own), lambda _, others: false_fun(others), own, others)


def _agreed(branches: list[tuple[np.dtype[Any], bool]]) -> tuple[np.dtype[Any], bool]:
    """The dtype of a result. Of one dtype in all branches, it is weak where the first branch's is, as in JAX."""
    dtype, weak = promote(branches)
    return dtype, branches[0][1] if len({d for d, _ in branches}) == 1 else weak


def _branch(what: str, index: Any, functions: Sequence[Function], operands: tuple[Any, ...]) -> Any:
    for function in functions:
        _check_operands(what, function, operands)
    operands = without_float0(operands)
    leaves = leaves_of(operands, "operands")
    structures = [tree.structure(x) for x in operands]
    axes = varying_of(index)  # where devices take branches of their own, they differ in all that branches read
    values = [vary(x, axes) for x in leaves.values]
    arguments = [replace(a, varying=a.varying | axes) for a in leaves.arguments]
    traced, mesh = on_one_mesh(*(trace_region(f, arguments, *structures, everywhere=axes, writes=True) for f in functions))
    _check_results(what, traced)
    consts, refs = split_captured(*traced)
    captured = [*consts, *refs]
    agreed = [_agreed([(a.type.dtype, a.weak) for a in column]) for column in _columns(traced)]
    agreed = [*((r.type.dtype, r.weak) for r in refs), *agreed]
    programs = tuple(_converted(_giving_back(refs, t, captured), [d for d, _ in agreed]) for t in traced)
    types = [TensorType((), np.dtype(np.int32)), *programs[0].input_types]
    weak = [w for _, w in agreed]
    inputs = [*(vary(x, axes) for x in captured), *values]
    same = {i: inputs[place] for i, place in in_all(programs).items()}
    branches = tuple(without(p, same) for p in programs)
    results = apply(ops("case"), [index, *inputs], types, weak, mesh, same, branches=branches)
    store_outputs(refs, results[: len(refs)])
    return tree.unflatten(traced[0].out_tree, results[len(refs) :])


def _giving_back(refs: Sequence[Any], traced: Traced, captured: Sequence[Any]) -> Program:
    """The branch, whose first outputs are what all these refs, the last of `captured`, hold after it."""
    program = captured_first(traced, captured)
    if not refs:
        return program
    start, own = len(captured) - len(refs), len(traced.writes)
    written = dict(zip(map(id, traced.writes), program.outputs[:own], strict=True))
    after = [written.get(id(ref), before) for ref, before in zip(refs, program.inputs[start : start + len(refs)], strict=True)]
    return program.with_outputs([*after, *program.outputs[own:]])


def _check_operands(what: str, function: Function, operands: tuple[Any, ...]) -> None:
    """TypeError where the function does not take as many arguments as there are operands."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a builtin: it speaks for itself
        return
    try:
        signature.bind(*operands)
    except TypeError as error:
        raise TypeError(
            f"{what}: {function_name(function)}{signature} is called with the {len(operands)} operands behind the functions:"
            f" {error}\n  at {line_of(user_source())}\n"
            f"  fix: give it its operands, {what}(..., x), or write functions of none that close over what they need"
        ) from None


def _columns(traced: Sequence[Traced]) -> list[tuple[Argument, ...]]:
    return list(zip(*(t.out_arguments for t in traced), strict=True))


def _check_results(what: str, traced: Sequence[Traced]) -> None:
    """Branches must agree in structure, shapes, and in dtypes but for weak ones."""
    first = traced[0]
    for other in traced[1:]:
        if other.out_tree != first.out_tree:
            raise TypeError(
                f"{what}: the branches return different structures\n"
                f"  {first.program.name}: {first.out_tree}\n  {other.program.name}: {other.out_tree}"
            )
        for i, (a, b) in enumerate(zip(first.out_arguments, other.out_arguments, strict=True)):
            if a.type.shape != b.type.shape or (a.type.dtype != b.type.dtype and not (a.weak or b.weak)) or a.placed != b.placed:
                name = tree.names_in(first.out_tree, "result")[i]
                by = ".astype" if a.placed == b.placed else "reshard"
                raise TypeError(
                    f"{what}: the branches return different types: {name} is {a} in {first.program.name}"
                    f" and {b} in {other.program.name}\n  fix: make them agree, for instance by {by} in one of them"
                )
            if a.varying != b.varying:
                raise TypeError(_varies_otherwise(what, first, other, i))


def _varies_otherwise(what: str, first: Traced, other: Traced, index: int) -> str:
    a, b = first.out_arguments[index], other.out_arguments[index]
    name = tree.names_in(first.out_tree, "result")[index]
    fewer, more = (first, b.varying - a.varying) if b.varying - a.varying else (other, a.varying - b.varying)
    here, there = (tuple(sorted(x.varying)) or "no axis" for x in (a, b))
    return (
        f"{what}: {name} {a.type} varies over {here} in {first.program.name} and over {there} in {other.program.name}\n"
        f"  at {line_of(user_source())}\n"
        f"  fix: lax.pcast({name}, {tuple(sorted(more))}, to='varying') in {fewer.program.name}"
    )


def _converted(program: Program, dtypes: Sequence[np.dtype[Any]]) -> Program:
    """The branch with its outputs in these dtypes."""
    if all(v.dtype == d for v, d in zip(program.outputs, dtypes, strict=True)):
        return program
    with Builder(program.name) as builder:
        outputs = builder.inline(program, [builder.input(v.type, v.hint) for v in program.inputs])
        convert = ops("convert")
        return builder.build(
            [v if v.dtype == d else convert(v, dtype=d) for v, d in zip(outputs, dtypes, strict=True)]
        )
