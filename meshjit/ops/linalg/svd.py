"""`svd`: singular values and vectors over the last two dims, (U, s falling, V*) with min(m, n) columns and rows; without the
param `vectors` s alone.

On CPU LAPACK's gesdd does it. Elsewhere it is emitted as a Program of other ops: A = Q R (of a tall A), R = W H with W unitary
by six steps of the QDWH iteration (Nakatsukasa and Higham, 2013), H = V s V*, U = W V. Dims before the matrix cost no
communication; matrix dims are whole on every device. The largest element of every row of V* is real and positive, so that all
backends give the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import ColumnWork, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add, divide, maximum, multiply, scale, sign, subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import constant, full_like, scalar, spread, zeros_like
from meshjit.ops.base.conversion import complex_, imag, real
from meshjit.ops.base.families import part_dtype
from meshjit.ops.base.reduction import reduce_sum, restore
from meshjit.ops.base.shape import require_one, squeeze
from meshjit.ops.base.transcendental import sqrt
from meshjit.ops.control.repeating import repeat
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.ops.linalg import cusolver
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.eigh import as_dtype, eigh, eye_like, per_column, real_diagonal
from meshjit.ops.linalg.matrices import (
    adjoint,
    adjoint_of,
    batch_names,
    conj,
    diagonal_part,
    emit_empty,
    matmul,
    matrix,
    require_flag,
    require_matrix,
)
from meshjit.ops.linalg.phases import phase, phases, rotation
from meshjit.ops.linalg.qr import qr
from meshjit.ops.linalg.routines import INFO, batch_type, has_routines, is_good, nan_unless, on_gpu, singular
from meshjit.ops.slicing.concatenation import concatenate, reverse
from meshjit.ops.slicing.halos import cut
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_INT = DTYPES["i32"]
_STEPS = 6  # of Halley: singular values from 2e-16 to 1 are then 1 but for 1e-16, after five 1e-13; of float32 after five


def _type(in_types: Types, params: Params) -> Types:
    type = require_one("svd", in_types)
    require_matrix("svd", type)
    require_flag("svd", params, "vectors")
    *batch, rows, columns = type.shape
    count = min(rows, columns)
    values = TensorType((*batch, count), part_dtype(type.dtype))
    if not params["vectors"]:
        return (values,)
    return (type.with_shape((*batch, rows, count)), values, type.with_shape((*batch, count, columns)))


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a i k, a k, a k j | replicate i j k`, or `a i j -> a k`."""
    batch = batch_names(in_types[0].rank - 2)
    i, j, k = ("i",), ("j",), ("k",)
    results = ((*batch, i, k), (*batch, k), (*batch, k, j)) if params["vectors"] else ((*batch, k),)
    rule = FactorRule(((*batch, i, j),), results, dict.fromkeys("ijk", "replicate"))
    return rule.with_sizes([in_types[0].shape], [t.shape for t in out_types])


def _evaluate(a: Array, vectors: bool) -> Any:
    bad = np.asarray(~np.isfinite(a).all((-1, -2)))  # NumPy refuses all of a stack for one of these
    if not vectors:
        s = np.linalg.svd(np.where(bad[..., None, None], 0, a), compute_uv=False)
        return np.where(bad[..., None], np.nan, s).astype(part_dtype(a.dtype))
    u, s, vh = np.linalg.svd(np.where(bad[..., None, None], 0, a), full_matrices=False)
    if a.size:
        scales = phases(adjoint_of(vh))
        u, vh = u * scales, vh * np.conj(np.swapaxes(scales, -1, -2))
    u, vh = (np.where(bad[..., None, None], np.nan, x).astype(a.dtype) for x in (u, vh))
    return u, np.where(bad[..., None], np.nan, s).astype(part_dtype(a.dtype)), vh


# -- the Program


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[0].shape:
        return emit_empty(e, outs)
    if has_routines(e, ins[0], "gesdd") or has_routines(e, ins[0], "gesvd", "gesvdj"):
        find = cusolver.singular if on_gpu(e, "gesvd", ins[0].dtype) else singular
        results = find(e, operands[0], ins[0], outs)
        return e.program((_result_program if params["vectors"] else _value_program)(outs), results)
    return e.program(_program(ins[0], params["vectors"]), operands)


@functools.lru_cache(maxsize=64)
def _value_program(types: Types) -> Program:
    with Builder("found") as builder:
        s = builder.input(types[0])
        batch = types[0].with_shape(types[0].shape[:-1])
        good = is_good(builder.input(batch.with_dtype(INFO)), builder.input(batch.with_dtype(np.bool_)))
        return builder.build([nan_unless(good, s)])


@functools.lru_cache(maxsize=64)
def _result_program(types: Types) -> Program:
    """What a routine found, with vectors in their one direction; nan where it found nothing."""
    with Builder("found") as builder:
        u, s, vh = (builder.input(type) for type in types)
        good = is_good(builder.input(batch_type(types[0], dtype=INFO)), builder.input(batch_type(types[0], dtype=np.bool_)))
        right = nan_unless(good, phase(vh, vh.rank - 1))  # vh is turned by it, v by its conjugate, and u with v
        return builder.build([
            multiply(u, per_column(conj(right), u)), nan_unless(good, s), multiply(vh, restore(right, vh.shape, (vh.rank - 1,))),
        ])  # fmt: skip


@functools.lru_cache(maxsize=64)
def _program(type: TensorType, vectors: bool) -> Program:
    with Builder("svd") as builder:
        a = builder.input(type)
        if type.shape[-2] >= type.shape[-1]:
            u, s, v = _tall(a)
        else:
            v, s, u = _tall(adjoint(a))
        if not vectors:
            return builder.build([s])
        scales = phase(v, v.rank - 2)
        return builder.build([multiply(u, per_column(scales, u)), s, adjoint(multiply(v, per_column(scales, v)))])


def _tall(a: Var) -> tuple[Var, Var, Var]:
    """(U, s, V) of a matrix of no fewer rows than columns."""
    rows, columns = a.shape[-2:]
    if rows > columns:
        q, a = qr(a, full_matrices=False)
        u, s, v = _square(a)
        return matmul(q, u), s, v
    return _square(a)


def _square(a: Var) -> tuple[Var, Var, Var]:
    column = a.rank - 1
    unitary = _polar(a)
    v, s = eigh(matmul(adjoint(unitary), a))
    v, s = reverse(v, dimensions=(column,)), reverse(s, dimensions=(column - 1,))
    # Where A has no inverse W is not unitary: its columns for zeros are made orthogonal to the others.
    u, r = qr(matmul(unitary, v), full_matrices=False)
    diagonal = reduce_sum(diagonal_part(r), axes=(r.rank - 2,))
    signs = restore(_sign_or_one(diagonal), u.shape, (u.rank - 2,))
    return multiply(u, signs), maximum(s, zeros_like(s)), v


def _sign_or_one(x: Var) -> Var:
    return select(compare(x, zeros_like(x), direction="EQ"), full_like(x, 1), sign(x))


def _polar(a: Var) -> Var:
    """W of A = W H: every step takes the singular values nearer to 1, X' = b/c X + (a - b/c)/√c Q₁ Q₂* with
    [√c X; 1] = [Q₁; Q₂] R."""
    n = a.shape[-1]
    dtype = part_dtype(a.dtype)
    parts = [real(a), imag(a)] if a.dtype.kind == "c" else [a]
    squares = [multiply(p, p) for p in parts]
    size = sqrt(reduce_sum(functools.reduce(add, squares), axes=(a.rank - 2, a.rank - 1)))
    size = select(compare(size, zeros_like(size), direction="EQ"), full_like(size, 1), size)
    x = divide(a, as_dtype(restore(size, a.shape, (a.rank - 2, a.rank - 1)), a))
    coefficients = polar_coefficients(float(np.finfo(dtype).eps))
    weights = [(math.sqrt(c), b / c, (k - b / c) / math.sqrt(c)) for k, b, c in coefficients]
    table = constant(value=np.array(weights, dtype))

    def step(i: Var, table: Var, x: Var) -> list[Var]:
        row = dynamic_slice(table, i, scalar(0, _INT), slice_sizes=(1, 3))
        root, kept, added = (_number(cut(row, 1, k, k + 1), x) for k in range(3))
        q, _ = qr(concatenate(multiply(root, x), eye_like(x), dimension=x.rank - 2), full_matrices=False)
        product = matmul(cut(q, x.rank - 2, 0, n), adjoint(cut(q, x.rank - 2, n, 2 * n)))
        return [table, add(multiply(kept, x), multiply(added, product))]

    x = repeat([table, x], _STEPS, 1, step)[1]
    # One step of Newton and Schulz for the last digits: X (3 - X* X) / 2.
    return scale(matmul(x, subtract(scale(eye_like(x), 3), matmul(adjoint(x), x))), 0.5)


def _number(cell: Var, like: Var) -> Var:
    value = squeeze(cell, 0, 1)
    return as_dtype(spread(value, like.shape), like)


def polar_coefficients(least: float) -> list[tuple[float, float, float]]:
    """(a, b, c) of every step of Halley's iteration x (a + b x²) / (1 + c x²), for singular values from `least` to 1."""
    coefficients: list[tuple[float, float, float]] = []
    for _ in range(_STEPS):
        square = least * least
        d = (4 * (1 - square) / (square * square)) ** (1 / 3) if least < 1 else 0.0
        a = math.sqrt(1 + d) + 0.5 * math.sqrt(8 - 4 * d + 8 * (2 - square) / (square * math.sqrt(1 + d)))
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        coefficients.append((a, b, c))
        least = min(1.0, least * (a + b * square) / (1 + c * square))
    return coefficients


# -- derivative


def _jvp(primals, tangents, outs, params):
    """With D = U* dA V: ds = Re diag D, and U and V turn by F ∘ (D s + s D*) and F ∘ (s D + D* s), F_ij = 1/(s_j² - s_i²)."""
    (tangent,) = tangents
    if tangent is None:
        return [None] * len(outs)
    if 0 in tangent.shape:
        return [zeros_like(x) for x in outs]
    u, s, vh = outs if params["vectors"] else svd(primals[0], vectors=True)
    v = adjoint(vh)
    inside = matmul(matmul(adjoint(u), tangent), v)
    if not params["vectors"]:
        return [real_diagonal(inside)]
    rows, columns = (restore(s, inside.shape, (axis,)) for axis in (inside.rank - 1, inside.rank - 2))
    eye = real(eye_like(inside)) if inside.dtype.kind == "c" else eye_like(inside)
    gaps = multiply(subtract(columns, rows), add(columns, rows))
    factors = as_dtype(subtract(divide(full_like(eye, 1), add(gaps, eye)), eye), inside)
    right, left = multiply(inside, as_dtype(columns, inside)), multiply(inside, as_dtype(rows, inside))
    d_u = matmul(u, multiply(factors, add(right, adjoint(right))))
    d_v = matmul(v, multiply(factors, add(left, adjoint(left))))
    if inside.dtype.kind == "c":  # u_k and v_k may turn by the same phase: it is put on u, then moved to where v stays real
        angle = divide(imag(diagonal_part(inside)), rows)
        d_u = add(d_u, matmul(u, complex_(zeros_like(angle), angle)))
    if u.shape[-2] > u.shape[-1]:
        d_u = add(d_u, _beyond(u, matmul(tangent, v), s))
    if v.shape[-2] > v.shape[-1]:
        d_v = add(d_v, _beyond(v, matmul(adjoint(tangent), u), s))
    if inside.dtype.kind == "c":
        angle = rotation(v, d_v, v.rank - 2)
        d_u, d_v = (subtract(d, multiply(x, per_column(angle, x))) for d, x in ((d_u, u), (d_v, v)))
    return [d_u, real_diagonal(inside), adjoint(d_v)]


def _beyond(u: Var, moved: Var, s: Var) -> Var:
    """(1 - U U*) dA V / s: what leaves the space that U spans."""
    rest = subtract(moved, matmul(u, matmul(adjoint(u), moved)))
    return divide(rest, as_dtype(restore(s, rest.shape, (rest.rank - 2,)), rest))


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    outs = svd(move(operands[0], dims[0] or 0, 0), **params)
    outs = list(outs) if isinstance(outs, tuple) else [outs]
    return outs, [0] * len(outs)


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Singular values apart from one another and from zero, so that vectors and their derivatives are well defined."""
    a = matrix(generator, type).astype(np.complex128 if type.dtype.kind == "c" else np.float64)
    if not a.size:
        return a
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return u * (np.arange(s.shape[-1], 0, -1) * 0.8) @ vh


def _samples() -> list[Sample]:
    calls = [((5, 3), "c128"), ((5, 2, 3), "f64"), ((1, 1), "f64"), ((2, 0, 3), "f32"), ((0, 2, 2), "c64")]
    samples = [Sample((TensorType(shape, DTYPES[d]),), {"vectors": True}, _fill) for shape, d in calls]
    return [*samples, *(Sample(s.types, {"vectors": False}, _fill) for s in samples[:4])]


_WITH_VECTORS, _VALUES_ALONE = by_columns(28.0, 17.0), by_columns(8.0, 6.0)


def _column_work(in_types: Types, params: Params) -> ColumnWork:
    return (_WITH_VECTORS if params["vectors"] else _VALUES_ALONE)(in_types, params)


svd = Op(
    name="svd",
    type_rule=_type,
    factor_rule=_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    whole="every rotation mixes whole rows and columns",
    passes=lambda in_types, params: 125.0 if params["vectors"] else 60.0,
    column_work=_column_work,
)
