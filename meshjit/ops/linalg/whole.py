"""What ops share that take matrices whole: every dim behind the batch on every device, the batch at no cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Types
from meshjit.core.program import Var
from meshjit.ops.base.batching import align
from meshjit.ops.linalg.matrices import batch_names
from sharding.rule import FactorRule


def whole_rule(batch: int, in_types: Types, out_types: Types) -> FactorRule:
    """`a i j, a k -> a l m | replicate i j k l m`: the first `batch` dims go together, every other dim is by itself."""
    names = batch_names(batch)
    alone: list[str] = []

    def dims(rank: int) -> tuple[tuple[str, ...], ...]:
        own = [f"w{len(alone) + i}" for i in range(rank - batch)]
        alone.extend(own)
        return (*names, *((name,) for name in own))

    operands, results = (tuple(dims(t.rank) for t in types) for types in (in_types, out_types))
    rule = FactorRule(operands, results, dict.fromkeys(alone, "replicate"))
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def batched(op: Callable[[], Any]) -> Callable[..., Any]:
    """The batch rule: one more dim in front of all operands."""

    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Any) -> Any:
        outs = op()(*align(operands, dims), **params)
        outs = list(outs) if isinstance(outs, tuple) else [outs]
        return outs, [0] * len(outs)

    return batch


def each(function: Callable[..., Any], batch: Sequence[int], *arrays: Any) -> tuple[np.ndarray[Any, Any], ...]:
    """NumPy meaning: function (arrays -> tuple) of every member of the batch, stacked. The batch must not be empty."""
    members = [function(*(array[index] for array in arrays)) for index in np.ndindex(*batch)]
    return tuple(np.stack(parts).reshape(*batch, *parts[0].shape) for parts in zip(*members, strict=True))
