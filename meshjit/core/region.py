"""Regions: the Programs that loops, branches and calls hold in their params, and how their values stand to the equation's.

    scan(%w, %c, %xs) {body=program step(%w, %c, %x) -> (%c2, %y), …}

Here input 0 of the region is operand 0, input 1 is operand 1 and carried into output 0, and input 2 is one slice along
dim 0 of operand 2; output 0 is result 0, and output 1 is one slice of result 1. Passes that know this need not know
which op it is: planning ties carried values to one placement, partitioning rebuilds every Program for one device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from meshjit.core.program import Builder, Eqn, Program, Var, current_builder

USERS: Final = "came out of a rule of the user's"  # an attribute of errors
F = TypeVar("F")  # a fact about a value: whether it depends on something, the axes over which it varies

# What an op with regions means: a generator that asks for (Program, operands), is sent the results, and returns its own.
Steps: TypeAlias = Generator[tuple[Program, Sequence[Any]], Sequence[Any], Sequence[Any]]


@dataclass(frozen=True)
class Region:
    """One nested Program.

    `role` is "run" for a Program that the op's meaning runs; "device" for one that every device runs as it is, with
    collectives in it (`manual`); "rule" for one that a transformation may ask for, such as a custom derivative. Only those of
    role "run" are planned and partitioned. A rule's inputs and outputs are no operands and results: what runs Programs
    (evaluate, simulate, emit) and what simplifies them passes it by. Programs stand in params in the order of the regions.
    `trips` is how often it runs each time the equation does: 1 for a branch or call, None where nobody knows. `changing` are
    inputs that another region changes meanwhile, as a loop's body does those of its condition.
    """

    program: Program
    operands: tuple[int, ...]  # which operand of the equation each input is
    results: tuple[int | None, ...]  # which result each output is; None for one of the op's own (a loop's condition)
    sliced: frozenset[int] = frozenset()  # inputs that are one slice along dim 0 of their operand
    stacked: frozenset[int] = frozenset()  # outputs that are one slice along dim 0 of their result
    carried: tuple[tuple[int, int], ...] = ()  # (input, output): next time the input is what the output was
    changing: frozenset[int] = frozenset()
    trips: int | None = 1
    role: Literal["run", "device", "rule"] = "run"

    @property
    def loops(self) -> bool:
        """Whether it belongs to a loop, however often that runs; else it is a branch or a call."""
        return bool(self.carried or self.sliced or self.stacked) or self.trips != 1

    @property
    def invariant(self) -> tuple[int, ...]:
        """The inputs that are the same every time."""
        changing = {i for i, _ in self.carried} | self.sliced | self.changing
        return tuple(i for i in range(len(self.operands)) if i not in changing)


@dataclass(frozen=True, eq=False)
class Rule:
    """What a transformation may ask of a custom function in place of what it would make of the body: `make(*question)` traces the
    user's rule when it is asked, and never before. It prints as `rule('name')`, and one that was read back has no `make`."""

    name: str
    make: Callable[..., Any] | None = None
    answers: dict[Any, Any] = field(default_factory=dict[Any, Any])
    seeing: Callable[..., Any] | None = None  # `make` where values are known: seeing(operands, *question)

    def __repr__(self) -> str:
        return f"rule({self.name!r})"

    def __call__(self, *question: Any) -> Any:
        """What the rule makes of the question, once for each."""
        if self.make is None:
            raise ValueError(f"{self.name} is known by its name only: text has no rules that were not asked for")
        if question not in self.answers:
            try:
                self.answers[question] = self.make(*question)
            except Exception as error:
                error.__dict__[USERS] = True
                raise
        return self.answers[question]

    def of(self, operands: Sequence[Var], *question: Any) -> Any:
        """The same for these Vars of the current Builder. Outside of jit the user's rule may ask for their values; what it makes
        then is for them alone."""
        known = current_builder().known
        if self.seeing is None or known is None:
            return self(*question)
        return self.seeing(known.tracers(operands), *question)


def programs_of(params: Mapping[str, Any]) -> Iterator[Program]:
    """The Programs among the params and in their tuples, in order."""
    for value in params.values():
        for item in cast(tuple[Any, ...], value) if isinstance(value, tuple) else (value,):
            if isinstance(item, Program):
                yield item


def run_regions(eqn: Eqn) -> tuple[Region, ...]:
    """The regions of an equation that are planned and partitioned, in order."""
    return () if eqn.op.regions is None else tuple([r for r in eqn.op.regions(eqn.params) if r.role == "run"])


def run_programs(eqn: Eqn) -> list[Program]:
    """The nested Programs of an equation that run, on single devices or not, in order."""
    return [] if eqn.op.regions is None else [r.program for r in eqn.op.regions(eqn.params) if r.role != "rule"]


def nesting(program: Program) -> int:
    """How many Programs stand inside one another in it, itself included."""
    inside = (nesting(p) for eqn in program.eqns if eqn.op.regions for p in programs_of(eqn.params))
    return 1 + max(inside, default=0)


def with_programs(params: Mapping[str, Any], change: Callable[[Program], Program]) -> Mapping[str, Any]:
    """The params with every Program replaced by change(Program), in the order of `programs_of`."""

    def changed(value: Any) -> Any:
        if isinstance(value, Program):
            return change(value)
        if isinstance(value, tuple):
            return tuple(changed(v) for v in cast(tuple[Any, ...], value))
        return value

    return {name: changed(value) for name, value in params.items()}


def with_run_programs(eqn: Eqn, change: Callable[[Program], Program], device: bool = True) -> Mapping[str, Any]:
    """The equation's params with every Program that runs replaced by change(Program), in order. Rules stay; so do those of
    single devices without `device`."""
    if eqn.op.regions is None:
        return eqn.params
    regions, roles = iter(eqn.op.regions(eqn.params)), ("run", "device") if device else ("run",)
    return with_programs(eqn.params, lambda nested: change(nested) if next(regions).role in roles else nested)


def with_regions_changed(eqn: Eqn, change: Callable[[Program], Program], device: bool = True) -> Eqn:
    """The same as an equation; itself if it has no nested Programs, or none is another afterwards."""
    if eqn.op.regions is None:
        return eqn
    params = with_run_programs(eqn, change, device)
    same = all(a is b for a, b in zip(programs_of(params), programs_of(eqn.params), strict=True))
    return eqn if same else eqn.with_params(params)


def depending(eqns: Iterable[Eqn], roots: Iterable[Var]) -> set[Var]:
    """Every Var that depends on one of the roots, the roots included."""
    dependents: set[Var] = set(roots)
    for eqn in eqns:
        if any(v in dependents for v in eqn.inputs):
            dependents.update(eqn.outputs)
    return dependents


def dependent_results(eqn: Eqn, operands: Sequence[bool]) -> list[bool]:
    """Which results depend on an operand that is marked: through a loop or branch, only those that it goes into."""
    regions = [r for r in eqn.op.regions(eqn.params) if r.role != "rule"] if eqn.op.regions is not None and any(operands) else []
    if not regions:
        return [any(operands)] * len(eqn.outputs)
    return through_regions(eqn, regions, operands, False, _dependent_outputs)


def through_regions(
    eqn: Eqn,
    regions: Sequence[Region],
    operands: Sequence[F],
    nothing: F,
    outputs_of: Callable[[Program, Sequence[F]], Sequence[F]],
) -> list[F]:
    """What the results take over from operands through the Programs of regions, around loops until nothing is added. Facts are
    joined by `|`. What chooses between Programs, or says when a loop ends, goes to all results."""

    def join(a: Any, b: Any) -> Any:
        return a | b

    read = {i for region in regions for i in region.operands}
    common = functools.reduce(join, [fact for i, fact in enumerate(operands) if i not in read], nothing)
    entering, results = list(operands), [nothing] * len(eqn.outputs)
    while True:
        before = list(entering), common
        for region in regions:
            outputs = outputs_of(region.program, [join(entering[i], common) for i in region.operands])
            for result, fact in zip(region.results, outputs, strict=True):
                if result is None:
                    common = join(common, fact)
                else:
                    results[result] = join(results[result], fact)
            for i, output in region.carried:
                entering[region.operands[i]] = join(entering[region.operands[i]], outputs[output])
        if (entering, common) == before:
            return [join(fact, common) for fact in results]


def _dependent_outputs(program: Program, inputs: Sequence[bool]) -> list[bool]:
    dependents = {v for v, flag in zip(program.inputs, inputs, strict=True) if flag}
    for eqn in program.eqns:
        if any(v in dependents for v in eqn.inputs):
            flags = dependent_results(eqn, [v in dependents for v in eqn.inputs])
            dependents.update(v for v, flag in zip(eqn.outputs, flags, strict=True) if flag)
    return [v in dependents for v in program.outputs]


def copied(program: Program) -> Program:
    """The same Program with Vars of its own, in nested Programs too."""
    with Builder(program.name) as builder:
        outputs = builder.inline(program, [builder.input(v.type, v.hint) for v in program.inputs])
        builder.eqns = [e.with_params(with_programs(e.params, copied)) if e.op.regions else e for e in builder.eqns]
        return builder.build(outputs)


def without_sharing(program: Program, seen: set[Var] | None = None) -> Program:
    """The Program with no Var in two nested Programs, so that every Var belongs to one place. Programs that derivatives and dead
    code elimination make of the same one have Vars in common."""
    if not any(eqn.op.regions for eqn in program.eqns):
        return program
    seen = {*program.vars()} if seen is None else seen

    def own(nested: Program) -> Program:
        nested = nested if seen.isdisjoint(nested.vars()) else copied(nested)
        seen.update(nested.vars())
        return without_sharing(nested, seen)

    eqns = tuple([with_regions_changed(eqn, own) for eqn in program.eqns])
    if all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
        return program
    return Program(program.name, program.inputs, eqns, program.outputs)


UNKNOWN_TRIPS = 16  # what a while loop is taken to run where nobody knows


def expected_trips(region: Region) -> int:
    """How often a region runs, as far as anybody knows."""
    return UNKNOWN_TRIPS if region.trips is None else region.trips


def weighted_regions(eqn: Eqn) -> Iterator[tuple[Region, float]]:
    """The regions of an equation, with how often each is expected to run: all trips of a loop, one branch of several."""
    regions = run_regions(eqn)
    branches = len(regions) if not any(region.loops for region in regions) else 1
    for region in regions:
        yield region, expected_trips(region) / branches
