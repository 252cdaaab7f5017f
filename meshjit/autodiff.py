"""grad, value_and_grad, vjp, jvp, vmap and what is made of them, with JAX's signatures.

Each traces its function to a Program, transforms that, and applies the result: inlined into the trace around it, or
compiled and run at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit import tree
from meshjit.core.types import is_inexact
from meshjit.trace import Traced, argument_of, as_operand, bind_program, line_of, trace_to_program, user_source
from meshjit.trace.program import function_name
from meshjit.transform.batch import batch
from meshjit.transform.jvp import jvp as jvp_program
from meshjit.transform.transpose import gradient
from meshjit.transform.transpose import vjp as vjp_program

Function = Callable[..., Any]


def _trace(fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Traced, list[Any], Any]:
    """(traced, flat operands, in_tree) of fun(*args, **kwargs)."""
    leaves, in_tree = tree.flatten((args, kwargs))
    names = _leaf_names(fun, args, kwargs)
    arguments = [argument_of(x, n) for x, n in zip(leaves, names, strict=True)]
    traced = trace_to_program(fun, arguments, in_tree, function_name(fun))
    return traced, [as_operand(x, a) for x, a in zip(leaves, arguments, strict=True)], in_tree


def _leaf_names(fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    import inspect

    try:
        parameters = list(inspect.signature(fun).parameters)
    except (ValueError, TypeError):
        parameters = []
    names: list[str] = []
    for i, x in enumerate(args):
        names += tree.path_names(x, parameters[i] if i < len(parameters) else f"args[{i}]")
    for k in sorted(kwargs):
        names += tree.path_names(kwargs[k], k)
    return names


def grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False
) -> Function:
    """The gradient of a scalar function with respect to the arguments `argnums` (`jax.grad`).

    With has_aux the function returns (value, aux) and the gradient (gradient, aux).
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(fun)
    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient_of


def value_and_grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False
) -> Function:
    """(value, gradient) at once (`jax.value_and_grad`)."""
    if not callable(fun):
        raise TypeError(f"grad needs a function, was given {type(fun).__name__}: {fun!r}")

    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        positions = _positions(fun, argnums, len(args))
        traced, operands, _ = _trace(fun, args, kwargs)
        wrt = _marked(args, kwargs, positions)
        _check_inputs(traced, wrt, holomorphic, allow_int, _leaf_names(fun, args, kwargs))
        count = _value_leaves(traced, has_aux)
        _check_scalar(traced, count, holomorphic)
        wrt = [w and is_inexact(v.dtype) for w, v in zip(wrt, traced.program.inputs, strict=False)]
        wrt += [False] * (len(traced.program.inputs) - len(wrt))
        results = _apply_gradient(traced, operands, wrt)
        outputs = len(traced.program.outputs)
        value = tree.unflatten(traced.out_tree, results[:outputs])
        return value, _gradients(args, positions, wrt, results[outputs:], argnums)

    return value_and_gradient


def _positions(fun: Function, argnums: int | Sequence[int], count: int) -> list[int]:
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for n in numbers:
        if not -count <= n < count:
            name = function_name(fun)
            raise ValueError(f"grad of {name}: argnums has {n}, but it was called with {count} positional arguments")
    return [n % count for n in numbers]


def _marked(args: tuple[Any, ...], kwargs: dict[str, Any], positions: Sequence[int]) -> list[bool]:
    flags: list[bool] = []
    for i, x in enumerate(args):
        flags += [i in positions] * len(tree.leaves(x))
    return flags + [False] * len(tree.leaves(kwargs))


def _check_inputs(traced: Traced, wrt: Sequence[bool], holomorphic: bool, allow_int: bool, names: Sequence[str]) -> None:
    for flag, var, name in zip(wrt, traced.program.inputs, names, strict=False):
        if not flag:
            continue
        if not is_inexact(var.dtype) and not allow_int:
            raise TypeError(
                f"grad needs floating or complex arguments, but {name} is {var.type}\n"
                f"  fix: pass {name} as a float (x.astype(float)), or leave it out of argnums"
            )
        if (var.dtype.kind == "c") != holomorphic and is_inexact(var.dtype):
            raise TypeError(f"grad of a {'complex' if not holomorphic else 'real'} argument {name} {var.type}: "
                            f"set holomorphic={not holomorphic}")  # fmt: skip


def _value_leaves(traced: Traced, has_aux: bool) -> int:
    if not has_aux:
        return traced.out_tree.num_leaves
    dummy = tree.unflatten(traced.out_tree, range(traced.out_tree.num_leaves))
    if not (isinstance(dummy, tuple) and len(dummy) == 2):
        raise TypeError(f"grad with has_aux: the function must return (value, aux), it returned {type(dummy).__name__}")
    return len(tree.leaves(dummy[0]))


def _check_scalar(traced: Traced, count: int, holomorphic: bool) -> None:
    first = traced.program.outputs[0].type if count == 1 else None
    if first is None or first.shape != ():
        shown = first if first is not None else f"{count} arrays"
        raise TypeError(
            f"gradient only defined for scalar-output functions; {traced.program.name} returned {shown}\n"
            f"  at {line_of(user_source())}\n  fix: reduce it (mnp.mean, mnp.sum), use has_aux=True for other results, or jacrev"
        )
    if not is_inexact(first.dtype) or (first.dtype.kind == "c" and not holomorphic):
        raise TypeError(f"gradient needs a real floating result; {traced.program.name} returned {first}")


def _apply_gradient(traced: Traced, operands: list[Any], wrt: Sequence[bool]) -> list[Any]:
    """Run forward and backward with 1 as the value's cotangent and 0 for aux."""
    program = gradient(traced.program, wrt)
    seeds = [
        np.full(v.shape, i == 0, v.dtype) for i, v in enumerate(traced.program.outputs) if is_inexact(v.dtype)
    ]
    weak = [*traced.out_weak, *(False for flag in wrt if flag)]
    return bind_program(program, [*operands, *traced.captured, *seeds], weak)


def _gradients(
    args: tuple[Any, ...], positions: Sequence[int], wrt: Sequence[bool], found: list[Any], argnums: int | Sequence[int]
) -> Any:
    """The flat gradients as trees like the arguments; integer leaves (allow_int) get zeros of dtype float0, as in JAX."""
    rest = iter(found)
    flags = iter(wrt)
    trees: dict[int, Any] = {}
    for i, x in enumerate(args):
        leaves, structure = tree.flatten(x)
        marks = [next(flags) for _ in leaves]
        if i in positions:
            float0 = np.dtype([("float0", "V")])
            values = [next(rest) if m else np.zeros(np.shape(x), float0) for m, x in zip(marks, leaves, strict=True)]
            trees[i] = tree.unflatten(structure, values)
    return trees[positions[0]] if isinstance(argnums, int) else tuple(trees[i] for i in positions)


def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """(value, derivative in the direction `tangents`) (`jax.jvp`)."""
    primals, tangents = tuple(primals), tuple(tangents)
    traced, operands, in_tree = _trace(fun, primals, {})
    flat, structure = tree.flatten((tangents, {}))
    if structure != in_tree:
        raise TypeError(f"jvp: primals and tangents differ in structure: {in_tree} and {structure}")
    inexact = [is_inexact(v.dtype) for v in traced.program.inputs[: len(operands)]]
    nonzero = inexact + [False] * len(traced.captured)
    program, flags = jvp_program(traced.program, nonzero)
    directions = []
    for t, v, flag in zip(flat, traced.program.inputs, inexact, strict=False):
        if flag:
            directions.append(_checked_tangent(t, v.type))
    weak = [*traced.out_weak, *(False for f in flags if f)]
    results = bind_program(program, [*operands, *traced.captured, *directions], weak)
    count = len(traced.program.outputs)
    rest = iter(results[count:])
    tangent_out = [next(rest) if f else mnp.zeros(v.shape, v.dtype) for f, v in zip(flags, traced.program.outputs, strict=True)]
    value, derivative = tree.unflatten(traced.out_tree, results[:count]), tree.unflatten(traced.out_tree, tangent_out)
    return (value[0], derivative[0], value[1]) if has_aux else (value, derivative)


def _checked_tangent(tangent: Any, type: Any) -> Any:
    argument = argument_of(tangent, "tangent")
    if argument.type.shape != type.shape:
        raise ValueError(f"jvp: a tangent has shape {argument.type.shape}, its primal {type.shape}")
    return mnp.astype(as_operand(tangent, argument), type.dtype)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(value, function from cotangents of the value to those of the primals) (`jax.vjp`)."""
    traced, operands, in_tree = _trace(fun, primals, {})
    wrt = [is_inexact(v.dtype) for v in traced.program.inputs[: len(operands)]] + [False] * len(traced.captured)
    pulled = vjp_program(traced.program, wrt)
    count = len(traced.program.outputs)
    residual_count = len(pulled.forward.outputs) - count
    results = bind_program(pulled.forward, [*operands, *traced.captured], [*traced.out_weak, *[False] * residual_count])
    value, residuals = tree.unflatten(traced.out_tree, results[:count]), results[count:]
    value_count = _value_leaves(traced, has_aux)

    def pull(cotangents: Any) -> Any:
        flat = tree.leaves(cotangents)
        if len(flat) != value_count:
            raise TypeError(f"vjp: the function returned {value_count} arrays, it was given {len(flat)} cotangents")
        given = []
        for i, (v, takes) in enumerate(zip(traced.program.outputs, pulled.takes, strict=True)):
            if takes:
                given.append(_checked_cotangent(flat[i], v.type) if i < value_count else mnp.zeros(v.shape, v.dtype))
        found = iter(bind_program(pulled.backward, [*residuals, *given]))
        leaves = [
            next(found) if flag else np.zeros(v.shape, [("float0", "V")])
            for flag, v in zip(wrt, traced.program.inputs[: len(operands)], strict=False)
        ]
        return tree.unflatten(in_tree, leaves)[0]

    return (value[0], pull, value[1]) if has_aux else (value, pull)


def _checked_cotangent(cotangent: Any, type: Any) -> Any:
    argument = argument_of(cotangent, "cotangent")
    if argument.type.shape != type.shape:
        raise ValueError(f"vjp: a cotangent has shape {argument.type.shape}, the result {type.shape}")
    return mnp.astype(as_operand(cotangent, argument), type.dtype)


def linearize(fun: Function, *primals: Any) -> tuple[Any, Function]:
    """(value, the jvp at these primals as a function of the tangents)."""
    value = fun(*primals)
    return value, lambda *tangents: jvp(fun, primals, tangents)[1]


def vmap(fun: Function, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None, axis_size: int | None = None) -> Function:
    """fun for many inputs at once: `in_axes` (an int, None, or a pytree prefix of the arguments) says where their batch
    dim is, `out_axes` where the results' goes (`jax.vmap`)."""
    if axis_name is not None:
        raise NotImplementedError("vmap(axis_name=...): collectives inside vmap are not there yet; leave axis_name out")

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        args_tree = tree.structure(args)
        axes = in_axes if isinstance(in_axes, int) or in_axes is None else tuple(in_axes)
        dims = _prefix_dims(axes, args_tree, "in_axes") + [0] * len(tree.leaves(kwargs))
        leaves, in_tree = tree.flatten((args, kwargs))
        names = _leaf_names(fun, args, kwargs)
        arguments = [argument_of(x, n) for x, n in zip(leaves, names, strict=True)]
        dims = [None if d is None else _dim(d, a) for d, a in zip(dims, arguments, strict=True)]
        size = _batch_size(dims, arguments, axis_size)
        members = [a if d is None else _member(a, d) for a, d in zip(arguments, dims, strict=True)]
        traced = trace_to_program(fun, members, in_tree, function_name(fun))
        outs = [
            _positive(d, len(v.shape) + 1)
            for d, v in zip(_prefix_dims(out_axes, traced.out_tree, "out_axes"), traced.program.outputs, strict=True)
        ]
        program = batch(traced.program, [*dims, *[None] * len(traced.captured)], size, outs)
        operands = [as_operand(x, a) for x, a in zip(leaves, arguments, strict=True)]
        results = bind_program(program, [*operands, *traced.captured], traced.out_weak)
        return tree.unflatten(traced.out_tree, results)

    return mapped


def _prefix_dims(axes: Any, structure: Any, what: str) -> list[int | None]:
    if isinstance(axes, int) or axes is None:
        return [axes] * structure.num_leaves
    return tree.flatten_prefix(axes, structure, what, is_leaf=lambda x: x is None)


def _positive(dim: int | None, rank: int) -> int | None:
    return None if dim is None else dim % rank


def _dim(dim: int, argument: Any) -> int:
    rank = argument.type.rank
    if not -rank <= dim < rank:
        raise ValueError(
            f"vmap: in_axes is {dim} for {argument.name} {argument.type}, which has {rank} dims\n"
            "  fix: use None for arguments that all members share"
        )
    return dim % rank


def _batch_size(dims: Sequence[int | None], arguments: Sequence[Any], given: int | None) -> int:
    sizes = {a.name: a.type.shape[d] for d, a in zip(dims, arguments, strict=True) if d is not None}
    if given is not None:
        sizes["axis_size"] = given
    if len(set(sizes.values())) != 1:
        raise ValueError(f"vmap needs one batch extent, found {sizes or 'none'}")
    return next(iter(sizes.values()))


def _member(argument: Any, dim: int) -> Any:
    from dataclasses import replace

    shape = argument.type.shape
    return replace(argument, type=argument.type.with_shape((*shape[:dim], *shape[dim + 1 :])))


def jacfwd(fun: Function, argnums: int = 0) -> Function:
    """The Jacobian by forward mode: result dims, then argument dims."""

    @functools.wraps(fun)
    def jacobian(*args: Any) -> Any:
        x = mnp.asarray(args[argnums])
        size = int(np.prod(x.shape, dtype=np.int64))

        def along(direction: Any) -> Any:
            return jvp(lambda v: fun(*args[:argnums], v, *args[argnums + 1 :]), (x,), (direction,))[1]

        basis = mnp.reshape(mnp.eye(size, dtype=x.dtype), (size, *x.shape))
        rows = vmap(along, out_axes=-1)(basis)
        return tree.map(lambda r: mnp.reshape(r, (*r.shape[:-1], *x.shape)), rows)

    return jacobian


def jacrev(fun: Function, argnums: int = 0) -> Function:
    """The Jacobian by reverse mode: result dims, then argument dims."""

    @functools.wraps(fun)
    def jacobian(*args: Any) -> Any:
        x = args[argnums]
        value, pull = vjp(lambda v: fun(*args[:argnums], v, *args[argnums + 1 :]), x)
        size = int(np.prod(value.shape, dtype=np.int64))
        basis = mnp.reshape(mnp.eye(size, dtype=value.dtype), (size, *value.shape))
        rows = vmap(lambda ct: pull(ct)[0])(basis)
        return tree.map(lambda r: mnp.reshape(r, (*value.shape, *r.shape[1:])), rows)

    return jacobian


def hessian(fun: Function, argnums: int = 0) -> Function:
    """Second derivatives: forward over reverse."""
    return jacfwd(jacrev(fun, argnums), argnums)


__all__ = ["grad", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "value_and_grad", "vjp", "vmap"]
