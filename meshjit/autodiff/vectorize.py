"""vmap: a function of one example as a function of a batch of them."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import Function, check_function, named_leaves, operands_of, run, trace_flat
from meshjit.autodiff.vmappable import RULES, OwnResult, check_arrays, has_own, of_parts
from meshjit.core.promotion import is_python_number
from meshjit.core.ref import Ref
from meshjit.core.types import TensorType
from meshjit.numpy.promote import normal_axis
from meshjit.trace import Argument, Traced, argument_of, line_of, user_source
from meshjit.trace.float0 import float0_zeros, is_float0, with_float0_shapes, without_float0
from meshjit.trace.members import member_axis
from meshjit.trace.meshes import Meshes
from meshjit.trace.names import function_name, wraps
from meshjit.trace.refs import borrowed, check_distinct, content_of, is_slot, lend, refs_in, store_outputs, type_of_ref
from meshjit.transform.batch import batch
from meshjit.tree_views import hidden_dims
from meshjit.trees import USERS, WORDS as tree
from sharding.spec import ShardingError


def vmap(
    fun: Function,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    spmd_axis_name: str | tuple[str, ...] | None = None,
) -> Function:
    """fun for many inputs at once (`jax.vmap`).

    Args:
      in_axes: where the arguments' batch dim is: an int, None for arguments that all members share (they reach fun as they
        are, and may be anything), or a tuple with a pytree prefix per argument. Keyword arguments are batched over dim 0.
      out_axes: where the results' batch dim goes: an int, None for results that are equal for all members, or a prefix.
      axis_name: what collectives inside (`lax.psum`, `lax.all_gather`, …) call the batch's axis.
      axis_size: the batch's extent, needed where no argument has it.
      spmd_axis_name: the axes of the mesh over which the batch dim is spread wherever a sharding constraint inside pins a
        batched value; without it that dim is left to the compiler there.
    """
    check_function(fun, "vmap")
    hash(axis_name)
    if not (spmd_axis_name is None or _is_axes(spmd_axis_name)):
        raise TypeError(f"vmap: spmd_axis_name must be the name of a mesh axis or a tuple of names, got {spmd_axis_name!r}")
    if not (in_axes is None or isinstance(in_axes, int | tuple | list)):
        raise TypeError(f"vmap: in_axes must be an int, None or a tuple with one entry per argument, got {in_axes!r}")

    @boundary
    @wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if Ref.made and (refs := _mapped_refs(in_axes, args, kwargs)):
            return _of_contents(refs)(*lend(args, refs), **lend(kwargs, refs))
        if not RULES:
            return _of_arrays(*args, **kwargs)
        if not has_own((args, kwargs)):
            with contextlib.suppress(OwnResult):
                return _of_arrays(*args, **kwargs)
        return of_parts(_over, fun, in_axes, out_axes, axis_size)(*args, **kwargs)

    def _over(fun: Function, in_axes: Any, out_axes: Any, axis_size: int | None) -> Function:
        return vmap(fun, in_axes, out_axes, axis_name, axis_size, spmd_axis_name)

    def _of_arrays(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree, names = named_leaves(fun, args, kwargs)
        axes = _argument_axes(in_axes, args) + [0] * len(tree.leaves(kwargs))
        sizes = _extents_of_types(leaves, names, axes)
        leaves, axes = map(list, zip(*map(_member_without_elements, leaves, axes), strict=True)) if leaves else ([], [])
        shared = [x for x, d in zip(leaves, axes, strict=True) if d is None]
        positional = len(tree.leaves(args))
        arguments = [
            argument_of(x, n, _FIX if i < positional else _FIX_BY_KEYWORD)
            for i, (x, n, d) in enumerate(zip(leaves, names, axes, strict=True))
            if d is not None
        ]
        mapped_ones = [(d, hidden) for d, hidden in zip(axes, hidden_dims(in_tree), strict=True) if d is not None]
        dims = [_dim(d, a, a.type.rank - hidden) for (d, hidden), a in zip(mapped_ones, arguments, strict=True)]
        sizes |= {a.name: a.type.shape[d] for a, d in zip(arguments, dims, strict=True)}
        size = _batch_size(sizes, axis_size)
        members, spread = [a.without_dim(d) for a, d in zip(arguments, dims, strict=True)], _spread(arguments, dims)
        operands = operands_of([x for x, d in zip(leaves, axes, strict=True) if d is not None], arguments)
        if axis_name is not None:  # the members' numbers are one more argument
            numbers = np.arange(size, dtype=np.int32) if size < _MANY else mnp.arange(size)
            members, operands, dims = [*members, _NUMBER], [*operands, numbers], [*dims, 0]

        def of_members(*values: Any) -> Any:
            given, rest = iter(values), iter(shared)
            full, named = tree.unflatten(in_tree, [next(rest) if d is None else next(given) for d in axes])
            with member_axis(axis_name, size, values[-1]) if axis_name is not None else contextlib.nullcontext():
                result = fun(*full, **named)
            if RULES:
                check_arrays(result)
            untyped[:] = map(_is_untyped, tree.leaves(without_float0(result)))
            return result

        untyped: list[bool] = []
        names_by_id = dict(zip(map(id, leaves), names, strict=True))
        unknown, flat = [None] * len(members), tree.structure(((0,) * len(members), {}))
        traced = trace_flat(of_members, members, unknown, flat, function_name(fun), names_by_id)
        if spmd_axis_name is not None and traced.mesh is not None and not isinstance(traced.mesh, Meshes):
            _check_axes(spmd_axis_name, traced.mesh)
        _check_own_refs(traced)
        places = [*dims, *[None] * len(traced.captured)]
        names = tree.names_in(traced.out_tree, "out_axes")
        out_dims = _result_dims(out_axes, traced)
        program = batch(traced.program, places, size, out_dims, spmd_axis_name or spread or None, names)
        outs = zip(traced.out_arguments, out_dims, untyped, strict=True)
        types = [None if d is None or anywhere else a.with_dim(d, size, spread) for a, d, anywhere in outs]
        results = run(program, [*operands, *traced.captured], traced.out_weak, traced.mesh, types)
        return tree.unflatten(with_float0_shapes(traced.out_tree, lambda shape: (size, *shape)), results)

    def _of_contents(refs: dict[int, tuple[Ref, int]]) -> Function:
        """The same for arguments in which these refs, with the dims that are mapped over, are lent."""

        @wraps(fun)
        def of_members(*args: Any, **kwargs: Any) -> Any:
            (args, kwargs), own = borrowed((args, kwargs))
            return fun(*args, **kwargs), [content_of(ref) for ref in own]

        dims = [dim for _, dim in refs.values()]
        over = _over(of_members, in_axes, (out_axes, dims), axis_size)

        def call(*args: Any, **kwargs: Any) -> Any:
            result, contents = over(*args, **kwargs)
            store_outputs([ref for ref, _ in refs.values()], contents)
            return result

        return call

    return mapped


def _is_untyped(x: Any) -> bool:
    """Whether a result is of no mesh: its copies are not spread over one either."""
    return isinstance(x, np.ndarray | np.generic) or is_python_number(x)


def _mapped_refs(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, tuple[Ref, int]]:
    """The refs among the arguments that are mapped over, by id, with the dim."""
    if not refs_in((args, kwargs)):
        return {}
    check_distinct("vmap", (args, kwargs))
    leaves, structure = USERS.flatten(args)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    dims = [axes] * len(leaves)
    if isinstance(axes, tuple) and len(axes) == len(args):
        dims = USERS.flatten_prefix(axes, structure, "in_axes", is_leaf=lambda x: x is None)
    pairs = [*zip(leaves, dims, strict=True), *((x, 0) for x in USERS.leaves(kwargs))]
    return {id(x): (x, d % max(1, x.ndim)) for x, d in pairs if type(x) is Ref and d is not None}


def _check_own_refs(traced: Traced) -> None:
    """ValueError where members write to a ref that all of them share: even one value for all would be added once for each."""
    refs = [*traced.writes, *(x.of for x in traced.captured if is_slot(x))]
    if refs:
        raise ValueError(
            f"vmap: all members write to one {type_of_ref(refs[0])}, made at {line_of(refs[0].source)}\n"
            f"  at {line_of(user_source())}\n"
            "  fix: give the function a Ref with one element for each member as an argument, or return the value"
        )


def _extents_of_types(leaves: Sequence[Any], names: Sequence[str], axes: Sequence[int | None]) -> dict[str, int]:
    """The batch's extent in mapped arguments that are types alone, by their names."""
    types = [(x, n, d) for x, n, d in zip(leaves, names, axes, strict=True) if d is not None and isinstance(x, ShapeDtypeStruct)]
    return {n: x.shape[normal_axis(d, len(x.shape))] for x, n, d in types}


def _member_without_elements(x: Any, axis: int | None) -> tuple[Any, int | None]:
    """An argument's leaf and its batch dim; what has no elements, float0 or a type alone, is the same for all members."""
    if axis is None or not (is_float0(x) or isinstance(x, ShapeDtypeStruct)):
        return x, axis
    dim = normal_axis(axis, len(x.shape))
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    return float0_zeros(shape) if is_float0(x) else ShapeDtypeStruct(shape, x.dtype), None


_FIX = "in_axes=None for an argument that all members share; such arguments may be anything"
_FIX_BY_KEYWORD = "keyword arguments are mapped: pass it by position, with in_axes=None, or close over it"
_MANY = 1 << 12  # members from which their numbers are counted on the device
_NUMBER = Argument(TensorType((), np.dtype(np.int32)), name="the member's number")


def _is_axes(name: Any) -> bool:
    return isinstance(name, str) or (isinstance(name, tuple) and all(isinstance(n, str) for n in name))


def _check_axes(name: str | tuple[str, ...], mesh: Any) -> None:
    """ShardingError where the batch's axes are none of the mesh's."""
    for axis in (name,) if isinstance(name, str) else name:
        if axis not in mesh.axis_names:
            raise ShardingError(
                f"vmap: spmd_axis_name has {axis!r}, but the constraints inside are on {mesh}\n  fix: one of {mesh.axis_names}"
            )


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
    dims = tree.flatten_prefix(axes, structure, what, is_leaf=lambda x: x is None)
    for axis in dims:
        if not (axis is None or isinstance(axis, int)):
            raise TypeError(f"vmap: {what} must hold ints and None, found {type(axis).__name__} {axis!r}")
    return dims


def _dim(dim: int, argument: Argument, rank: int) -> int:
    """The dim counted from the front; `rank` is that of the array that users see."""
    if not -rank <= dim < rank:
        raise ValueError(
            f"vmap: in_axes is {dim} for {argument.name} {argument.type}, which has {rank} dims\n"
            "  fix: use None for arguments that all members share"
        )
    return dim % rank


def _batch_size(sizes: dict[str, int], axis_size: int | None) -> int:
    """The one extent that all arguments have, by their names."""
    if axis_size is not None:
        sizes["axis_size"] = axis_size
    if len(set(sizes.values())) != 1:
        fix = "in_axes=None for arguments that all members share" if sizes else "axis_size=..., how many members there are"
        raise ValueError(f"vmap needs one batch extent, found {sizes or 'none'}\n  fix: {fix}")
    return next(iter(sizes.values()))


def _spread(arguments: Sequence[Argument], dims: Sequence[int]) -> tuple[str, ...]:
    """The explicit axes over which the batch is spread; ValueError where arguments differ in that."""
    spread = {a.axes[d]: a.name for a, d in zip(arguments, dims, strict=True)}
    if len(spread) > 1:
        (a, first), (b, second), *_ = spread.items()
        places = f"that of {first} over {a or 'no axis'}, that of {second} over {b or 'no axis'}"
        raise ValueError(
            f"vmap: the mapped dims are placed differently: {places}\n"
            f"  at {line_of(user_source())}\n  fix: meshjit.sharding.reshard one of them before"
        )
    return next(iter(spread), ())  # pyright: ignore[reportReturnType]


def _result_dims(out_axes: Any, traced: Traced) -> list[int | None]:
    dims: list[int | None] = []
    axes = _prefix_dims(out_axes, traced.out_tree, "out_axes")
    for i, (axis, var, hidden) in enumerate(zip(axes, traced.program.outputs, hidden_dims(traced.out_tree), strict=True)):
        rank = len(var.shape) - hidden + 1
        if axis is not None and not -rank <= axis < rank:
            raise ValueError(
                f"vmap: out_axes is {axis} for {tree.names_in(traced.out_tree, 'result')[i]} {var.type},"
                f" which has {rank} dims with the batch"
            )
        dims.append(None if axis is None else axis % rank)
    return dims
