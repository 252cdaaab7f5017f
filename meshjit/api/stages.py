"""The stages between a function and its results: Traced → Planned → Lowered → Compiled.

As `jax.stages`, with a stage of our own that holds the Plan: where everything will live, before anything is cut up."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.api.call import ArgInfo, Automatic, Call, Stage
from meshjit.api.compiled import Compiled
from meshjit.api.donated import warn_of_unused
from meshjit.api.explain import log_plan
from meshjit.api.jaxpr import ClosedJaxpr, closed_jaxpr
from meshjit.api.mesh_choice import MUCH, finer_meshes, mesh_of_saved
from meshjit.api.options import checked_options
from meshjit.api.placements import Placements, output_names, pinned, placements
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.smaller_batch import fitting_batch, trial
from meshjit.api.state import state_ties
from meshjit.api.unasked import searched_on_mesh
from meshjit.api.watching import imaginers, tell
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
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.array import leaf_key
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import Lowering, Planning, lower_plan, plan_program
from meshjit.runtime.reproduce import compiling, lowering
from meshjit.runtime.shardings import spelling_of
from meshjit.runtime.targets import figures_for, library_of, target_for
from meshjit.targets import PLATFORMS, family
from meshjit.trace import Traced as TracedProgram
from meshjit.trace.refs import check_without_refs
from meshjit.transform.dce import dce
from meshjit.transform.inline_calls import inline_calls
from meshjit.tree_views import key_types
from sharding.figures import Figures
from sharding.mesh import BaseMesh, Mesh
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
        return closed_jaxpr(self.program, traced.captured, weak, traced.mesh, keys)

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
        limits, meshes, refusals = automatic.limits, automatic.meshes, list[tuple[DoesNotFit, BaseMesh]]()
        if limits.plan is not None:
            meshes = (mesh_of_saved(limits.plan, meshes),)
        share = limits.one_of(len(meshes))

        def planned_on(mesh: BaseMesh, limits: Limits) -> Iterator[Planned]:
            call = dataclasses.replace(self.call, automatic=Automatic(limits, (mesh,)))
            traced = Traced(call, self.traced_program, self._again)
            try:
                yield traced.plan(lowering_platforms=platforms, topology=topology, pins=pins)
            except DoesNotFit as error:
                refusals.append((error, mesh))

        is_given = len(meshes) == 1
        best = _best(planned for mesh in meshes for planned in planned_on(mesh, limits if is_given else share))
        if best is None and not is_given:  # what would fit is tried where least is held
            _, nearest = min(refusals, key=lambda refusal: refusal[0].least)
            best = next(planned_on(nearest, limits), None)
        if best is None:
            raise refusals[-1][0]
        if is_given:
            return best
        goes_on = pins is None  # they name axes of the mesh
        while goes_on:
            finer = _best(planned for mesh in finer_meshes(best.mesh) for planned in planned_on(mesh, share))
            goes_on = finer is not None and finer.is_better_than(best, MUCH)
            best = best if finer is None or not finer.is_better_than(best) else finer
        optimum = best.plan.optimum
        is_proved = optimum is not None and optimum.is_proved
        return best if is_proved or limits.effort == 0 else next(planned_on(best.mesh, limits), best)

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

    def is_better_than(self, other: Planned, much: float = 1.0) -> bool:
        """Whether its plan comes nearer to the memory than one that does not fit, or takes less time than the other one's times
        `much`."""
        mine, others = self.plan, other.plan
        assert mine.cost is not None and others.cost is not None and mine.target is not None
        over, over_other = (max(0.0, cost.peak_bytes - mine.target.topology.memory) for cost in (mine.cost, others.cost))
        return over < over_other or (over == over_other and mine.cost.seconds < much * others.cost.seconds)

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


def _best(plans: Iterable[Planned]) -> Planned | None:
    best: Planned | None = None
    for planned in plans:
        best = planned if best is None or planned.is_better_than(best) else best
    return best


def _checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(platforms, str):
        raise ValueError(f"lowering_platforms is the string {platforms!r}\n  fix: ({platforms!r},)")
    unknown = [p for p in platforms or () if p not in PLATFORMS]
    if unknown:
        raise ValueError(f"lowering_platforms has {unknown[0]!r}\n  fix: use some of {', '.join(PLATFORMS)}")
    return tuple(platforms or ())


class Lowered(Stage):
    """A per-device program with explicit collectives, not yet compiled."""

    def __init__(self, planned: Planned, lowered: Lowering, platforms: tuple[str, ...] = ()) -> None:
        self.planned = planned
        self.traced = planned.traced
        self.call = planned.call
        self.traced_program = planned.traced_program
        self.kept = planned.kept
        self.lowering = lowered
        self.platforms = platforms

    @property
    def plan(self) -> Plan:
        return self.lowering.plan

    def _out_info(self, shardings: Sequence[Any] | None = None) -> list[ShapeDtypeStruct]:
        """With the shardings that out_shardings, or types in explicit axes, ask for."""
        mesh, specs = self.planned.mesh, self.planned.planning.annotations.outputs
        asked = [None if spec is None or not mesh.axis_names else NamedSharding(mesh, spec) for spec in specs]
        return super()._out_info(asked if shardings is None else shardings)

    def report(self) -> Report:
        """What lives where and why, what is sent, what is held (`meshjit.report.Report`)."""
        return self.planned.report()

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """`stablehlo` (the default), `hlo` (before optimisation), `meshjit` (the Program with placements) or `local` (the
        per-device Program). `debug_info` adds the user's lines."""
        if dialect in (None, "stablehlo"):
            return self.lowering.text if debug_info else without_locations(self.lowering.text)
        if dialect == "hlo":
            return _jaxlib.hlo_text_of_module(self.lowering.text)
        if dialect == "meshjit":
            return print_program(self.plan.program, self.plan.placements, sources=debug_info, elide=True)
        if dialect == "local":
            return print_program(self.lowering.local, sources=debug_info, elide=True)
        raise ValueError(f"unknown dialect {dialect!r}\n  fix: use 'stablehlo', 'hlo', 'meshjit' or 'local'")

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """jaxlib's MLIR module (`stablehlo`, the default), its XlaComputation (`hlo`), or the per-device Program (`meshjit`)."""
        if dialect in (None, "stablehlo"):
            return _jaxlib.parse_module(self.lowering.text)
        if dialect == "hlo":
            return _jaxlib.computation(self.lowering.text)
        if dialect == "meshjit":
            return self.lowering.local
        raise ValueError(f"unknown dialect {dialect!r}\n  fix: use 'stablehlo', 'hlo' or 'meshjit'")

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate for one device before it optimises: "flops", "bytes accessed", …"""
        return _jaxlib.cost_of_module(client.client(), self.lowering.text)

    def compile(
        self, compiler_options: Mapping[str, Any] | None = None, *, device_assignment: Sequence[Any] | None = None
    ) -> Compiled:
        """Compile with XLA. `compiler_options` go to XLA, over those given to jit; unknown ones raise.

        `device_assignment` are the devices of a function that was lowered on an AbstractMesh, in mesh order."""
        checked = checked_options(compiler_options, "compile")
        return imaginers[-1](self) if imaginers else self.compile_now(checked, device_assignment)

    def compile_now(self, options: Mapping[str, Any] | None = None, device_assignment: Sequence[Any] | None = None) -> Compiled:
        """What `compile` does where nobody watches who wants plans alone."""
        options = {**(self.call.options or {}), **(options or {})}
        return self._compiled(options, device_assignment, None)

    def load(
        self,
        serialized: bytes,
        compiler_options: Mapping[str, Any] | None = None,
        *,
        device_assignment: Sequence[Any] | None = None,
    ) -> Compiled:
        """What `Compiled.serialize` gave for the same function, devices and versions, without compiling: a pod loads what was
        compiled ahead for it. XLA runs what it reads: load only what you trust. ValueError names the first difference."""
        options = {**(self.call.options or {}), **checked_options(compiler_options, "load")}
        return self._compiled(options, device_assignment, serialized)

    def _compiled(self, options: Mapping[str, Any], devices: Sequence[Any] | None, serialized: bytes | None) -> Compiled:
        lowered = self._on_devices(devices)
        self._check_platform(lowered.mesh)
        log_plan(self.report)
        spellings = self._spellings()
        with compiling(self.call.title, lowered, options):
            out_weak, committed = self.traced_program.out_weak, self.planned.committed
            executable = Executable(lowered, out_weak, options, committed, spellings, serialized)
        compiled = Compiled(self, executable)
        tell(compiled)
        return compiled

    def _spellings(self) -> list[Any]:
        keys = [*self.call.keys, *(x._key for x in self.traced_program.captured)]
        return [spelling_of(keys[i]) for i in self.kept]

    def _on_devices(self, devices: Sequence[Any] | None) -> Lowering:
        """The same with devices, where it was lowered for a mesh that has none."""
        mesh = self.lowering.mesh
        if isinstance(mesh, Mesh) and devices is None:
            return self.lowering
        if devices is None or len(devices) != mesh.device_count:
            count = "none were given" if devices is None else f"{len(devices)} were given"
            problem = f"{self.call.title} is lowered for {mesh}, which needs {mesh.device_count} devices; {count}"
            raise ValueError(f"{problem}\n  fix: {self._devices_for(mesh)}")
        grid = np.empty(mesh.device_count, dtype=object)
        grid[:] = list(devices)
        real = Mesh(grid.reshape(mesh.axis_sizes), mesh.axis_names)
        return dataclasses.replace(self.lowering, plan=dataclasses.replace(self.plan, mesh=real))

    def _devices_for(self, mesh: Any) -> str:
        """Where a program for so many devices can be compiled, and what can be done here."""
        here = client.devices()
        platform, count = here[0].platform, mesh.device_count
        if count <= len(here) and (not self.platforms or platform in self.platforms):
            return f"compile(device_assignment=meshjit.devices()[:{count}])"
        own = f"meshjit.auto(…, devices={len(here)})" if self.call.automatic is not None else "meshjit.make_mesh"
        there = f"here are {len(here)} of platform {platform}"
        return f"compile(device_assignment=…) where there are so many; {there}, for which a mesh is made by {own}"

    def _check_platform(self, mesh: Mesh) -> None:
        platform = mesh.flat_devices[0].platform
        names = {platform, "gpu"} if platform in ("cuda", "rocm") else {platform}
        if self.platforms and not names & set(self.platforms):
            is_asked = getattr(self.planned.mesh, "abstract_device", None) is None
            more = ", or leave lowering_platforms out" if is_asked else f"; {self.planned.mesh} is of another platform"
            raise ValueError(
                f"{self.call.title} was lowered for {', '.join(self.platforms)}, its devices are of platform {platform}\n"
                f"  fix: lower(lowering_platforms=({platform!r},)){more}"
            )
        library = library_of(self.lowering.text)
        if library is not None and family(platform) != library[0]:
            name = {"cpu": "CPU", "gpu": "GPUs"}[library[0]]
            raise ValueError(
                f"{self.call.title} was lowered for {name}, whose {library[1]} it calls; its devices are of platform {platform}\n"
                f"  fix: lower(lowering_platforms=({platform!r},))"
            )


_LOCATION = re.compile(r' loc\("(?:[^"\\]|\\.)*"(?:\("(?:[^"\\]|\\.)*":\d+:\d+\))?\)$', re.MULTILINE)


def without_locations(text: str) -> str:
    """StableHLO text without the source lines of its operations."""
    return _LOCATION.sub("", text)


OutInfo = ShapeDtypeStruct

__all__ = ["ArgInfo", "Call", "Compiled", "Lowered", "OutInfo", "Planned", "Traced"]
