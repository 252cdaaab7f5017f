"""Every plan of small programs, priced as plans are: the planner's has to be the cheapest. Runs in CI, and for as long as you like:

    python -m tests.tools.every_plan --minutes 10 [--seed N] [--most 20000] [--fitting]

Programs of up to 8 equations: chains, diamonds, weights that are read twice, residuals, scans of 2, sums that loops collect, a
product forward and backward, behind a checkpoint or not, rows that are gathered, scattered or sorted, branches; extents even, odd,
and too short for the mesh; meshes 2, 4, 2x2 and 2x2x2 of CPU, GPU and TPU devices; every second one within a limit to the memory, or
with --fitting each within five and none without. A difference is printed with the seed and the Program.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import meshjit.numpy as mnp
from meshjit import lax
from meshjit.autodiff import checkpoint, grad
from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.region import without_sharing
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.candidate import Candidate, candidate_of
from meshjit.plan.automatic.prescribe import prescribe
from meshjit.plan.automatic.solve import Search
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.make import Annotations
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from sharding.mesh import AbstractDevice, AbstractMesh
from tests.tools.laws import partitioned_as_predicted
from tests.tools.wire import traced

EQUAL = 1 + 1e-9  # seconds that differ by less are the same
SHAPES = {"x": (2,), "x ": (4,), "x y": (2, 2), "x y z": (2, 2, 2)}
DEVICES = (None, AbstractDevice("NVIDIA H100", None, "gpu"), AbstractDevice("TPU v5 lite", None, "tpu"))
LEAST_SHARE = 0.1  # below it the limit is less than what any plan holds
EXTENTS = (1, 1, 1, 3, 64, 130, 257, 512, 1025)
SECONDS = 60.0  # of a search


def meshes(device: AbstractDevice | None = None) -> list[AbstractMesh]:
    return [AbstractMesh(shape, tuple(names.split()), abstract_device=device) for names, shape in SHAPES.items()]


# --- every assignment -------------------------------------------------------------------------------------------------


def drafted(
    program: Program, mesh: AbstractMesh, memory: float | None = None, inputs: Any = None, undonated: frozenset[int] = frozenset()
) -> Draft:
    target = target_of(mesh)
    if memory is not None:
        target = dataclasses.replace(target, topology=dataclasses.replace(target.topology, memory=memory))
    annotations = Annotations(inputs or [None] * len(program.inputs), [None] * len(program.outputs), undonated)
    return first_draft(without_sharing(program), annotations, Assigner(Machine(mesh, target, annotations.undonated_of(program))))


def searched(draft: Draft, effort: float = 0.0) -> Search:
    return Search(draft, {}, time.perf_counter() + SECONDS, effort)


def _ranges(search: Search) -> list[range]:
    """The choices of every decision; of those that differ in what flows through unreduced the first."""
    decisions = search.model.decisions
    return [range(len({id(s) for s in d.spreads}) if d.spreads else len(d.placements)) for d in decisions]


def count(search: Search) -> int:
    return math.prod(map(len, _ranges(search)))


def assignments(search: Search) -> Iterator[dict[int, int]]:
    for choice in itertools.product(*_ranges(search)):
        yield {d.number: c for d, c in zip(search.model.decisions, choice, strict=True)}


def every_plan(search: Search) -> Iterator[Candidate]:
    model, draft = search.model, search.draft
    return (candidate_of(prescribe(draft, model, choices), draft.machine) for choices in assignments(search))


# --- what has to hold -------------------------------------------------------------------------------------------------


def check(program: Program, mesh: AbstractMesh, inputs: Any = None) -> list[Candidate]:
    """The plan found by elimination, and the one found by descents and a proof, are the cheapest of all; all plans."""
    search = searched(drafted(program, mesh, inputs=inputs))
    bound, is_complete = search.in_order()
    plans = [dataclasses.replace(c, plan=_light(c.plan), draft=None) for c in every_plan(search)]
    least = min(plan.seconds for plan in plans)
    is_whole = search.model.tables.is_whole  # else a value lies in too many ways, and only the proof tells
    assert search.best is not None and is_complete == is_whole, "the search was cut"
    assert bound <= least * EQUAL, f"the bound {bound} is above {least}"
    assert not is_whole or _same(search.best.seconds, least), f"found {search.best.seconds}, the least is {least}"
    check_law(program, search.best.plan, mesh)
    for rival in (math.inf, 0.9 * least, 1.1 * least):
        check_proof(program, mesh, inputs, least, rival)
    return plans


def _light(plan: Plan) -> Plan:
    """A plan whose cost alone is asked for: thousands of them are kept."""
    return dataclasses.replace(plan, events=(), describe=None)


def check_proof(program: Program, mesh: AbstractMesh, inputs: Any, least: float, rival: float) -> None:
    """Descents and a proof, as of large programs, come to the same: the bound is valid, the plan is optimal. So is what is found
    where another Search has a plan of `rival` seconds, however it is gone about; a plan that takes longer need not be."""
    search, again = (searched(drafted(program, mesh, inputs=inputs), effort=1e8) for _ in range(2))
    search.rival = again.rival = rival
    search.descents()
    assert search.best is not None
    search.propagated = dataclasses.replace(search.best, seconds=math.inf)
    again.begin()
    for each in (search, again):
        each.prove()
        each.conclude()
        assert each.bound <= min(rival, least) * EQUAL, f"the proof's bound {each.bound} is above {least}, and {rival}"
        assert each.is_complete and (each.quickest >= rival or _same(each.quickest, least)), f"found {each.quickest}, the least is {least}"


def held(program: Program, mesh: AbstractMesh, undonated: frozenset[int] = frozenset()) -> list[tuple[float, float]]:
    """The bytes at the peak and the seconds of every plan, that which holds least first. `undonated`: inputs that nobody donates."""
    return sorted((plan.peak, plan.seconds) for plan in every_plan(searched(drafted(program, mesh, memory=1.0, undonated=undonated))))


def check_fitting(
    program: Program,
    mesh: AbstractMesh,
    share: float,
    plans: Sequence[tuple[float, float]] = (),
    undonated: frozenset[int] = frozenset(),
) -> str:
    """The planner's plan is no dearer than any that fits, and it finds one if there is any; else the one that holds least. The
    limit lies between the least and the most that `plans` hold, by share of all plans. How it went, in a word."""
    plans = plans or held(program, mesh, undonated)
    limit = plans[int(share * (len(plans) - 1))][0] - (1 if share == 0 else 0)
    search = searched(drafted(program, mesh, memory=limit, undonated=undonated), effort=1e8)
    best, fitting, (lean, _) = search.plan(), [seconds for peak, seconds in plans if peak <= limit], plans[0]
    assert best.optimum is not None and best.cost is not None
    if not fitting:
        assert search.chosen.peak <= lean, f"the least found is {search.chosen.peak:,.0f}, one plan holds {lean:,.0f}"
        return "refined until it fits" if search.fits else "nothing fits"
    least = min(fitting)
    assert search.fits, f"a plan that holds {limit:,.0f} bytes was not found; the least found is {search.chosen.peak:,.0f}"
    assert best.optimum.bound <= best.cost.seconds * EQUAL
    assert search.chosen.seconds <= least * EQUAL, f"not the cheapest: {search.chosen.seconds} s, and {least} s fits, too"
    assert best.optimum.is_optimal or search.chosen.refined_by, f"not proved: {best.optimum}"
    check_law(program, best, mesh)
    return "optimal" if best.optimum.is_optimal else f"refined by {search.chosen.refined_by}"


def check_law(program: Program, plan: Plan, mesh: AbstractMesh) -> None:
    arrays = [np.random.default_rng(0).integers(-2, 3, v.shape).astype(v.type.dtype) for v in program.inputs]
    shards = [scatter(a, p, mesh) for a, p in zip(arrays, plan.inputs, strict=True)]
    results = simulate(partitioned_as_predicted(plan), mesh, shards)
    for got, placement, want in zip(results, plan.outputs, evaluate(program, arrays), strict=True):
        np.testing.assert_allclose(
            gather(got, placement, want.shape, mesh), want, rtol=1e-3, atol=1e-2 * np.abs(want).max(initial=1)
        )


def _same(a: float, b: float) -> bool:
    return a <= b * EQUAL and b <= a * EQUAL


# --- programs ---------------------------------------------------------------------------------------------------------


MOST = 8  # equations


def drawn(generator: np.random.Generator, mesh: AbstractMesh, most: int) -> tuple[Program, int]:
    """A program, and how many assignments it has on the mesh: at most so many. Long ones are drawn as often as short ones."""
    least = int(generator.integers(1, MOST + 1))
    while True:
        program = FORMS[int(generator.integers(len(FORMS)))](generator, least)
        if least <= sum(1 for _ in _equations(program)) <= MOST:
            search = searched(drafted(program, mesh))
            many = count(search) if search.is_small else math.inf
            if many <= most:
                return program, int(many)
        least = max(1, least - (generator.random() < 0.1))


def _equations(program: Program) -> Iterator[Any]:
    for eqn in program.eqns:
        yield eqn
        for inner in eqn.params.values():
            if isinstance(inner, Program):
                yield from _equations(inner)


def _types(*shapes: Sequence[int]) -> list[str]:
    return [f"f32[{', '.join(map(str, shape))}]" for shape in shapes]


def mixed(generator: np.random.Generator, least: int) -> Program:
    """Products, sums, transpositions and reductions of what there is, in any order: chains, diamonds, residuals."""
    a, b, c = (int(n) for n in generator.choice(EXTENTS, 3))
    shapes = [[(a, b), (b, c), (a, c)][i] for i in generator.permutation(3)[: int(generator.integers(1, 4))].tolist()]
    if generator.random() < 0.4:
        shapes = [shape[:1] for shape in shapes]
    steps = generator.integers(0, 1000, (int(generator.integers(least, MOST + 2)), 3))

    def fun(*arrays: Any) -> Any:
        values = list(arrays)
        for kind, i, j in steps:
            values.append(_step(kind % 6, values[i % len(values)], values[-1 - j % len(values)], int(j)))
        return values[-1]

    return traced(fun, _types(*shapes))


def _step(kind: int, a: Any, b: Any, j: int) -> Any:
    if kind < 2 and a.ndim == 2 and b.ndim == 2:
        for x, y in ((a, b), (a.T, b), (a, b.T), (a.T, b.T)):
            if x.shape[1] == y.shape[0] and x.shape[0] * y.shape[1] < 1 << 21:
                return mnp.dot(x, y)
    if kind < 4 and a.shape == b.shape and a is not b:
        return a + b if kind % 2 else a * b
    if kind == 4 and a.ndim == 2:
        return a.T
    if kind == 5 and a.ndim:
        return mnp.sum(a, axis=j % a.ndim)
    return mnp.tanh(b)


def layers(generator: np.random.Generator, least: int) -> Program:
    """x w, tanh, again with the same weight or another, with a residual or without."""
    n, d = (int(n) for n in generator.choice(EXTENTS, 2))
    shared, residual, depth = generator.random() < 0.5, generator.random() < 0.5, int(generator.integers(1, 4))

    def fun(x: Any, *weights: Any) -> Any:
        for i in range(depth):
            y = mnp.tanh(mnp.dot(x, weights[0 if shared else i]))
            x = x + y if residual else y
        return x

    return traced(fun, _types((n, d), *[(d, d)] * (1 if shared else depth)))


def loops(generator: np.random.Generator, least: int) -> Program:
    """A scan of two iterations, over a carry alone or slices besides; with a weight from outside."""
    n, d = (int(n) for n in generator.choice(EXTENTS, 2))
    kind = int(generator.integers(3))

    def fun(x: Any, w: Any) -> Any:
        if kind == 0:
            return lax.scan(lambda c, _: (mnp.tanh(mnp.dot(c, w)), None), x, None, length=2)[0]
        if kind == 1:
            return lax.scan(lambda c, y: (c + y, None), w, x)[0]
        return lax.scan(lambda c, y: (mnp.tanh(c * y), c + y), w, x)[1]

    return traced(fun, _types((n, d), (d, d)) if kind == 0 else _types((2, n, d), (n, d)))


def steps(generator: np.random.Generator, least: int) -> Program:
    """A product forward and backward, as a gradient, as a step, or with a loss that is not a square."""
    n, d, m = (int(n) for n in generator.choice(EXTENTS, 3))
    kind = int(generator.integers(3))
    losses: list[Callable[..., Any]] = [lambda y: mnp.sum(y**2), lambda y: mnp.sum(y * y), lambda y: mnp.sum(mnp.tanh(y))]

    def fun(w: Any, x: Any) -> Any:
        gradient = grad(lambda w: losses[kind](mnp.dot(x, w)))(w)
        return w - gradient if n % 2 else gradient

    return traced(fun, _types((d, m), (n, d)))


def collecting(generator: np.random.Generator, least: int) -> Program:
    """Sums that a loop collects, whole or as parts of what it collects, faded or not; or parts of one sum without a loop."""
    n, d = (int(n) for n in generator.choice(EXTENTS, 2))
    kind, trips = int(generator.integers(4)), int(generator.choice([2, 64]))
    behind, before = [[(0, d)], [(d, 0)]]

    def fun(x: Any) -> Any:
        if kind == 0:
            return mnp.pad(mnp.sum(x[0], 0), behind) + mnp.pad(mnp.sum(mnp.tanh(x[1]), 0), before)
        if kind == 1:
            return lax.scan(lambda c, y: (c + mnp.sum(y, 0), None), mnp.zeros(d), x)[0]
        if kind == 2:
            return lax.scan(lambda c, y: (c + mnp.pad(mnp.sum(y, 0), behind), None), mnp.zeros(2 * d), x)[0]
        return lax.scan(lambda c, y: (0.5 * c + mnp.sum(y, 0), None), mnp.zeros(d), x)[0]

    return traced(fun, _types((2 if kind == 0 else trips, n, d)))


def moved(generator: np.random.Generator, least: int) -> Program:
    """Rows that are picked, added to or sorted, dims that are merged and cut, running sums; elementwise steps between them."""
    n, d = (int(n) for n in generator.choice(EXTENTS, 2))
    kinds, rows = generator.integers(0, 8, int(generator.integers(1, 4))), int(generator.choice([1, 3, 64]))

    def fun(x: Any, at: Any) -> Any:
        for kind in kinds:
            x = mnp.tanh(MOVES[kind](x, at)) if kind % 2 else MOVES[kind](x, at)
        return x

    return traced(fun, [*_types((n, d)), f"i32[{rows}]"])


MOVES: Sequence[Callable[..., Any]] = (
    lambda x, at: x[at], lambda x, at: x.at[at].add(1.0), lambda x, _: mnp.sort(x, axis=0), lambda x, _: mnp.cumsum(x, axis=-1),
    lambda x, _: x.reshape(-1), lambda x, _: mnp.concatenate([x, x]), lambda x, _: x[::-1], lambda x, _: x[: len(x) // 2 + 1],
)  # fmt: skip


def branches(generator: np.random.Generator, least: int) -> Program:
    """One of two functions of the same values, products or not; around them a sum or a product."""
    n, d = (int(n) for n in generator.choice(EXTENTS, 2))
    kind, around = int(generator.integers(3)), bool(generator.integers(2))
    one: list[Callable[..., Any]] = [lambda x, w: mnp.dot(x, w), lambda x, w: mnp.tanh(x), lambda x, w: x * mnp.sum(w)]

    def fun(p: Any, x: Any, w: Any) -> Any:
        y = lax.cond(p, one[kind], one[(kind + 1) % 3], x, w)
        return mnp.dot(y, w) if around else y

    return traced(fun, ["bool[]", *_types((n, d), (d, d))])


def computed_again(generator: np.random.Generator, least: int) -> Program:
    """A gradient behind a checkpoint."""
    n, d = (int(n) for n in generator.choice(EXTENTS, 2))
    kind = int(generator.integers(2))
    losses: list[Callable[..., Any]] = [lambda w, x: mnp.sum(mnp.tanh(x * w)), lambda w, x: mnp.sum(mnp.dot(x, w) ** 2)]
    return traced(grad(checkpoint(losses[kind])), _types((d,), (n, d)))


FORMS: Sequence[Callable[[np.random.Generator, int], Program]] = (
    mixed, mixed, mixed, layers, loops, steps, collecting, moved, moved, branches, computed_again,
)  # fmt: skip


# --- as a tool --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--most", type=int, default=20_000, help="assignments of a program: others are drawn")
    parser.add_argument("--fitting", action="store_true", help="limits to the memory alone, five of each program")
    parser.add_argument("--go-on", action="store_true", help="count differences instead of ending at the first")
    arguments = parser.parse_args()
    end, went = time.monotonic() + 60 * arguments.minutes, Counter[str]()
    for seed in itertools.count(arguments.seed):
        if time.monotonic() > end:
            break
        try:
            went.update(one(seed, arguments.most, arguments.fitting))
        except AssertionError as error:
            went["different"] += 1
            print(f"seed {seed}: {str(error).splitlines()[0] if arguments.go_on else error}", flush=True)
            if not arguments.go_on:
                raise
    print(f"to seed {seed}: {dict(sorted(went.items()))}")


def one(seed: int, most: int, only_fitting: bool = False) -> Counter[str]:
    """Check one program; how it went. AssertionError names the mesh and the Program."""
    generator = np.random.default_rng(seed)
    device, share = DEVICES[generator.integers(len(DEVICES))], float(generator.random())
    mesh, share = meshes(device)[generator.integers(len(SHAPES))], 0.0 if share < LEAST_SHARE else share**2  # few hold little
    program, many = drawn(generator, mesh, most)
    went = Counter({f"of {sum(1 for _ in _equations(program))} equations": 1})
    try:
        if not only_fitting:
            went.update({"cheapest": 1, "plans": len(check(program, mesh))})
        if seed % 2 or only_fitting:
            undonated = frozenset(range(len(program.inputs))) if seed % 4 == 1 else frozenset[int]()
            shares, plans = (share, *((0.0, share / 2, share / 8, share / 64) if only_fitting else ())), held(program, mesh, undonated)
            went.update(f"in memory: {check_fitting(program, mesh, each, plans, undonated)}" for each in shares)
    except AssertionError as error:
        error.args = (f"{error}\n  {mesh} {device}, share {share}, {many} assignments\n{program}",)
        raise
    return went


if __name__ == "__main__":
    main()
