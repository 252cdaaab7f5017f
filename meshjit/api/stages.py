"""The stages between a function and its results: Traced → Planned → Lowered → Compiled.

As `jax.stages`, with a stage of our own that holds the Plan: where everything will live, before anything is cut up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshjit.api.call import ArgInfo, Automatic, Call, Stage
from meshjit.api.compiled import Compiled
from meshjit.api.donated import warn_of_unused
from meshjit.api.jaxpr import ClosedJaxpr, closed_jaxpr
from meshjit.api.lowered import Lowered
from meshjit.api.mesh_choice import best_of_meshes
from meshjit.api.placements import Placements, output_names, pinned, placements
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.smaller_batch import fitting_batch, trial
from meshjit.api.state import state_ties
from meshjit.api.unasked import searched_on_mesh
from meshjit.api.watching import tell
from meshjit.config import config
from meshjit.core.garbage import rarely_collected
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.refusal import DoesNotFit
from meshjit.plan.automatic.saved import SavedPlanError
from meshjit.plan.make import Annotations
from meshjit.report import Report
from meshjit.report.subject import Subject
from meshjit.runtime.array import leaf_key
from meshjit.runtime.lowering import Planning, lower_plan, plan_program
from meshjit.runtime.reproduce import lowering
from meshjit.runtime.targets import figures_for, target_for
from meshjit.targets import PLATFORMS
from meshjit.trace import Traced as TracedProgram
from meshjit.trace.refs import check_without_refs
from meshjit.transform.dce import dce
from meshjit.transform.inline_calls import inline_calls
from meshjit.tree_views import key_types
from sharding.figures import Figures
from sharding.mesh import BaseMesh
from sharding.named import AUTO, NamedSharding, SingleDeviceSharding
from sharding.spec import PartitionSpec, Placement


class Traced(Stage):
    """A function traced at the types of its arguments. `.program` is what it does; `.lower()` plans and partitions it."""

    def __init__(self, call: Call, traced: TracedProgram, again: Callable[[Call], Traced | None] | None = None) -> None:
        """`again` traces the function for a call with other types; None where there is no function any more."""
        self.call = call
        self._again = again
        self.function: Any = None  # who traced it, as long as somebody holds this; compiled code does not keep it alive
        self.traced_program = traced
        self.program: Program = traced.program
        self._compiled: Compiled | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives for arguments like those that it was traced for; compiled at the first call."""
        if self._compiled is None:
            self._compiled = self.lower().compile()
        return self._compiled(*args, **kwargs)

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The Program, and the arrays that the function closed over, under JAX's names."""
        traced = self.traced_program
        keys = key_types(self.call.in_tree), key_types(traced.out_tree)
        weak = [key.weak for key in self.call.keys], traced.out_weak
        shardings = [key.sharding for key in self.call.keys] + [getattr(x, "sharding", None) for x in traced.captured]
        return closed_jaxpr(self.program, traced.captured, weak, traced.mesh, keys, shardings)

    def as_text(self) -> str:
        """The Program as text, which `meshjit.core.parser` reads back."""
        return print_program(self.program)

    def plan(
        self,
        *,
        lowering_platforms: Sequence[str] | None = None,
        topology: str | None = None,
        pins: Mapping[str, PartitionSpec | NamedSharding] | None = None,
    ) -> Planned:
        """Decide where every value lives, without partitioning; for the first of `lowering_platforms`, and on the machine that
        `topology` names, as `lower` has them.

        `pins`: where arguments are instead, by name such as "params['w1']". So a function is planned again, with one more wish,
        without being traced again."""
        check_without_refs(self.call.title, self.traced_program)
        call = searched_on_mesh(self.call, self.traced_program)
        if call is not self.call:
            same = Traced(call, self.traced_program, self._again)
            return same.plan(lowering_platforms=lowering_platforms, topology=topology, pins=pins)
        if self.call.automatic is not None and len(self.call.automatic.meshes) > 1:
            return self._on_best_mesh(self.call.automatic, lowering_platforms, pins, topology)
        places = placements(self.call, self.traced_program)
        device = getattr(places.mesh, "abstract_device", None)
        platforms = _checked_platforms(lowering_platforms) or (() if device is None else (device.platform,))
        figures = None if topology is None else figures_for(topology, places.mesh)
        if figures is not None and not platforms:
            platforms = (figures.platform,)
        target = target_for(places.mesh, platforms, figures)
        # A call that drops an input no longer reads it; nor is there a derivative any more whose rule might.
        live = self.program if self.call.keep_unused else dce(inline_calls(self.program, final=True))
        kept = self._kept(live)
        donated = [n for n, i in enumerate(kept) if i < len(self.call.donated) and self.call.donated[i]]
        places = pinned(places, self.call, {} if pins is None else pins, self.program.input_types)
        specs = Annotations([places.annotations.inputs[i] for i in kept], places.annotations.outputs)
        program = live.with_inputs([live.inputs[i] for i in kept]) if len(kept) < len(live.inputs) else live
        checked = config.debug_nans or config.debug_infs  # a check needs the arguments afterwards
        tied = [n for n in donated if not checked and not self._comes_to(places.mesh, kept[n])]
        with lowering(program, places.mesh, specs, target):
            automatic = self.call.automatic and self.call.automatic.limits
            try:
                planning = plan_program(program, places.mesh, specs, tied, target, automatic, self._ties(kept))
            except SavedPlanError as error:
                names = [self.call.input_name(i) for i in kept]
                raise error.named({v.hint: name for v, name in zip(program.inputs, names, strict=True)}) from None
            except DoesNotFit as error:
                error = error.named([self.call.titled_name(i) for i in kept])
                batch = self._fitting_batch(places.mesh, lowering_platforms, topology, pins)
                raise (error.with_further_fix(batch) if batch else error) from None
        traced = self if self.function is None else Traced(self.call, self.traced_program, self._again)
        return Planned(traced, planning, places, kept, donated, platforms, figures)

    def _fitting_batch(self, mesh: Any, platforms: Any, topology: Any, pins: Any) -> str:
        """The largest part of the batch that fits, in words, where that can be tried."""
        call, state = trial(self.call, self.program, self._ties(range(len(self.call.keys))).values(), mesh)
        if call is None or self._again is None:
            return ""
        again = self._again

        def bytes_of(smaller: Call) -> float | None:
            traced = again(smaller)
            plan = None if traced is None else traced.plan(lowering_platforms=platforms, topology=topology, pins=pins).plan
            return None if plan is None or plan.cost is None else plan.cost.peak_bytes

        return fitting_batch(call, state, bytes_of)

    def _comes_to(self, mesh: Any, i: int) -> bool:
        """Whether the i-th argument lies on one device and is brought to several: the memory that it has there is no donor's."""
        return isinstance(self.call.keys[i].sharding, SingleDeviceSharding) and mesh.size > 1

    def automatically(self, automatic: Automatic) -> Planned:
        """The best plan on the best of the meshes, whatever the call said of placements; constraints in the function count."""
        keys = [leaf_key(key.type, key.weak, None, False) for key in self.call.keys]
        call = dataclasses.replace(
            self.call, keys=keys, in_shardings=AUTO, out_shardings=AUTO, automatic=automatic, context=None
        )
        return Traced(call, self.traced_program, self._again)._on_best_mesh(automatic, None, None, None)

    def _on_best_mesh(
        self,
        automatic: Automatic,
        platforms: Sequence[str] | None,
        pins: Mapping[str, PartitionSpec | NamedSharding] | None,
        topology: str | None,
    ) -> Planned:
        """The plan on the only mesh; of several the one that takes least time, or one on a mesh that divides an axis of its mesh,
        as long as that gains much. Proofs are sought on the last alone."""

        def planned_on(mesh: BaseMesh, limits: Limits) -> Planned:
            call = dataclasses.replace(self.call, automatic=Automatic(limits, (mesh,)))
            traced = Traced(call, self.traced_program, self._again)
            return traced.plan(lowering_platforms=platforms, topology=topology, pins=pins)

        return best_of_meshes(automatic.meshes, automatic.limits, planned_on, goes_on=pins is None)  # pins name axes of the mesh

    def _ties(self, kept: Sequence[int]) -> Mapping[int, int]:
        """Output → input of what goes to the devices, where the result is the argument's next state."""
        call, traced = self.call, self.traced_program
        if call.automatic is None:
            return {}
        positions = {i: n for n, i in enumerate(kept)}
        count = len(call.keys)
        ties = state_ties(call.in_tree, traced.out_tree, self.program.input_types[:count], self.program.output_types)
        return {output: positions[i] for output, i in ties.items() if i in positions}

    def _kept(self, live: Program) -> list[int]:
        """Positions of the inputs that go to the devices: those that the results depend on, or all."""
        if self.call.keep_unused:
            return list(range(len(live.inputs)))
        used = set(live.outputs).union(*[eqn.inputs for eqn in live.eqns])
        return [i for i, v in enumerate(live.inputs) if v in used]

    @rarely_collected
    def lower(self, *, lowering_platforms: Sequence[str] | None = None, topology: str | None = None) -> Lowered:
        """Plan, partition and emit, for the mesh's devices.

        `lowering_platforms`: which platforms may compile the text; it is planned for, and fastest on, the first. Without it
        an AbstractMesh is planned for its `abstract_device`; if it has none, for CPU, as text for all platforms. Where only
        the platform is given, chips are TPU v5e and GPUs are H100, unless config.device_model says otherwise.

        `topology`: the machine whose figures count, such as "v5p", "h100:4x8" or a file, "cluster.toml" (docs/automatic.md).
        ValueError for an unknown one, and for one of another number of devices than the mesh."""
        return self.plan(lowering_platforms=lowering_platforms, topology=topology).lower()


class Planned(Stage):
    """Where every value will live and why; `.lower()` cuts the Program up accordingly."""

    def __init__(
        self,
        traced: Traced,
        planning: Planning,
        places: Placements,
        kept: Sequence[int],
        donated: Sequence[int],
        platforms: tuple[str, ...] = (),
        figures: Figures | None = None,
    ) -> None:
        self.traced = traced
        self.call = traced.call
        self.traced_program = traced.traced_program
        self.planning = planning
        self.committed = places.committed  # whether anything named a device
        self.kept = kept  # the inputs of `plan.program`, as positions of leaves and then of captured arrays
        self.donated = donated  # positions among the kept ones
        self.platforms = platforms
        self.figures = figures  # of the machine that was named

    @property
    def plan(self) -> Plan:
        return self.planning.plan

    @property
    def program(self) -> Program:
        return self.plan.program

    @property
    def mesh(self) -> Any:
        return self.plan.mesh

    @property
    def placements(self) -> Mapping[Any, Placement]:
        """Var → Placement."""
        return self.plan.placements

    def report(self) -> Report:
        """What lives where and why, what is sent, what is held; prints as text for 80 columns."""
        names = [self.call.input_name(i) for i in self.kept]
        outputs = output_names(self.traced_program)
        planning, donated = self.planning, frozenset(self.donated)
        again, program = planning.plan_again, planning.program
        return Report(Subject(self.call.title, self.plan, planning.annotations, names, outputs, donated, again, program))

    def as_text(self) -> str:
        """The Program with a placement on every type."""
        return print_program(self.program, self.placements, elide=True)

    __str__ = as_text

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Partition and emit. Where `lowering_platforms` are others than it was planned for, plan for them first."""
        platforms = _checked_platforms(lowering_platforms)
        if platforms and target_for(self.mesh, platforms, self.figures) != self.plan.target:
            return self.traced.plan(lowering_platforms=platforms).lower()
        aliased = [] if config.debug_nans or config.debug_infs else self.donated
        with lowering(self.program, self.mesh, self.planning.annotations, self.plan.target):
            captured = sum(i >= len(self.call.keys) for i in self.kept)
            lowered = lower_plan(self.planning, aliased, captured)
        if aliased or not self.donated:
            warn_of_unused(self.call, self.traced_program, lowered, self.kept)
        stage = Lowered(self, lowered, platforms or self.platforms)
        tell(stage)
        return stage


def _checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(platforms, str):
        raise ValueError(f"lowering_platforms is the string {platforms!r}\n  fix: ({platforms!r},)")
    unknown = [p for p in platforms or () if p not in PLATFORMS]
    if unknown:
        raise ValueError(f"lowering_platforms has {unknown[0]!r}\n  fix: use some of {', '.join(PLATFORMS)}")
    return tuple(platforms or ())


OutInfo = ShapeDtypeStruct

__all__ = ["ArgInfo", "Call", "Compiled", "Lowered", "OutInfo", "Planned", "Traced"]
