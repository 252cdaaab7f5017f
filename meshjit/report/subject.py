"""What a report is about: a Plan, the annotations that it obeys, and the names that the user gave to its inputs and results."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from meshjit.core.decision import Decision
from meshjit.core.memories import all_on_host
from meshjit.core.once import once_per_program
from meshjit.core.plan import Plan
from meshjit.core.printer import names_of, print_type
from meshjit.core.program import Eqn, Program, Source, Var
from meshjit.core.region import weighted_regions
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from meshjit.plan.describe import Describer
from meshjit.plan.events import Event
from meshjit.plan.graph import Annotations, programs_in
from meshjit.plan.groups import decisions_of_dims
from meshjit.plan.lifetimes import Lifetimes
from meshjit.plan.make import PlanAgain, make_plan
from meshjit.plan.seeds import seed_text
from meshjit.report.labels import Labels
from sharding.axes import AxisRef
from sharding.spec import Placement, spec_of, spec_text

_T = TypeVar("_T")
_named = once_per_program(names_of)


@once_per_program
def _makers_in(program: Program) -> Mapping[Var, Eqn]:
    return {v: e for part in programs_in(program) for e in part.eqns for v in e.outputs}


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """`inputs` and `outputs` are names: `params['w1']`, `result[0]`."""

    title: str
    plan: Plan
    annotations: Annotations
    inputs: Sequence[str]
    outputs: Sequence[str]
    donated: frozenset[int] = frozenset()  # inputs whose memory the call gives away
    plan_again: PlanAgain = make_plan  # as this plan was made: by annotations, or searching
    program: Program | None = None  # what was planned, before planning rewrote it for this plan
    answers: dict[Any, Any] = dataclasses.field(default_factory=dict[Any, Any], init=False, repr=False)

    def of(self, plan: Plan, annotations: Annotations) -> Subject:
        """The same function under another plan."""
        return dataclasses.replace(self, plan=plan, annotations=annotations)

    @functools.cached_property
    def decision_of_dim(self) -> Callable[[Var, int, AxisRef], Decision | None]:
        """Of an automatic plan, why a dim is split over an axis."""
        return decisions_of_dims(self.plan)

    @functools.cached_property
    def names(self) -> Mapping[Var, str]:
        """Every value's name: an input's is the user's, others' are those of the Plan's text."""
        own = dict(zip(self.plan.program.inputs, self.inputs, strict=True))
        return {**_named(self.plan.program), **own}

    @functools.cached_property
    def labels(self) -> Labels:
        """What a user calls every value. Names are unique, labels are not."""
        return Labels(self.plan.program, self.names, self.makers)

    @property
    def makers(self) -> Mapping[Var, Eqn]:
        return _makers_in(self.plan.program)

    @property
    def machine(self) -> Machine:
        """Prices on the plan's mesh and target: those that planning asked."""
        return self.describer.assigner.machine

    @functools.cached_property
    def lifetimes(self) -> Lifetimes:
        """From when to when each version of each value is held."""
        plan = self.plan
        return Lifetimes(plan.program, self.machine, plan.equations, plan.inputs, plan.outputs)

    @functools.cached_property
    def describer(self) -> Describer:
        assert isinstance(self.plan.describe, Describer), "plans are made by make_plan"
        return self.plan.describe

    @functools.cached_property
    def values(self) -> Mapping[int, Var]:
        """The value of every number that propagation gave one."""
        return {number: var for var, number in self.describer.flat.numbers.items()}

    @functools.cached_property
    def groups(self) -> Mapping[Var, tuple[str, tuple[Var, ...]]]:
        """With every value the name and the values of those that are alike: arguments whose names differ in their numbers alone
        (`layers[*]['w']`), and what one line makes in equal layers; of one type and placement."""
        alike: dict[object, list[Var]] = {}
        makers = self.makers
        for var, name in self.names.items():
            maker = makers.get(var)
            key: object = name if maker is not None else starred(name)
            if maker is not None and maker.source is not None:
                key = maker.source, maker.op.name
            alike.setdefault((key, self.type_text(var)), []).append(var)
        named = [(self._group_name(group), tuple(group)) for group in alike.values()]
        return {var: group for group in named for var in group[1]}

    def _group_name(self, group: Sequence[Var]) -> str:
        label = self.labels[group[0]]
        if len(group) == 1:
            return label
        return f"{label if group[0] in self.makers else starred(label)} × {len(group)}"

    @functools.cached_property
    def output_names(self) -> Mapping[Var, str]:
        return dict(reversed(list(zip(self.plan.program.outputs, self.outputs, strict=True))))

    def source(self, var: Var) -> Source | None:
        maker = self.makers.get(var)
        return maker.source if maker is not None else None

    def type_text(self, var: Var, placement: Placement | None = None) -> str:
        """`f32[8@data, 16]`, at the plan's placement or another."""
        return _type_text(var.type, placement or self.plan.placements.get(var))

    def local_bytes(self, var: Var, placement: Placement) -> int:
        """What a version of a value takes of a device's own memory."""
        if var in self.on_host:
            return 0
        return size_of(placement.local_shape(var.shape, self.plan.mesh)) * var.dtype.itemsize

    @functools.cached_property
    def on_host(self) -> frozenset[Var]:
        """Values in the hosts' memory, where the machine has it."""
        target = self.plan.target
        return all_on_host(self.plan.program) if target is not None and target.has_host_memory else frozenset()

    @functools.cached_property
    def seed_texts(self) -> Callable[[int, bool], str]:
        """Where axes that began with this value come from, in words; (its number, whether the value in question is itself)."""
        return functools.cache(self._seed_text)

    def _seed_text(self, number: int, is_own: bool) -> str:
        seed = self.describer.propagated.graph.seeds.get(number)
        text = seed_text(self.plan, self.describer.annotations, self.labels, self.makers, self.values[number], is_own)
        return text + (f": {placement_text(seed.placement)}" if seed is not None else "")

    def events(self) -> Iterator[tuple[Event, float]]:
        """What the plan does, with how often, in the order of its nested Programs."""
        yield from _events(self.plan, 1.0)


def once_per_subject(function: Callable[[Subject], _T]) -> Callable[[Subject], _T]:
    """The answer for a Subject is worked out once, as long as that lives (`core/once.py`)."""

    @functools.wraps(function)
    def once(subject: Subject) -> _T:
        if function not in subject.answers:
            subject.answers[function] = function(subject)
        return subject.answers[function]

    return once


@functools.lru_cache(maxsize=1 << 14)
def _type_text(type: TensorType, placement: Placement | None) -> str:
    text = print_type(type)
    return text if placement is None else f"{text.partition('[')[0]}[{placement.annotate(type.shape)}]"


def _events(plan: Plan, trips: float) -> Iterator[tuple[Event, float]]:
    yield from ((event, trips) for event in plan.events)
    for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
        if equation.bodies and not equation.block:
            for (_, times), body in zip(weighted_regions(eqn), equation.bodies, strict=True):
                yield from _events(body, trips * times)


def starred(name: str) -> str:
    """The same for all layers: `layers[3]['w']` → `layers[*]['w']`."""
    return re.sub(r"\[\d+\]", "[*]", name)


def size_of(shape: Sequence[int]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


@functools.lru_cache(maxsize=1 << 12)
def placement_text(placement: Placement) -> str:
    """As a user writes it: `P("data", None)`; and over which axes it is an addend."""
    text = spec_text([*spec_of(placement), *[None] * (placement.rank - len(spec_of(placement)))])
    if not placement.partial:
        return text
    return f"{text}, unreduced over {', '.join(map(str, placement.partial_axes))}"
