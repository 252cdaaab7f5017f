"""check: an error where its first operand is true, for those who ask for it (`transform/checkify.py`).

Operands: pred bool[], code i32[], then what the message tells of. Params: category, of which kind the error is; messages, pairs
of a code and the function that words it; debug, whether nothing happens unless somebody asks. A code is of one place in a
program: of several errors the one with the least counts. Programs that run hold no check: the pass makes results of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.effects import Effect
from meshjit.core.local import LocalEquation
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Var, current_builder
from meshjit.core.types import TensorType
from meshjit.ops.base.batching import batch_size, insert, move
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import full, iota, scalar
from meshjit.ops.base.families import require
from meshjit.ops.base.reduction import reduce_max
from meshjit.ops.base.shape import reshape
from meshjit.ops.control.callback import free_rule
from meshjit.ops.index.dynamic import dynamic_slice

PRED, CODE = TensorType((), np.dtype(np.bool_)), TensorType((), np.dtype(np.int32))


class UnaskedCheck(ValueError):
    """A check is in a program that is compiled, and nobody made a result of it."""


def _type(in_types: Types, params: Params) -> Types:
    require(in_types[:2] == (PRED, CODE), "check", f"takes bool[], i32[] and more, was given {in_types}")
    return ()


def _evaluate(pred: Any, code: Any, *payload: Any, messages: Any, debug: bool, category: str) -> tuple[()]:
    if pred and not debug:
        raise dict(messages)[int(code)].call(payload)[0]
    return ()


def _partition(local: LocalEquation) -> list[Var]:
    if not local.params["debug"]:
        raise UnaskedCheck(
            "Cannot abstractly evaluate a checkify.check which was not functionalized. This probably means you tried to"
            " stage (jit/scan/pmap/...) a `check` without functionalizing it through `checkify.checkify`."
            f" It is at {local.eqn.source}\n"
            "  fix: err, out = jit(checkify.checkify(f))(x), or debug_check, which does nothing without"
        )
    return []


def last_error(pred: Var, values: Sequence[Var]) -> tuple[Var, list[Var]]:
    """Of errors along dim 0: whether there is one, and the values of the last (as JAX's)."""
    places = iota(dtype=CODE.dtype, shape=pred.shape, dimension=0)
    last = reduce_max(select(pred, places, full(places.type, 0)), axes=(0,))
    zero = scalar(0, CODE.dtype)
    chosen = [
        reshape(dynamic_slice(v, last, *[zero] * (v.rank - 1), slice_sizes=(1, *v.shape[1:])), shape=v.shape[1:])
        for v in (pred, *values)
    ]
    return chosen[0], chosen[1:]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    size = batch_size(operands, dims)
    pairs = zip(operands, dims, strict=True)
    pred, *values = [insert(x, 0, size) if d is None else move(x, d, 0) for x, d in pairs]
    one, rest = last_error(pred, values)
    current_builder().emit(check, [one, *rest], params)
    return [], []


def _no_samples() -> list[Sample]:
    """It has no results, and where nobody asks it raises: tests over the registry have nothing to compare."""
    return []


check = Op(
    name="check",
    type_rule=_type,
    factor_rule=free_rule,
    evaluate=_evaluate,
    emit=lambda e, operands, ins, outs, params: [],
    samples=_no_samples,
    batch=_batch,
    jvp=lambda primals, tangents, outs, params: [],
    transpose=Absent("it has no results"),
    partition=_partition,
    effects=Effect.DEBUG,
)
