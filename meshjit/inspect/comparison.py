"""How far two arrays are apart, elementwise, with tolerances by dtype; nan equals nan, and infinities equal themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.program import Eqn
from meshjit.core.region import run_programs
from meshjit.core.types import DTYPES, SMALL_FLOATS, is_inexact, short_name
from meshjit.plan.graph import programs_in
from meshjit.simulate.evaluate import evaluate_eqn

Array = np.ndarray[Any, Any]

# Relative error that the rounding of one equation explains: some hundred units in the last place.
TOLERANCES = {
    DTYPES[name]: bound
    for name, bound in {
        "f64": 1e-9, "c128": 1e-9, "f32": 1e-4, "c64": 1e-4, "f16": 8e-3, "bf16": 4e-2,
        **{short_name(dtype): 2.5 * float(ml_dtypes.finfo(dtype).eps) for dtype in (*SMALL_FLOATS, DTYPES["f8e8m0fnu"])},
    }.items()
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """The largest relative error of `got` and where it is; how many elements are beyond the tolerance."""

    error: float
    index: tuple[int, ...]
    got: Any
    want: Any
    count: int
    size: int

    @property
    def agrees(self) -> bool:
        return self.count == 0

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.index))}]"
        return f"{where} is {self.got!s} instead of {self.want!s}; {self.count} of {self.size} elements differ"


def difference(got: Array, want: Array, magnitude: Array | None = None, tolerance: float = 1.0) -> Difference:
    """The relative error per element is |got - want| / (|want| + magnitude).

    `magnitude` is the size of what was added up to give `want` (a sum that cancels is not wrong for its last digits);
    left out, the median of the elements that are not zero. `tolerance` multiplies the bound of the dtype. Dtypes other
    than floats must be equal.
    """
    unequal = np.flatnonzero(got != want)
    if unequal.size == 0:
        return Difference(0.0, (), None, None, 0, got.size)
    got_there, want_there = got.reshape(-1)[unequal], want.reshape(-1)[unequal]
    if is_inexact(want.dtype):
        scale = _typical(want) if magnitude is None else magnitude.reshape(-1)[unequal]
        with np.errstate(all="ignore"):
            errors = _relative_errors(_wide(got_there), _wide(want_there), scale, want.dtype)
        bad = int((errors > TOLERANCES[want.dtype] * tolerance).sum())
    else:
        errors, bad = np.full(unequal.size, np.inf), unequal.size
    worst = int(np.argmax(errors))
    index = tuple(int(i) for i in np.unravel_index(int(unequal[worst]), got.shape))
    return Difference(float(errors[worst]), index, got[index], want[index], bad, got.size)


def _typical(array: Array) -> float:
    """The median size of elements that are finite and not zero; of a large array, of some of them."""
    some = np.abs(_wide(array.reshape(-1)[:: max(1, array.size >> 16)]))
    some = some[np.isfinite(some) & (some != 0)]
    return float(np.median(some)) if some.size else 0.0


def _relative_errors(got: Array, want: Array, magnitude: Array | float, dtype: np.dtype[Any]) -> Array:
    same = np.isnan(got) & np.isnan(want)
    finite = np.isfinite(want) & np.isfinite(got)
    floor = float(ml_dtypes.finfo(dtype).tiny) / TOLERANCES[dtype]  # denormals may be flushed to zero
    errors = np.abs(got - want) / (np.abs(want) + np.where(np.isfinite(magnitude), magnitude, 0.0) + floor)
    return np.where(same, 0.0, np.where(finite, errors, np.inf))


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def magnitudes(eqn: Eqn, operands: Sequence[Array], sizes: Sequence[Array | None]) -> list[Array] | None:
    """Per result the size of what an equation adds up, where it is linear: the same of the operands' absolute values,
    or of `sizes`, where an operand was itself added up of larger addends.

    Of jointly linear operands one after another, so that `subtract` adds. None for other equations.
    """
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    numbers = {i for group in groups for i in group}
    absolute = [
        _absolute(x, size).astype(x.dtype) if i in numbers else x
        for i, (x, size) in enumerate(zip(operands, sizes, strict=True))
    ]
    totals: list[Array] | None = None
    for group in groups:
        for i in group:
            terms = [np.zeros_like(x) if j in group and j != i else x for j, x in enumerate(absolute)]
            own = [np.abs(_wide(r)) for r in evaluate_eqn(eqn, terms)]
            totals = own if totals is None else [a + b for a, b in zip(totals, own, strict=True)]
    return totals


def sways(eqn: Eqn, operands: Sequence[Array], want: Sequence[Array]) -> list[Array]:
    """How far the results of a loop or branch move with operands that are off by a last digit of the coarsest dtype that it
    computes in: one equation, but every one inside rounds."""
    inside = (v for body in run_programs(eqn) for program in programs_in(body) for v in program.vars())
    types = [*eqn.input_types, *(v.type for v in inside)]
    digit = max((float(ml_dtypes.finfo(t.dtype).eps) for t in types if is_inexact(t.dtype)), default=0.0)
    with np.errstate(all="ignore"):
        moved = evaluate_eqn(eqn, [_off_by(x, digit) for x in operands])
        pairs = zip(moved, want, strict=True)
        return [np.abs(_wide(a) - _wide(b)) if is_inexact(b.dtype) else np.zeros(b.shape) for a, b in pairs]


def follows_from_rounding(got: Array, want: Array, sway: Array) -> bool:
    """Whether a result of floats is no further from what it should be than it sways."""
    if not is_inexact(want.dtype):
        return False
    error = np.abs(_wide(got) - _wide(want))
    is_usual = np.mean(error * error) <= np.mean(sway * sway)  # neither is true of nan
    return bool(is_usual and error.max() <= 2 * sway.max())  # one may be off upwards, the other downwards


def _off_by(array: Array, digit: float) -> Array:
    """Every element a little more or less, the same ones each time."""
    if not is_inexact(array.dtype):
        return array
    signs = np.random.default_rng(0).choice([-1.0, 1.0], array.shape)
    return np.asarray(_wide(array) * (1 + digit * signs)).astype(array.dtype)


def _absolute(array: Array, size: Array | None) -> Array:
    return np.asarray(np.abs(array) if size is None else np.maximum(np.abs(array), size)) if is_inexact(array.dtype) else array
