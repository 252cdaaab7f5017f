"""vmap: a function of one example as a function of a batch of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meshjit import tree
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import Function, check_function, named_leaves, operands_of, run, trace_flat
from meshjit.trace import Argument, Traced, argument_of
from meshjit.transform.batch import batch


def vmap(fun: Function, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None, axis_size: int | None = None) -> Function:
    """fun for many inputs at once (`jax.vmap`).

    Args:
      in_axes: where the arguments' batch dim is: an int, None for arguments that all members share, or a tuple with a
        pytree prefix per argument. Keyword arguments are batched over dim 0.
      out_axes: where the results' batch dim goes: an int, None for results that are equal for all members, or a prefix.
      axis_size: the batch's extent, needed where no argument has it.
    """
    check_function(fun, "vmap")
    if axis_name is not None:
        raise NotImplementedError("vmap(axis_name=...): collectives inside vmap are not there yet; leave axis_name out")
    if not (in_axes is None or isinstance(in_axes, int | tuple | list)):
        raise TypeError(f"vmap: in_axes must be an int, None or a tuple with one entry per argument, got {in_axes!r}")

    @boundary
    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree, names = named_leaves(fun, args, kwargs)
        arguments = [argument_of(x, n) for x, n in zip(leaves, names, strict=True)]
        axes = _argument_axes(in_axes, args) + [0] * len(tree.leaves(kwargs))
        dims = [None if d is None else _dim(d, a) for d, a in zip(axes, arguments, strict=True)]
        size = _batch_size(dims, arguments, axis_size)
        members = [a if d is None else _member(a, d) for a, d in zip(arguments, dims, strict=True)]
        traced = trace_flat(fun, members, in_tree)
        wanted = _result_dims(out_axes, traced)
        program = batch(traced.program, [*dims, *[None] * len(traced.captured)], size, wanted)
        results = run(program, [*operands_of(leaves, arguments), *traced.captured], traced.out_weak, traced.mesh)
        return tree.unflatten(traced.out_tree, results)

    return mapped


def _argument_axes(in_axes: Any, args: tuple[Any, ...]) -> list[int | None]:
    if isinstance(in_axes, tuple | list) and len(in_axes) != len(args):
        raise ValueError(
            f"vmap: in_axes has {len(in_axes)} entries, but the function was called with {len(args)} positional arguments\n"
            "  fix: give one entry per argument, or a single int for all"
        )
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    return _prefix_dims(axes, tree.structure(args), "in_axes")


def _prefix_dims(axes: Any, structure: Any, what: str) -> list[int | None]:
    if isinstance(axes, int) or axes is None:
        return [axes] * structure.num_leaves
    found = tree.flatten_prefix(axes, structure, what, is_leaf=lambda x: x is None)
    for axis in found:
        if not (axis is None or isinstance(axis, int)):
            raise TypeError(f"vmap: {what} must hold ints and None, found {type(axis).__name__} {axis!r}")
    return found


def _dim(dim: int, argument: Argument) -> int:
    rank = argument.type.rank
    if not -rank <= dim < rank:
        raise ValueError(
            f"vmap: in_axes is {dim} for {argument.name} {argument.type}, which has {rank} dims\n"
            "  fix: use None for arguments that all members share"
        )
    return dim % rank


def _batch_size(dims: Sequence[int | None], arguments: Sequence[Argument], given: int | None) -> int:
    sizes = {a.name: a.type.shape[d] for d, a in zip(dims, arguments, strict=True) if d is not None}
    if given is not None:
        sizes["axis_size"] = given
    if len(set(sizes.values())) != 1:
        raise ValueError(f"vmap needs one batch extent, found {sizes or 'none'}")
    return next(iter(sizes.values()))


def _member(argument: Argument, dim: int) -> Argument:
    shape = argument.type.shape
    return replace(argument, type=argument.type.with_shape((*shape[:dim], *shape[dim + 1 :])))


def _result_dims(out_axes: Any, traced: Traced) -> list[int | None]:
    dims: list[int | None] = []
    axes = _prefix_dims(out_axes, traced.out_tree, "out_axes")
    for i, (axis, var) in enumerate(zip(axes, traced.program.outputs, strict=True)):
        rank = len(var.shape) + 1
        if axis is not None and not -rank <= axis < rank:
            dummy = tree.unflatten(traced.out_tree, range(len(axes)))
            raise ValueError(
                f"vmap: out_axes is {axis} for {tree.path_names(dummy, 'result')[i]} {var.type},"
                f" which has {rank} dims with the batch"
            )
        dims.append(None if axis is None else axis % rank)
    return dims
