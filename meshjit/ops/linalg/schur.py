"""`schur`: (T, Z) with A = Z T Z*, over the last two dims. On CPU alone, by LAPACK's gees.

T of complex matrices is upper triangular; of real ones it has 2 x 2 blocks on the diagonal, for pairs of conjugate eigenvalues.
Param vectors: whether Z is wanted. Dims before the matrix cost no communication; matrix dims are whole on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.shape import require_one
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.matrices import emit_empty, matrix, require_flag, require_matrix
from meshjit.ops.linalg.routines import batch_type, call, has_routines, info_type, is_good, nan_unless, refuse, without_bad
from meshjit.ops.linalg.whole import batched, each, whole_rule
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def _type(in_types: Types, params: Params) -> Types:
    type = require_one("schur", in_types)
    require_matrix("schur", type, square=True)
    require_flag("schur", params, "vectors")
    return (type,) * (1 + params["vectors"])


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a k l, a m n | replicate i j k l m n`."""
    return whole_rule(in_types[0].rank - 2, in_types, out_types)


def _evaluate(a: Array, vectors: bool) -> tuple[Array, ...]:
    import scipy.linalg  # takes 0.2 s to load; only evaluation needs it

    def one(a: Array) -> tuple[Array, ...]:
        if not np.isfinite(a).all():
            return np.full_like(a, np.nan), np.full_like(a, np.nan)
        t, z, *_ = scipy.linalg.schur(a, output="complex" if a.dtype.kind == "c" else "real")
        return t, np.asarray(z)

    results = (a, a) if 0 in a.shape else each(one, a.shape[:-2], a)
    return tuple(x.astype(a.dtype) for x in results[: 1 + vectors])


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    type = ins[0]
    if 0 in type.shape:
        return emit_empty(e, outs)
    if not has_routines(e, type, "gees"):
        refuse(e, "schur")
    values = type.with_shape(type.shape[:-1])
    parts = (values,) if type.dtype.kind == "c" else (values, values)
    a, good = without_bad(e, operands[0])
    results = (type, type, *parts, info_type(type), info_type(type))
    outputs = call(e, "gees", [a], results, in_place={0: 0}, mode="V" if params["vectors"] else "N", sort="N")
    return e.program(_result_program(outs), [*outputs[: len(outs)], outputs[-1], good])


def _result_program(types: Types) -> Program:
    """What LAPACK gives; nan where it did not converge, or the matrix was not finite."""
    with Builder("results") as builder:
        results = [builder.input(type) for type in types]
        good = is_good(builder.input(info_type(types[0])), builder.input(batch_type(types[0], dtype=np.bool_)))
        return builder.build([nan_unless(good, x) for x in results])


def _samples() -> list[Sample]:
    calls = [((4, 4), "f32"), ((5, 3, 3), "f64"), ((4, 4), "c64"), ((2, 3, 2, 2), "c128"), ((1, 1), "f32"), ((0, 2, 2), "f32")]
    calls += [((2, 0, 0), "c64")]
    return [
        Sample((TensorType(shape, DTYPES[d]),), {"vectors": vectors}, lambda g, i, t: matrix(g, t))
        for number, (shape, d) in enumerate(calls)
        for vectors in ((True, False) if number < 3 else (number % 2 == 0,))
    ]


schur = Op(
    name="schur",
    type_rule=_type,
    factor_rule=_rule,
    whole="every rotation mixes whole rows and columns",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=batched(lambda: schur),
    jvp=Absent("Schur vectors are unique up to the order of eigenvalues and phases alone; JAX has no derivative either"),
    passes=lambda in_types, params: 110.0,
    column_work=by_columns(30.0, 30.0),
)
