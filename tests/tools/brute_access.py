"""Access rules against NumPy: one element of an operand replaced, which elements of the results change?

For every sample of an op, on several fillings:

    wrong       an element changed that the rule does not connect with the one replaced; or results depend on their position
                along a dim that the rule leaves out of `positions`; or identity elements change a reduction
    missing     a dim that the rule claims whole, or seen by windows, although all that changed was at one offset; an operand
                that changed nothing of a result in any sample; unless `INTENDED` says why
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.core.access import NOTHING, Access, Moved, Nothing, Places, Reduced, Same, Start, Window, derived
from meshjit.core.op import Op, Sample
from meshjit.core.rules import resized
from meshjit.core.types import TensorType
from meshjit.ops.base.identity_elements import identity_element
from tests.tools.brute import rule_of
from tests.tools.brute_missing import _equal, _evaluate, _generic

Array = np.ndarray[Any, Any]
FILLINGS = 3
ELEMENTS = 10  # of each operand, replaced one at a time
MOST_ELEMENTS = 600

IN_ORDER = {"searchsorted": 0}  # operands that mean nothing with one element replaced

# Op → why its rule claims more than it needs. Every entry has to be needed.
INTENDED: dict[str, str] = {
    "convolution": "windows whose stride is the operand's dilation see one offset only, of a kernel that is mostly outside",
    "copy_part": "planning writes it last, and frames and blocks of iterations, which ask, are decided by then",
    "gather_members": "an operand that holds no values that are read for the members of the samples",
    "imag": "of real operands, which have no imaginary part",
    "is_finite": "of all that samples hold",
    "lu_solve": "the matrix is an operand for the derivative's sake, and permutations of the samples are alike",
    "optimization_barrier": "which operand a result is follows from dims, which scalars have none of",
    "polygamma": "samples are of orders for which it is nan",
    "scatter_members": "an operand that holds no values that are read for the members of the samples",
    "shard_alike": "results are operands as they are, but the dims of both are one factor",
    "sort": "keys do not depend on what is sorted along with them, but their dims are one factor",
}


def accesses_of(op: Op, sample: Sample) -> tuple[Access, ...]:
    outs = op.type_rule(sample.types, sample.params)
    return op.access(sample.types, outs, sample.params) if op.access is not None else derived(rule_of(op, sample))


def samples_of(op: Op) -> Iterator[Sample]:
    """One of each shape that is small and holds elements."""
    seen: set[Any] = set()
    for sample in op.samples():
        types = (*sample.types, *op.type_rule(sample.types, sample.params))
        key = (tuple(t.shape for t in types), str(sample.params))
        if key not in seen and all(0 < t.size <= MOST_ELEMENTS for t in types):
            seen.add(key)
            yield sample


# --- what changes -----------------------------------------------------------------------------------------------------


def _filled(op: Op, sample: Sample, generator: np.random.Generator) -> list[Array]:
    return sample.arrays(generator) if op.name in IN_ORDER else _generic(sample, generator)


def changes(op: Op, sample: Sample) -> Iterator[tuple[list[Array], int, tuple[int, ...], list[Array]]]:
    """(operands, number of one, place of the element replaced, per result which elements differ), element after element."""
    generator = np.random.default_rng(0)
    for _ in range(FILLINGS):
        arrays, others = (_filled(op, sample, generator) for _ in range(2))
        before = _evaluate(op, arrays, sample.params)
        if before is None:
            return
        for i, array in enumerate(arrays):
            if IN_ORDER.get(op.name) == i:
                continue
            for flat in generator.permutation(array.size)[:ELEMENTS]:
                place = np.unravel_index(flat, array.shape)
                new = np.array(array)
                new[place] = others[i][place]
                after = _evaluate(op, [*arrays[:i], new, *arrays[i + 1 :]], sample.params)
                if after is not None:
                    differ = [~((a == b) | ((a != a) & (b != b))) for a, b in zip(before, after, strict=True)]
                    yield arrays, i, tuple(map(int, place)), differ


def claimed(places: Places, element: int, extent: int, result: int, arrays: Sequence[Array]) -> Array:
    """Which places of the result's dim, of extent `result`, the rule connects with an element of an operand's dim."""
    at = np.arange(result)
    if isinstance(places, Same):
        return at == element
    if isinstance(places, Moved):
        by = places.by.value(int(arrays[places.by.operand])) if isinstance(places.by, Start) else places.by
        return (at + by) % extent == element if places.in_ring else at + by == element
    if isinstance(places, Window):
        steps = element * places.base_dilation - (at * places.stride - places.low)
        return (steps >= 0) & (steps < places.reach) & (steps % places.window_dilation == 0)
    return np.full(result, not isinstance(places, Nothing))


def connected(dims: Sequence[Places], place: Sequence[int], shape: Sequence[int], out: Sequence[int], arrays: Any) -> Array:
    """bool of the result's shape: what may depend on this element of an operand."""
    total = np.ones(tuple(out), np.bool_)
    for places, element, extent in zip(dims, place, shape, strict=True):
        dim = getattr(places, "dim", None)
        mask = claimed(places, element, extent, 1 if dim is None else out[dim], arrays)
        total &= mask.reshape([-1 if d == dim else 1 for d in range(len(out))])
    return total


def wrong(op: Op) -> Iterator[str]:
    """One line for each sample on which the access rule claims too little."""
    for sample in samples_of(op):
        text, accesses = f"{op.name}({', '.join(map(str, sample.types))}) {dict(sample.params)}", accesses_of(op, sample)
        for arrays, i, place, differ in changes(op, sample):
            for access, changed in zip(accesses, differ, strict=True):
                may = connected(access.operands[i], place, arrays[i].shape, changed.shape, arrays)
                if (changed & ~may).any():
                    yield f"{text}: element {place} of operand {i} changes {np.argwhere(changed & ~may)[0]}: {access}"
                    break
        yield from (f"{text}: {line}" for line in _by_position(op, sample, accesses))
        yield from (f"{text}: {line}" for line in _reduced(op, sample, accesses))


def _by_position(op: Op, sample: Sample, accesses: Sequence[Access]) -> Iterator[str]:
    """Results that differ where the same elements are computed in another order, and as many more."""
    generator = np.random.default_rng(0)
    outs = op.type_rule(sample.types, sample.params)
    for r, access in enumerate(accesses):
        for dim in range(outs[r].rank):
            sides = [[d for d, p in enumerate(dims) if getattr(p, "dim", None) == dim] for dims in access.operands]
            plain = all(isinstance(access.operands[i][d], Same) for i, dims in enumerate(sides) for d in dims)
            if dim in access.positions or not plain:
                continue
            order = generator.integers(0, outs[r].shape[dim], outs[r].shape[dim] + 2)
            arrays = _filled(op, sample, generator)
            moved = [_taken(a, dims, order) for a, dims in zip(arrays, sides, strict=True)]
            types = tuple(TensorType(a.shape, a.dtype) for a in moved)
            longer = tuple(t.with_shape((*t.shape[:dim], len(order), *t.shape[dim + 1 :])) for t in outs)
            params = resized(op, sample.params, types, longer) if len({t.shape for t in outs}) == 1 else None
            if params is None:
                params, order = sample.params, generator.permutation(outs[r].shape[dim])
                moved = [_taken(a, dims, order) for a, dims in zip(arrays, sides, strict=True)]
            before, after = _evaluate(op, arrays, sample.params), _evaluate(op, moved, params)
            if before is not None and (after is None or not _equal(_taken(before[r], [dim], order), after[r])):
                yield f"result {r} depends on its position along dim {dim}: {access}"


def _taken(array: Array, dims: Sequence[int], order: Array) -> Array:
    for dim in dims:
        array = np.take(array, order, dim)
    return array


def _reduced(op: Op, sample: Sample, accesses: Sequence[Access]) -> Iterator[str]:
    """Reductions of which identity elements are no part."""
    kinds = {p.factor: p.kind for access in accesses for dims in access.operands for p in dims if isinstance(p, Reduced)}
    for factor, kind in kinds.items():
        arrays = _generic(sample, np.random.default_rng(0))
        padded = [_padded(a, dims, factor, kind) for a, dims in zip(arrays, accesses[0].operands, strict=True)]
        types = tuple(TensorType(a.shape, a.dtype) for a in padded)
        params = resized(op, sample.params, types, op.type_rule(sample.types, sample.params))
        if params is None:
            continue  # passes ask that, too
        before, after = _evaluate(op, arrays, sample.params), _evaluate(op, padded, params)
        if before is not None and (after is None or not all(map(_equal, before, after))):
            yield f"identity elements along {factor} change the result"


def _padded(array: Array, dims: Sequence[Places], factor: str, kind: str) -> Array:
    sides = [(1, 2) if isinstance(p, Reduced) and p.factor == factor else (0, 0) for p in dims]
    return np.pad(array, sides, constant_values=identity_element(kind, array.dtype)) if any(map(any, sides)) else array


# --- what is claimed for nothing --------------------------------------------------------------------------------------


def missing(op: Op) -> Iterator[str]:
    """One line for every dim that is one place further on than the result's, and for every operand that a result ignores."""
    ignored: dict[tuple[int, int], bool] = {}
    for sample in samples_of(op):
        text, accesses = f"{op.name}({', '.join(map(str, sample.types))}) {dict(sample.params)}", accesses_of(op, sample)
        seen: dict[tuple[int, int], set[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
        for _, i, place, differ in changes(op, sample):
            for r, changed in enumerate(differ):
                pairs = seen.setdefault((r, i), set())
                pairs.update((place, tuple(map(int, out))) for out in np.argwhere(changed))
        for (r, i), pairs in seen.items():
            dims = accesses[r].operands[i]
            ignored[r, i] = ignored.get((r, i), True) and not pairs and NOTHING not in dims
            for d, places in enumerate(dims):
                if not isinstance(places, Same | Moved) and (better := _offset(pairs, d)) is not None:
                    yield f"{text}: dim {d} of operand {i} is {places}, but all that was seen is {better}"
    yield from (f"{op.name}: result {r} depends on operand {i} in no sample" for (r, i), never in ignored.items() if never)


def _offset(pairs: set[tuple[tuple[int, ...], tuple[int, ...]]], dim: int) -> Moved | None:
    """The one offset between the elements of an operand's dim and a dim of the result that explains all that was seen."""
    if len({place[dim] for place, _ in pairs}) > 2:
        for e in range(len(next(iter(pairs))[1])):
            offsets = {place[dim] - out[e] for place, out in pairs}
            if len(offsets) == 1:
                return Moved(e, offsets.pop())
    return None
