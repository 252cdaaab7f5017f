"""Brute force over every op of the registry: each legal spread of its factors, each placement of its operands and results.

    python -m tests.tools.brute                          everything, op after op (hours), with a line for each
    python -m tests.tools.brute dot_general pad          these ops
    python -m tests.tools.brute --minutes 5 --seed 3     as many cases as fit, drawn evenly over the ops
    python -m tests.tools.brute --missing [op ...]       rules that could say more, see tests/tools/brute_missing.py

Every sample of an op is tried as it is and with other extents: empty, 1, fewer than devices, uneven. Three kinds of cases:

    spread      one assignment factor → axes, put into the plan by hand, so that no choice of planning hides a wrong rule
    placement   specs for operands and results, through propagation and assignment
    partial     operands that are jointly linear given as unequal addends over one axis, other factors spread over another
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshjit.ops  # noqa: F401 - fills the registry
from meshjit.core.op import REGISTRY, Op, Sample
from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType, is_inexact
from meshjit.core.verify import verify
from meshjit.partition.partition import partition
from meshjit.plan.assign import consistent, equation_plan
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from sharding.mesh import AbstractMesh
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec, Placement
from tests.tools.laws import check_law

MESHES = [
    AbstractMesh(shape, ("x", "y")[: len(shape)]) for shape in ((2,), (3,), (4,), (2, 2), (3, 2))
]  # fmt: skip
# Extents dealt to the factors of a sample in turn.
EXTENTS = ((1,), (0, 3), (2, 5), (3, 7), (5, 2), (8, 6), (7, 4, 1))
MOST_ELEMENTS = 4096


@dataclass(frozen=True)
class Case:
    """One thing to check. `spread`: factor → axes; `specs`: of operands and results; `group`: operands that are partial."""

    op: Op
    sample: Sample
    mesh: AbstractMesh
    spread: Mapping[str, tuple[str, ...]] | None = None
    specs: tuple[PartitionSpec, ...] = ()
    group: tuple[int, ...] = ()

    def __str__(self) -> str:
        types = ", ".join(map(str, self.sample.types))
        how = f"specs {self.specs}" if self.spread is None else f"spread {dict(self.spread)}"
        partial = f", operands {self.group} partial over y" if self.group else ""
        return f"{self.op.name}({types}) {dict(self.sample.params)} on {self.mesh}: {how}{partial}"


# --- samples ----------------------------------------------------------------------------------------------------------


def variants(op: Op) -> Iterator[Sample]:
    """Every sample of the op, and those that it becomes when its factors get other extents, where the op takes them."""
    seen: set[Any] = set()
    for sample in op.samples():
        key = (tuple(t.shape for t in sample.types), str(sample.params))
        yield sample
        if key in seen:
            continue
        seen.add(key)
        for extents in EXTENTS:
            other = resized(op, sample, extents)
            if other is not None and (key := (tuple(t.shape for t in other.types), str(other.params))) not in seen:
                seen.add(key)
                yield other


def rule_of(op: Op, sample: Sample) -> FactorRule:
    return op.factor_rule(sample.types, op.type_rule(sample.types, sample.params), sample.params)


def resized(op: Op, sample: Sample, extents: Sequence[int]) -> Sample | None:
    """The sample with the factors' extents replaced; None where params say otherwise or it is too large."""
    rule = rule_of(op, sample)
    sizes = dict(zip(rule.factors, itertools.cycle(extents), strict=False))
    outs = op.type_rule(sample.types, sample.params)
    types = tuple(_resized(t, dims, sizes) for t, dims in zip(sample.types, rule.operands, strict=True))
    results = tuple(_resized(t, dims, sizes) for t, dims in zip(outs, rule.results, strict=True))
    if any(t.size > MOST_ELEMENTS for t in (*types, *results)):
        return None
    try:
        params = sample.params if op.localize is None else op.localize(sample.params, types, results)
        made = op.type_rule(types, params)
        op.factor_rule(types, made, params)
        found = Sample(types, params, sample.fill)
        with np.errstate(all="ignore"):
            arrays = found.arrays(np.random.default_rng(0))
            op.evaluate(*arrays, **params)
    except (TypeError, ValueError, IndexError):  # params that fix the extents; indices that the fill cannot draw
        return None
    return found if op.localize is None or made == results else None


def _resized(type: TensorType, dims: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> TensorType:
    shape = [int(np.prod([sizes[f] for f in dim])) if dim else n for dim, n in zip(dims, type.shape, strict=True)]
    return type.with_shape(tuple(shape))


# --- cases ------------------------------------------------------------------------------------------------------------


def cases(op: Op, samples: Sequence[Sample] | None = None) -> Iterator[Case]:
    """Every case of one op; placements of all values at once only where they are few enough to be listed."""
    for sample in variants(op) if samples is None else samples:
        for mesh in MESHES:
            if op.seed is None or len(mesh.axis_names) == 2:  # the samples of pinned placements name x and y
                yield from _spread_cases(op, sample, mesh)
                yield from _placement_cases(op, sample, mesh)


def _spread_cases(op: Op, sample: Sample, mesh: AbstractMesh) -> Iterator[Case]:
    rule = rule_of(op, sample)
    factors = [f for f in rule.factors if not _whole(op, rule, f)]
    for spread in spreads(factors, mesh.axis_names):
        if dict(consistent(rule, dict(spread), mesh)) == spread:
            yield Case(op, sample, mesh, spread)
    if len(mesh.axis_names) == 2 and set(rule.reductions.values()) <= {"sum"}:
        for group in op.linear_groups(sample.types, sample.params):
            if not all(_adds_exactly(sample.types[i]) for i in group):
                continue
            for spread in spreads(factors, mesh.axis_names[:1]):
                if dict(consistent(rule, dict(spread), mesh)) == spread:
                    yield Case(op, sample, mesh, spread, group=group)


def _adds_exactly(type: TensorType) -> bool:
    """Whether running totals of addends up to 3 are exact: not of bools, nor of short floats along a hundred places."""
    is_short = is_inexact(type.dtype) and type.dtype.itemsize < 4
    return type.dtype != np.bool_ and (not is_short or 3 * max(type.shape, default=0) <= 256)


def _whole(op: Op, rule: FactorRule, factor: str) -> bool:
    kind = rule.kinds.get(factor)
    return kind == "replicate" or (kind == "permute" and not op.exchanges)


def spreads(factors: Sequence[str], axes: Sequence[str]) -> Iterator[dict[str, tuple[str, ...]]]:
    """Every way to give each axis to one factor or none; of axes that meet on one factor in every order."""
    for order in itertools.permutations(axes):
        for chosen in itertools.product([None, *factors], repeat=len(axes)):
            spread: dict[str, tuple[str, ...]] = {}
            for axis, factor in zip(order, chosen, strict=True):
                if factor is not None:
                    spread[factor] = (*spread.get(factor, ()), axis)
            if list(order) == sorted(axes) or any(len(a) > 1 for a in spread.values()):
                yield spread


def _placement_cases(op: Op, sample: Sample, mesh: AbstractMesh) -> Iterator[Case]:
    ranks = [t.rank for t in (*sample.types, *op.type_rule(sample.types, sample.params))]
    each = [list(specs(rank, mesh.axis_names)) for rank in ranks]
    if np.prod([len(s) for s in each], dtype=float) <= 1500:
        for combination in itertools.product(*each):
            yield Case(op, sample, mesh, specs=combination)


def specs(rank: int, axes: Sequence[str]) -> Iterator[PartitionSpec]:
    """Every spec of a value of this rank over these axes."""
    for spread in spreads([str(d) for d in range(rank)], axes):
        yield PartitionSpec(*[spread.get(str(d), None) for d in range(rank)])


# --- checks -----------------------------------------------------------------------------------------------------------


def check(case: Case) -> None:
    """Raise AssertionError where the devices together do not compute what the op means."""
    generator = np.random.default_rng(zlib.crc32(str(case).encode()))
    arrays = case.sample.arrays(generator)
    with Builder(case.op.name) as builder:
        inputs = [builder.input(t) for t in case.sample.types]
        program = builder.build(builder.emit(case.op, inputs, case.sample.params))
    if case.spread is None:
        count = len(inputs)
        check_law(program, case.mesh, case.specs[:count], case.specs[count:], arrays, exact=False)
    else:
        check_spread(case, program, arrays, generator)


def check_spread(case: Case, program: Program, arrays: Sequence[Any], generator: np.random.Generator) -> None:
    assert case.spread is not None
    step = equation_plan(rule_of(case.op, case.sample), dict(case.spread), case.mesh)
    if case.group:
        step = with_partial(step, case.group)
    outputs = tuple(p.without_partial() for p in step.results)
    placements = {
        **dict(zip(program.inputs, step.operands, strict=True)), **dict(zip(program.outputs, step.results, strict=True))
    }  # fmt: skip
    local = verify(partition(Plan(program, case.mesh, placements, (step,), step.operands, outputs)), "partition")
    with np.errstate(all="ignore"):
        wanted = evaluate(program, arrays)
        shards = [addends(a, p, case.mesh, generator) for a, p in zip(arrays, step.operands, strict=True)]
        results = simulate(local, case.mesh, shards)
    for i, (result, placement, want) in enumerate(zip(results, outputs, wanted, strict=True)):
        got = gather(result, placement, want.shape, case.mesh)
        assert_alike(got, want, f"result {i} of {case}\n{local}")


def with_partial(step: EquationPlan, group: Sequence[int]) -> EquationPlan:
    """The step when the operands of a linear group are sums over y."""
    partial = (("y", "sum"),)
    operands = tuple(Placement(p.dims, partial) if i in group else p for i, p in enumerate(step.operands))
    results = tuple(Placement(p.dims, (*p.partial, *partial)) for p in step.results)
    return EquationPlan(step.rule, step.assignment, operands, results)


def addends(array: Any, placement: Placement, mesh: AbstractMesh, generator: np.random.Generator) -> list[Any]:
    """Shards as `scatter` gives them, but a sum is spread over all its devices in unequal parts."""
    if not placement.partial:
        return scatter(array, placement, mesh)
    size = mesh.axes_size(placement.partial_axes)
    parts = [generator.integers(0, 4, array.shape).astype(array.dtype) for _ in range(size - 1)]
    last = array
    for part in parts:
        last = last - part
    each = [scatter(part, placement.without_partial(), mesh) for part in (*parts, last.astype(array.dtype))]
    return [each[int(k)][device] for device, k in enumerate(mesh.axes_index(placement.partial_axes))]


def assert_alike(got: Any, want: Any, message: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, message
    if not is_inexact(want.dtype):
        np.testing.assert_array_equal(got, want, err_msg=message)
        return
    tolerance = 1e-4 if want.dtype.itemsize >= 4 else 3e-2
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, err_msg=message)


def failure(case: Case) -> str | None:
    """What went wrong, or None."""
    try:
        check(case)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
        return f"{type(error).__name__}: {error!s:.3000}"
    return None


def global_ops() -> list[Op]:
    return [op for _, op in sorted(REGISTRY.items()) if not op.is_local]


def drawn(ops: Sequence[Op], seed: int) -> Iterator[Case]:
    """Cases of all ops in turn, of an op those of all its samples in turn, in an order that `seed` shuffles."""
    return in_turn([_shuffled_op(op, seed) for op in ops])


def in_turn(streams: Sequence[Iterator[Case]]) -> Iterator[Case]:
    """One of each, again and again, until all have ended."""
    left = list(streams)
    while left:
        for stream in list(left):
            case = next(stream, None)
            if case is None:
                left.remove(stream)
            else:
                yield case


def _shuffled_op(op: Op, seed: int) -> Iterator[Case]:
    samples = list(variants(op))
    order = np.random.default_rng(seed).permutation(len(samples))
    return in_turn([_shuffled(op, samples[i], seed) for i in order])


def _shuffled(op: Op, sample: Sample, seed: int) -> Iterator[Case]:
    """A tenth of the cases of one sample, the three kinds in turn, so that a short run sees many samples."""
    number = zlib.crc32(f"{op.name} {sample.types} {sample.params}".encode())
    generator = np.random.default_rng([seed, number])
    kinds: dict[tuple[bool, bool], list[Case]] = {}
    for case in cases(op, [sample]):
        kinds.setdefault((bool(case.group), case.spread is None), []).append(case)
    chosen = [[each[i] for i in generator.permutation(len(each))[: 4 + len(each) // 10]] for each in kinds.values()]
    first = number % max(1, len(chosen))  # samples begin with different kinds
    for row in itertools.zip_longest(*chosen[first:], *chosen[:first]):
        yield from (case for case in row if case is not None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="names; all where none is given")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--keep-going", action="store_true", help="one failure of every op instead of the first of all")
    args = parser.parse_args()
    ops = [REGISTRY[name] for name in args.ops] or global_ops()
    if args.missing:
        from tests.tools.brute_missing import report

        return report(ops)
    end = time.time() + 60 * args.minutes if args.minutes else float("inf")
    found = drawn(ops, args.seed) if args.minutes else itertools.chain.from_iterable(map(cases, ops))
    failed, counts = set[str](), Counter[str]()
    for case in found:
        if time.time() > end:
            break
        if case.op.name in failed:
            continue
        if not args.minutes and counts and case.op.name not in counts:
            _say_done(counts, failed)
        counts[case.op.name] += 1
        problem = failure(case)
        if problem:
            print(f"{case}\n{problem}\n", flush=True)
            failed.add(case.op.name)
            if not args.keep_going:
                break
    print(f"{counts.total()} cases, failures in {', '.join(sorted(failed)) or 'no op'}")
    return 1 if failed else 0


def _say_done(counts: Counter[str], failed: set[str]) -> None:
    """One line for the op that is through, so that a run that is cut off still says what it has tried."""
    name = list(counts)[-1]
    print(f"{name}: {counts[name]} cases{', failed' if name in failed else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
