"""What rules of matrix ops are written with: products, transposes and triangles of the last two dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import emit_splat, iota, zeros_like
from meshjit.ops.base.conversion import conjugate
from meshjit.ops.base.families import factor_names, require, require_param
from meshjit.ops.base.shape import transpose
from meshjit.ops.reduce.contraction import dot_general

MATRIX_DTYPES = tuple(DTYPES[name] for name in ("f32", "f64", "c64", "c128"))


def require_matrix(op: str, type: TensorType, name: str = "operand", square: bool = False) -> None:
    """Type rules of matrix ops: two dims at least, of real or complex numbers of 32 or 64 bits a part."""
    require(type.rank >= 2, op, f"{name} {type} needs at least 2 dims")
    require(type.dtype in MATRIX_DTYPES, op, f"{name} must be f32, f64, c64 or c128, is {type}")
    require(not square or type.shape[-1] == type.shape[-2], op, f"{name} {type} is not square")


def require_flag(op: str, params: Any, *names: str) -> None:
    for name in names:
        require_param(isinstance(params[name], bool), op, name, params[name], "True or False is needed")


def batch_names(rank: int) -> tuple[tuple[str], ...]:
    """Factors of the dims before the matrix; matrix dims are called i, j, k."""
    spare = [name for name in factor_names(min(26, rank + 3)) if name not in "ijk"] if rank <= 20 else []
    names = spare[:rank] if len(spare) >= rank else [f"b{d}" for d in range(rank)]
    return tuple((name,) for name in names)


def matmul(a: Var, b: Var) -> Var:
    batch = tuple(range(a.rank - 2))
    contract = ((a.rank - 1,), (a.rank - 2,))
    return dot_general(a, b, contract=contract, batch=(batch, batch), preferred=None, precision="highest")


def transposed(var: Var) -> Var:
    return transpose(var, permutation=(*range(var.rank - 2), var.rank - 1, var.rank - 2))


def conj(var: Var) -> Var:
    """The conjugate; of reals they themselves."""
    return conjugate(var) if var.dtype.kind == "c" else var


def adjoint(var: Var) -> Var:
    return conj(transposed(var))


def triangle(var: Var, lower: bool, strict: bool = False) -> Var:
    """The lower or upper triangle, with or without (`strict`) the diagonal; zeros elsewhere."""
    index = np.dtype(np.int32)
    rows, columns = (iota(dtype=index, shape=var.shape, dimension=d) for d in (var.rank - 2, var.rank - 1))
    direction = ("GT" if strict else "GE") if lower else ("LT" if strict else "LE")
    return select(compare(rows, columns, direction=direction), var, zeros_like(var))


def diagonal_part(var: Var) -> Var:
    """The diagonal, zeros elsewhere."""
    index = np.dtype(np.int32)
    rows, columns = (iota(dtype=index, shape=var.shape, dimension=d) for d in (var.rank - 2, var.rank - 1))
    return select(compare(rows, columns, direction="EQ"), var, zeros_like(var))


# -- text


def emit_triangle(e: Any, x: str, type: TensorType, lower: bool, strict: bool = False) -> str:
    """`triangle`, as StableHLO."""
    index, flag = type.with_dtype(np.int32), type.with_dtype(np.bool_)
    rows, columns = (e.op("iota", [], [index], f"iota_dimension = {d} : i64")[0] for d in (type.rank - 2, type.rank - 1))
    word = ("GT" if strict else "GE") if lower else ("LT" if strict else "LE")
    inside = e.op("compare", [rows, columns], [flag], f"comparison_direction = #stablehlo<comparison_direction {word}>")
    return e.op("select", [*inside, x, emit_zeros(e, type)], [type])[0]


def emit_zeros(e: Any, type: TensorType) -> str:
    return emit_splat(e, type, 0)


def emit_empty(e: Any, outs: Types) -> Sequence[str]:
    """Results without elements, or of sums of nothing."""
    return [emit_zeros(e, type) for type in outs]


# -- operands for tests


def matrix(generator: np.random.Generator, type: TensorType) -> np.ndarray[Any, Any]:
    """Normal numbers, complex where the dtype is."""
    parts = generator.normal(size=(2, *type.shape))
    return (parts[0] + 1j * parts[1] if type.dtype.kind == "c" else parts[0]).astype(type.dtype)


def adjoint_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.conj(np.swapaxes(array, -1, -2))
