"""LAPACK's routines in StableHLO, for the devices that have them (`Target.kernels`): of LAPACK on CPU, of cuSOLVER on GPUs.

The kernels are jaxlib's custom calls. They take matrices by columns, as Fortran does, dims before them as a batch; XLA is
told so by layouts and transposes where it must. Options are the letters that LAPACK itself takes, for cuSOLVER in other words.
`info` is an i32 per matrix, 0 where all went well; what it means otherwise says LAPACK's manual of each routine.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from meshjit.core.op import Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, is_finite, select
from meshjit.ops.base.constants import emit_splat, full_like, zeros_like
from meshjit.ops.base.conversion import imag, real
from meshjit.ops.base.families import part_dtype
from meshjit.ops.base.reduction import reduce_and, restore
from meshjit.ops.linalg.matrices import emit_triangle

INFO = DTYPES["i32"]
_PREFIXES = {DTYPES["f32"]: "s", DTYPES["f64"]: "d", DTYPES["c64"]: "c", DTYPES["c128"]: "z"}
# Routines that are called otherwise for complex matrices.
_COMPLEX = {"syevd": "heevd", "orgqr": "ungqr", "ormqr": "unmqr", "sytrd": "hetrd"}
# What cuSOLVER's neighbours have, and jaxlib's own, of one name for all dtypes.
_OTHERS = {
    "gtsv": ("cusparse_gtsv2_ffi",),
    "solve_perturbed": ("tridiagonal_solve_perturbed_ffi", "cu_tridiagonal_solve_perturbed"),
    "order_of_pivots": ("cu_lu_pivots_to_permutation",),
}


def kernel(e: Any, routine: str, dtype: np.dtype[Any]) -> str | None:
    """The custom call's target: `getrf` of f32 is lapack_sgetrf_ffi or cusolver_getrf_ffi. None where the devices have none."""
    name = _COMPLEX.get(routine, routine) if dtype.kind == "c" else routine
    others = _OTHERS.get(routine, (f"cusolver_{routine}_ffi",))
    lapack = [f"lapack_{_PREFIXES[dtype]}{name}_ffi"] if dtype in _PREFIXES else []
    return next((target for target in (*lapack, *others) if target in e.target.kernels), None)


def on_gpu(e: Any, routine: str, dtype: np.dtype[Any]) -> bool:
    """Whether the routine is one of the libraries for GPUs."""
    target = kernel(e, routine, dtype)
    return target is not None and not target.startswith("lapack_")


def has_routines(e: Any, type: TensorType, *routines: str) -> bool:
    """Whether the devices can call these routines for matrices of this type. Empty ones are nobody's business but ours."""
    return 0 not in type.shape and all(kernel(e, routine, type.dtype) is not None for routine in routines)


def call(
    e: Any,
    routine: str,
    operands: Sequence[str],
    results: Types,
    options: str = "",
    in_place: Mapping[int, int] | None = None,
    batch: int | None = None,
    **letters: str,
) -> list[str]:
    """A routine on matrices whose first `batch` dims, by default those before operand 0's last two, are a batch.

    `letters` are options of one letter; `options` others, as MLIR has them. `in_place`: result → the operand whose memory
    it takes."""
    type = e.types[operands[0]]
    target = kernel(e, routine, type.dtype)
    leading = type.rank - 2 if batch is None else batch
    write = _in_letters if target is None or target.startswith("lapack_") else _in_words
    words = [write(name, letter) for name, letter in sorted(letters.items())]
    layouts = [", ".join(_layout(t, leading) for t in types) for types in ([e.types[o] for o in operands], results)]
    aliases = ", ".join(_alias(result, operand, len(results)) for result, operand in (in_place or {}).items())
    attributes = [
        f'call_target_name = "{target}"',
        "api_version = 4 : i32",
        f"backend_config = {{{', '.join([*words, *([options] if options else [])])}}}",
        f"operand_layouts = [{layouts[0]}]",
        f"result_layouts = [{layouts[1]}]",
        f"output_operand_aliases = [{aliases}]",
    ]
    return e.op("custom_call", operands, results, ", ".join(attributes))


def _in_letters(name: str, letter: str) -> str:
    return f"{name} = {ord(letter)} : ui8"


def _in_words(name: str, letter: str) -> str:
    """Of cuSOLVER's calls: `uplo`, which triangle is read, and `mode` of syevd, whose way cuSOLVER chooses itself."""
    return {"mode": "algorithm = 0 : ui8", "uplo": f"lower = {str(letter == 'L').lower()}"}[name]


def _layout(type: TensorType, batch: int) -> str:
    """Dims from minor to major: matrices by columns, anything else as it is written."""
    order = list(reversed(range(type.rank)))
    if type.rank == batch + 2:
        order[:2] = reversed(order[:2])
    return f"dense<{order if len(order) > 1 else order[0]}> : tensor<{len(order)}xindex>" if order else _NO_DIMS


_NO_DIMS = "dense<> : tensor<0xindex>"


def _alias(result: int, operand: int, count: int) -> str:
    indices = f"output_tuple_indices = [{result if count > 1 else ''}]"
    return f"#stablehlo.output_operand_alias<{indices}, operand_index = {operand}, operand_tuple_indices = []>"


def batch_type(type: TensorType, *dims: int, dtype: Any = None) -> TensorType:
    """The batch of a matrix type followed by other dims."""
    return TensorType((*type.shape[:-2], *dims), type.dtype if dtype is None else np.dtype(dtype))


def info_type(type: TensorType) -> TensorType:
    return batch_type(type, dtype=INFO)


def finite(e: Any, a: str) -> str:
    """Which matrices hold neither nan nor inf."""
    return e.program(_finite(e.types[a]), [a])[0]


@functools.lru_cache(maxsize=64)
def _finite(type: TensorType) -> Program:
    with Builder("finite") as builder:
        a = builder.input(type)
        parts = [real(a), imag(a)] if type.dtype.kind == "c" else [a]
        flags = functools.reduce(and_, [is_finite(part) for part in parts])
        return builder.build([reduce_and(flags, axes=(type.rank - 2, type.rank - 1))])


def without_bad(e: Any, a: str) -> tuple[str, str]:
    """(A with zeros for the matrices that hold nan or inf, on which some routines never end; which ones are finite)."""
    good = finite(e, a)
    return e.program(_zeroed(e.types[a]), [a, good])[0], good


@functools.lru_cache(maxsize=64)
def _zeroed(type: TensorType) -> Program:
    with Builder("zeroed") as builder:
        a, good = builder.input(type), builder.input(batch_type(type, dtype=np.bool_))
        spread = restore(good, type.shape, (type.rank - 2, type.rank - 1))
        return builder.build([select(spread, a, zeros_like(a))])


def is_good(info: Var, finite: Var | None = None) -> Var:
    """Which matrices have a result: bool of the batch."""
    good = compare(info, zeros_like(info), direction="EQ")
    return good if finite is None else and_(good, finite)


def nan_unless(good: Var, x: Var) -> Var:
    """`x` [batch, ...] of the matrices that are good; nan for the others."""
    spread = restore(good, x.shape, tuple(range(good.rank, x.rank)))
    return select(spread, x, full_like(x, np.nan))


@functools.lru_cache(maxsize=64)
def _checked(info_type: TensorType, type: TensorType) -> Program:
    with Builder("checked") as builder:
        info = builder.input(info_type)
        return builder.build([nan_unless(is_good(info), builder.input(type))])


# -- routines, as the ops want them


def factor_positive(e: Any, a: str, type: TensorType) -> str:
    """L of A = L L*, of which the lower triangle is read; nan where A is not positive definite."""
    factor, info = call(e, "potrf", [a], (type, info_type(type)), in_place={0: 0}, uplo="L")
    (factor,) = e.program(_checked(e.types[info], type), [info, factor])
    return emit_triangle(e, factor, type, lower=True)


def solve_triangular(e: Any, a: str, b: str, params: Mapping[str, Any]) -> str:
    """x with op(A) x = b or x op(A) = b, params being those of the op triangular_solve."""
    return call(
        e, "trsm", [a, b], (e.types[b],), in_place={0: 1},
        side="L" if params["left_side"] else "R",
        uplo="L" if params["lower"] else "U",
        diag="U" if params["unit_diagonal"] else "N",
        trans_x={"none": "N", "transpose": "T", "adjoint": "C"}[params["transpose_a"]],
    )[0]  # fmt: skip


def factor_general(e: Any, a: str, type: TensorType) -> tuple[str, str]:
    """(L and U in one matrix, the row that each was exchanged with, from 1 on)."""
    pivots = batch_type(type, min(type.shape[-2:]), dtype=INFO)
    factors, chosen, _ = call(e, "getrf", [a], (type, pivots, info_type(type)), in_place={0: 0})
    return factors, chosen


def order_of_pivots(e: Any, pivots: str, rows: int) -> str:
    """i32 [..., rows]: which row is where after the exchanges, which count from 0."""
    type = e.types[pivots]
    return call(e, "order_of_pivots", [pivots], (type.with_shape((*type.shape[:-1], rows)),), batch=type.rank - 1)[0]


def reflections(e: Any, a: str, type: TensorType) -> tuple[str, str]:
    """(R above, Householder vectors below the diagonal; their scales): Q R = A."""
    scales = batch_type(type, min(type.shape[-2:]))
    packed, factors = call(e, "geqrf", [a], (type, scales), in_place={0: 0})
    return packed, factors


def factor_pivoted(e: Any, a: str, type: TensorType) -> list[str]:
    """`reflections` of the columns in another order: [R and vectors, the columns' order counted from 1, scales]."""
    order = batch_type(type, type.shape[-1], dtype=INFO)
    free = emit_splat(e, order, 0)  # no column has to come first
    scales = batch_type(type, min(type.shape[-2:]))
    return call(e, "geqp3", [a, free], (type, order, scales), in_place={0: 0, 1: 1})


def product_of_reflections(e: Any, vectors: str, scales: str) -> str:
    """Q of as many columns as `vectors` has."""
    return call(e, "orgqr", [vectors, scales], (e.types[vectors],), in_place={0: 0})[0]


# The following give, last, `info` and which matrices are finite, for `is_good`.


def eigen_hermitian(e: Any, a: str, outs: Types) -> list[str]:
    """[eigenvectors, eigenvalues, info, finite] of the matrix whose lower triangle A holds."""
    a, good = without_bad(e, a) if on_gpu(e, "syevd", outs[0].dtype) else (a, finite(e, a))
    results = (*outs, info_type(outs[0]))
    return [*call(e, "syevd", [a], results, in_place={0: 0}, mode="V", uplo="L"), good]


def singular(e: Any, a: str, type: TensorType, outs: Types) -> list[str]:
    """[U, s, V*, info, finite], with as many columns and rows as there are values; or [s, info, finite] if `outs` is s alone."""
    *batch, rows, columns = type.shape
    values, is_alone = outs[0 if len(outs) == 1 else 1], len(outs) == 1
    least = min(rows, columns)
    u, vh = type.with_shape((*batch, rows, least)), type.with_shape((*batch, least, columns))
    a, good = without_bad(e, a)
    results = (type, values, u, vh, info_type(type))
    _, s, left, right, info = call(e, "gesdd", [a], results, in_place={0: 0}, mode="N" if is_alone else "S")
    return [s, info, good] if is_alone else [left, s, right, info, good]


def eigen_general(e: Any, a: str, type: TensorType, outs: Types, left: bool, right: bool) -> list[str]:
    """[eigenvalues, left eigenvectors if wanted, right ones if wanted, info, finite], the former complex."""
    values, vectors = outs[0], type.with_dtype(outs[0].dtype)
    part = values.with_dtype(part_dtype(values.dtype))
    parts = (values,) if type.dtype.kind == "c" else (part, part)
    a, good = without_bad(e, a)
    results = (*parts, vectors, vectors, info_type(type))
    ways = ["V" if is_needed else "N" for is_needed in (left, right)]
    *pieces, lower, upper, info = call(e, "geev", [a], results, compute_left=ways[0], compute_right=ways[1])
    joined = pieces if len(pieces) == 1 else e.op("complex", pieces, [values])
    return [*joined, *([lower] if left else []), *([upper] if right else []), info, good]


def refuse(e: Any, op: str, is_on_gpus: bool = False) -> NoReturn:
    """Raise for an op that only libraries compute, where this text can call none. LAPACK has it, and with `is_on_gpus` CUDA's
    libraries have it, too."""
    line = f"\n  at {e.source.file}:{e.source.line}" if e.source else ""
    if e.target.may_call_kernels and e.target.platform == "cpu":
        raise NotImplementedError(f"{op}: SciPy, whose LAPACK CPU devices call, is not installed{line}\n  fix: pip install scipy")
    if is_on_gpus and e.target.platform == "gpu":
        reason = "CUDA's libraries have it, but text for several platforms, or without CUDA's plugin, cannot call them"
    else:
        reason = f"only CPU{' and CUDA' if is_on_gpus else ''} devices have it"
    fix = "jit it on devices('cpu'); without devices, lower(lowering_platforms=('cpu',))"
    raise NotImplementedError(f"{op}: {reason}{line}\n  fix: {fix}")
