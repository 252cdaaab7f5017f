"""Rules that could say more: placements that work with local computation alone but that no factor offers.

After PyTorch's validation of DTensor strategies. On two devices, for every sample of an op and every choice of one dim (or
none) per operand: the op is evaluated on the shards. If the results, on all fillings tried, are shards, replicas or addends
of the result of the whole, then sharding those dims would have worked; a rule without a factor for it is reported, unless
`INTENDED` says why. In the same way every set of operands in which the op is additive must be in a group of `linear`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Sample
from meshjit.core.types import TensorType
from sharding.rule import FactorRule
from tests.tools.brute import resized, rule_of

Array = np.ndarray[Any, Any]
DEVICES = 2
FILLINGS = 8
EVEN = ((4, 2), (2, 6, 4))
Choice = tuple[int | str | None, ...]  # per value the dim that is sharded, None for a replica, or the kind of a partial value

# Op → why what is found there is not offered. Every entry has to be needed.
INTENDED: dict[str, str] = {
    "case": "linear where all its branches are; planning looks into them",
    "gather": "with a fill value it is affine, and which indices are filled is not known",
    "integer_pow": "linear only for exponent 1, and that is a no-op which `simplify` removes",
    "linear_call": "linear where its body is, which is written out before planning",
    "optimization_barrier": "each value keeps a factor of its own; no axis serves two factors, so barriers take one value",
    "reduce_max": "linear only where no dim is reduced, and that is a no-op which `simplify` removes",
    "reduce_min": "linear only where no dim is reduced, and that is a no-op which `simplify` removes",
    "reduce_prod": "linear only where no dim is reduced, and that is a no-op which `simplify` removes",
    "reduce_window": "linear only for windows of one element, and these are no-ops which `simplify` removes",
    "reduce_precision": "linear only where the asked precision is that of the operand, or no less",
    "scan": "linear where its body is; planning looks into it",
    "scatter": "which of several updates of one place wins need not be the same for every addend",
}


def even_samples(op: Op) -> Iterator[Sample]:
    """The op's samples, as they are and with even extents, one of each shape."""
    seen: set[Any] = set()
    for sample in op.samples():
        others = () if callable(sample.fill) else (resized(op, sample, extents) for extents in EVEN)
        for found in (sample, *others):  # indices are drawn for the extents of the sample, so these stay
            if found is None:
                continue
            key = (tuple(t.shape for t in found.types), str(found.params))
            if key not in seen and not _is_degenerate(op, found):
                seen.add(key)
                yield found


def _is_degenerate(op: Op, sample: Sample) -> bool:
    """Whether chance makes everything work: no elements, or a factor of one."""
    types = (*sample.types, *op.type_rule(sample.types, sample.params))
    return not all(t.size for t in types) or 1 in rule_of(op, sample).sizes.values()


# --- placements that work ---------------------------------------------------------------------------------------------


def working(op: Op, sample: Sample) -> Iterator[tuple[Choice, Choice]]:
    """Every choice of operand dims with the choice of results under which local evaluation is right."""
    generator = np.random.default_rng(0)
    fillings = [_generic(sample, generator) for _ in range(FILLINGS)]
    wanted = [_evaluate(op, arrays, sample.params) for arrays in fillings]
    if any(w is None for w in wanted):
        return
    options = [[None, *(d for d, n in enumerate(t.shape) if n % DEVICES == 0)] for t in sample.types]
    for operands in itertools.product(*options):
        if all(choice is None for choice in operands):
            continue
        for results in _results(op, sample, operands, fillings, wanted):
            yield operands, results


def _results(
    op: Op, sample: Sample, operands: Choice, fillings: Sequence[list[Array]], wanted: Sequence[Any]
) -> Iterator[Choice]:
    """The choices of results that explain what the shards give; params are localised for each choice."""
    kinds = ("sum", "max", "min", "prod", "and", "or")
    outs = op.type_rule(sample.types, sample.params)
    options = [[*(d for d, n in enumerate(t.shape) if n and n % DEVICES == 0), *kinds] for t in outs]
    ins = tuple(_halved(t, c) for t, c in zip(sample.types, operands, strict=True))
    tried: dict[Any, Any] = {}
    for results in itertools.product(*options):
        types = tuple(_halved(t, c) for t, c in zip(outs, results, strict=True))
        if types not in tried:
            tried[types] = _local_results(op, sample, ins, types, operands, fillings)
        locals_ = tried[types]
        if locals_ is not None and all(
            _explains(choice, [shard[i] for shard in shards], want[i])
            for shards, want in zip(locals_, wanted, strict=True)
            for i, choice in enumerate(results)
        ):
            yield results


def _local_results(
    op: Op, sample: Sample, ins: Sequence[TensorType], outs: Any, operands: Choice, fillings: Sequence[list[Array]]
) -> list[list[list[Array]]] | None:
    """Per filling and device the results of the op on its shards; None where the op does not take them."""
    try:
        params = sample.params if op.localize is None else op.localize(sample.params, tuple(ins), outs)
        if op.type_rule(tuple(ins), params) != outs:
            return None
    except (TypeError, ValueError, IndexError):
        return None
    found = []
    for arrays in fillings:
        shards = [[_shard(a, c, d) for a, c in zip(arrays, operands, strict=True)] for d in range(DEVICES)]
        each = [_evaluate(op, shard, params) for shard in shards]
        if any(e is None for e in each):
            return None
        found.append(each)
    return found


def _explains(choice: int | str | None, shards: Sequence[Array], want: Array) -> bool:
    if isinstance(choice, int):
        return all(_equal(s, _shard(want, choice, d)) for d, s in enumerate(shards))
    together = _reduced(str(choice), shards)
    return together is not None and _equal(together, want) and not all(_equal(s, want) for s in shards)


def _reduced(kind: str, shards: Sequence[Array]) -> Array | None:
    first = shards[0]
    is_bool = first.dtype == np.bool_
    if (kind in ("and", "or")) != is_bool or (kind in ("max", "min") and first.dtype.kind == "c"):
        return None
    reduce = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    reduce |= {"and": np.logical_and, "or": np.logical_or}
    with np.errstate(all="ignore"):
        return np.asarray(reduce[kind](first, shards[1])).astype(first.dtype)


# --- what a rule offers -----------------------------------------------------------------------------------------------


def offered(rule: FactorRule) -> set[tuple[Choice, Choice]]:
    """The choices that single factors mean. A factor inside of a merged dim is offered where it is the major one."""
    found: set[tuple[Choice, Choice]] = set()
    for factor in rule.factors:
        operands = tuple(_dim_of(factor, dims) for dims in rule.operands)
        kind = rule.kinds.get(factor)
        results: Choice = tuple(
            kind if d is None and kind in rule.reductions.values() else d
            for d in (_dim_of(factor, dims) for dims in rule.results)
        )
        if kind != "replicate":
            found.add((operands, results))
    return found


def _dim_of(factor: str, dims: Sequence[Sequence[str]]) -> int | None:
    return next((d for d, names in enumerate(dims) if names and names[0] == factor), None)


def covered(choice: tuple[Choice, Choice], rule: FactorRule) -> bool:
    """Whether a factor shards these operand dims and no others, and says the same of the results that it has."""
    operands, results = choice
    for have_operands, have_results in offered(rule):
        if have_operands == operands and all(h == r or h is None for h, r in zip(have_results, results, strict=True)):
            return True
    return False


# --- linearity --------------------------------------------------------------------------------------------------------


def additive(op: Op, sample: Sample) -> Iterator[tuple[int, ...]]:
    """Every set of operands with op(x + x', rest) == op(x, rest) + op(x', rest), for inexact results."""
    if any(t.dtype.kind not in "fc" for t in op.type_rule(sample.types, sample.params)):
        return
    generator = np.random.default_rng(1)
    numbers = [i for i, t in enumerate(sample.types) if t.dtype.kind in "fc"]
    for size in range(1, min(len(numbers), 3) + 1):
        for group in itertools.combinations(numbers, size):
            if all(_adds(op, sample, group, generator) for _ in range(FILLINGS)):
                yield group


def _adds(op: Op, sample: Sample, group: Sequence[int], generator: np.random.Generator) -> bool:
    first, second = _generic(sample, generator), _generic(sample, generator)
    second = [s if i in group else f for i, (f, s) in enumerate(zip(first, second, strict=True))]
    both = [f + s if i in group else f for i, (f, s) in enumerate(zip(first, second, strict=True))]
    results = [_evaluate(op, arrays, sample.params) for arrays in (first, second, both)]
    if any(r is None for r in results):
        return False
    whole = all(np.isfinite(r).all() for result in results for r in result)
    return whole and all(_equal(a + b, c) and not _equal(a, np.zeros_like(a)) for a, b, c in zip(*results, strict=True))


# --- the report -------------------------------------------------------------------------------------------------------


def missing(op: Op) -> list[str]:
    """One line for every placement or linear group that works on a sample and that no rule offers."""
    found: list[str] = []
    for sample in even_samples(op):
        rule = rule_of(op, sample)
        call = f"{op.name}({', '.join(map(str, sample.types))}) {dict(sample.params)}"
        found += [
            f"{call}: {_text(choice)} works, rule {rule} does not offer it"
            for choice in working(op, sample)
            if not covered(choice, rule)
        ]
        groups = op.linear_groups(sample.types, sample.params)
        found += [
            f"{call}: additive in {group}, linear says {groups}"
            for group in additive(op, sample)
            if not any(set(group) <= set(g) or set(g) <= set(group) for g in groups)
        ]
    return found


def _text(choice: tuple[Choice, Choice]) -> str:
    left, right = (", ".join("-" if c is None else str(c) for c in side) for side in choice)
    return f"operands on dims ({left}) -> results ({right})"


def report(ops: Sequence[Op]) -> int:
    problems = 0
    for op in ops:
        lines = missing(op)
        if op.name in INTENDED:
            print(f"{op.name}: {len(lines)} intended: {INTENDED[op.name]}")
            continue
        problems += bool(lines)
        print(f"{op.name}: {len(lines)}")
        for line in lines[:6]:
            print(f"    {line}")
    return 1 if problems else 0


# --- arrays -----------------------------------------------------------------------------------------------------------


def _generic(sample: Sample, generator: np.random.Generator) -> list[Array]:
    """Operands without chance equalities: floats away from small integers."""
    arrays = sample.arrays(generator)
    high = 0.1 if sample.fill == "unit" else 0.9
    return [a + generator.uniform(0.01, high, a.shape).astype(a.dtype) if a.dtype.kind in "fc" else a for a in arrays]


def _evaluate(op: Op, arrays: Sequence[Array], params: Any) -> list[Array] | None:
    try:
        with np.errstate(all="ignore"):
            results = op.evaluate(*arrays, **params)
    except (TypeError, ValueError, IndexError):
        return None
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def _halved(type: TensorType, choice: int | str | None) -> TensorType:
    if not isinstance(choice, int):
        return type
    return type.with_shape(tuple(n // DEVICES if d == choice else n for d, n in enumerate(type.shape)))


def _shard(array: Array, choice: int | str | None, device: int) -> Array:
    if not isinstance(choice, int):
        return array
    size = array.shape[choice] // DEVICES
    return array[(slice(None),) * choice + (slice(device * size, (device + 1) * size),)]


def _equal(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc" and a.dtype.kind != "V":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=1e-4, atol=1e-5, equal_nan=True))
