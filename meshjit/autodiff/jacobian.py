"""jacfwd, jacrev and hessian: whole Jacobians, one basis direction per member of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.tracebacks import boundary
from meshjit.autodiff.function import Function, call_of, check_function
from meshjit.autodiff.gradient import positions_of
from meshjit.autodiff.products import linearized, pulled_back
from meshjit.autodiff.vectorize import vmap
from meshjit.core.types import TensorType, is_inexact
from meshjit.trace.float0 import is_float0
from meshjit.trace.names import wraps
from meshjit.trees import WORDS as tree


def jacfwd(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Function:
    """The Jacobian by forward mode (`jax.jacfwd`): for tall ones, more results than arguments.

    A tree like the result, of trees like the argument (a tuple for several argnums), of arrays [*result, *argument].
    """
    check_function(fun, "jacfwd")

    @boundary
    @wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        positions = positions_of(fun, argnums, len(args), "jacfwd")
        call = call_of(fun, args, kwargs, "jacfwd", positions, has_aux)
        types = [_checked(a.type, "jacfwd", f"argument {a.name}", holomorphic) for a in call.arguments]
        pushed = linearized(call)
        columns = [_column(pushed[1], call.in_tree, types, i) for i in range(len(types))]
        result = _rows(columns, call.in_tree, isinstance(argnums, int | np.integer))
        return (result, pushed[2]) if has_aux else result

    return jacobian


def _column(slope: Any, structure: Any, types: Sequence[TensorType], place: int) -> Any:
    """Derivatives of every result with respect to one argument leaf."""
    type = types[place]

    def along(direction: Any) -> Any:
        zeros = [mnp.zeros(t.shape, t.dtype) for t in types]
        zeros[place] = direction
        return slope.func.push(*slope.args, tree.unflatten(structure, zeros))

    columns = vmap(along, out_axes=-1)(_basis(type))
    return tree.map(lambda c: _unrolled_column(c, type), columns)


def _unrolled_column(column: Any, type: TensorType) -> Any:
    """[*result, *argument]; zeros where the result is an integer."""
    if is_float0(column):
        return mnp.zeros((*column.shape[1:], *type.shape), np.int32)
    return mnp.reshape(column, (*column.shape[:-1], *type.shape))


def _rows(columns: Sequence[Any], structure: Any, single: bool) -> Any:
    """Trees like the result per argument leaf → a tree like the result of trees like the arguments."""
    outer = tree.structure(columns[0])
    flat = [tree.leaves(c) for c in columns]
    rows = [tree.unflatten(structure, [c[i] for c in flat]) for i in range(outer.num_leaves)]
    return tree.unflatten(outer, [row[0] if single else row for row in rows])


def jacrev(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False
) -> Function:
    """The Jacobian by reverse mode (`jax.jacrev`): for wide ones, more arguments than results. Its layout is jacfwd's."""
    check_function(fun, "jacrev")

    @boundary
    @wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        positions = positions_of(fun, argnums, len(args), "jacrev")
        call = call_of(fun, args, kwargs, "jacrev", positions, has_aux)
        for a in call.arguments if not allow_int else ():
            _checked(a.type, "jacrev", f"argument {a.name}", holomorphic)
        outer = call.value_tree
        paths = tree.names_in(outer, "result")
        outputs = call.traced.program.output_types[: len(paths)]
        types = [_checked(t, "jacrev", path, holomorphic) for t, path in zip(outputs, paths, strict=True)]
        pulled = pulled_back(call)
        rows = [_row(pulled[1], outer, types, i, isinstance(argnums, int | np.integer)) for i in range(len(types))]
        result = tree.unflatten(outer, rows)
        return (result, pulled[2]) if has_aux else result

    return jacobian


def _row(pull: Any, outer: Any, types: Sequence[TensorType], place: int, single: bool) -> Any:
    """Derivatives of one result leaf with respect to every argument."""
    type = types[place]
    kinds: list[Any] = []

    def back(cotangent: Any) -> Any:
        zeros = [mnp.zeros(t.shape, t.dtype) for t in types]
        zeros[place] = cotangent
        flat, structure = tree.flatten(pull.pull(tree.unflatten(outer, zeros)))
        kinds[:] = [structure, flat]
        return [x for x in flat if not is_float0(x)]

    rest = iter(vmap(back)(_basis(type)))
    structure, flat = kinds
    leaves = [
        mnp.zeros((*type.shape, *x.shape), np.int32) if is_float0(x) else _unrolled(next(rest), type)
        for x in flat
    ]
    row = tree.unflatten(structure, leaves)
    return row[0] if single else row


def _unrolled(row: Any, type: TensorType) -> Any:
    return mnp.reshape(row, (*type.shape, *row.shape[1:]))


def _basis(type: TensorType) -> Any:
    """Every direction of a value: [size, *shape]."""
    return mnp.reshape(mnp.eye(type.size, dtype=type.dtype), (type.size, *type.shape))


def _checked(type: TensorType, what: str, where: str, holomorphic: bool) -> TensorType:
    """TypeError where there is no derivative."""
    if not is_inexact(type.dtype):
        raise TypeError(f"{what} needs floating arguments and results, but {where} is {type}\n  fix: x.astype(float)")
    if holomorphic != (type.dtype.kind == "c"):
        kind = "complex" if type.dtype.kind == "c" else "real"
        raise TypeError(f"{what}: {where} {type} is {kind}, with holomorphic={holomorphic}")
    return type


def hessian(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Function:
    """Second derivatives, forward over reverse (`jax.hessian`): arrays [*result, *argument, *argument]."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)
