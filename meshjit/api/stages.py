"""The stages between a function and its results: Traced → Planned → Lowered → Compiled.

As `jax.stages`, with a stage of our own that holds the Plan: where everything will live, before anything is cut up."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.api.call import ArgInfo, Call, Stage
from meshjit.api.compiled import Compiled
from meshjit.api.donated import warn_of_unused
from meshjit.api.jaxpr import ClosedJaxpr, closed_jaxpr
from meshjit.api.options import checked_options
from meshjit.api.placements import Placements, placements
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.config import config
from meshjit.core.garbage import rarely_collected
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.plan.make import Annotations
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.executable import Executable, Lowering, Planning, lower_plan, plan_program, spelling_of
from meshjit.runtime.reproduce import compiling, lowering
from meshjit.runtime.targets import calls_cpu_kernels, target_for
from meshjit.targets import PLATFORMS
from meshjit.trace import Traced as TracedProgram
from meshjit.transform.dce import dce
from sharding.mesh import Mesh
from sharding.spec import Placement


class Traced(Stage):
    """A function traced at the types of its arguments. `.program` is what it does; `.lower()` plans and partitions it."""

    def __init__(self, call: Call, traced: TracedProgram) -> None:
        self.call = call
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
        return closed_jaxpr(self.program, traced.captured, traced.out_weak, traced.mesh)

    def as_text(self) -> str:
        """The Program as text, which `meshjit.core.parser` reads back."""
        return print_program(self.program)

    def plan(self, *, lowering_platforms: Sequence[str] | None = None) -> Planned:
        """Decide where every value lives, without partitioning; for the first of `lowering_platforms`, as `lower` has it."""
        places = placements(self.call, self.traced_program)
        device = getattr(places.mesh, "abstract_device", None)
        platforms = _checked_platforms(lowering_platforms) or (() if device is None else (device.platform,))
        target = target_for(places.mesh, platforms)
        live = self.program if self.call.keep_unused else dce(self.program)  # a call that drops an input no longer reads it
        kept = self._kept(live)
        donated = [n for n, i in enumerate(kept) if i < len(self.call.donated) and self.call.donated[i]]
        specs = Annotations([places.annotations.inputs[i] for i in kept], places.annotations.outputs)
        program = dataclasses.replace(live, inputs=tuple(live.inputs[i] for i in kept))
        tied = [] if config.debug_nans or config.debug_infs else donated  # a check needs the arguments afterwards
        with lowering(program, places.mesh, specs, target):
            planning = plan_program(program, places.mesh, specs, tied, target)
        return Planned(self, planning, places, kept, donated, platforms)

    def _kept(self, live: Program) -> list[int]:
        """Positions of the inputs that go to the devices: those that the results depend on, or all."""
        if self.call.keep_unused:
            return list(range(len(live.inputs)))
        used = {v for eqn in live.eqns for v in eqn.inputs} | set(live.outputs)
        return [i for i, v in enumerate(live.inputs) if v in used]

    @rarely_collected
    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Plan, partition and emit, for the mesh's devices.

        `lowering_platforms`: which platforms may compile the text; it is planned for, and fastest on, the first. Without it
        an AbstractMesh is planned for its `abstract_device`; if it has none, for CPU, as text for all platforms. Where only
        the platform is given, chips are TPU v5e and GPUs are H100, unless config.device_model says otherwise."""
        return self.plan(lowering_platforms=lowering_platforms).lower()


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
    ) -> None:
        self.traced = traced
        self.call = traced.call
        self.traced_program = traced.traced_program
        self.planning = planning
        self.committed = places.committed  # whether anything named a device
        self.kept = kept  # the inputs of `plan.program`, as positions of leaves and then of captured arrays
        self.donated = donated  # positions among the kept ones
        self.platforms = platforms

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

    def as_text(self) -> str:
        """The Program with a placement on every type."""
        return print_program(self.program, self.placements, elide=True)

    __str__ = as_text

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Partition and emit. Where `lowering_platforms` are others than it was planned for, plan for them first."""
        platforms = _checked_platforms(lowering_platforms)
        if platforms and target_for(self.mesh, platforms) != self.plan.target:
            return self.traced.plan(lowering_platforms=platforms).lower()
        aliased = [] if config.debug_nans or config.debug_infs else self.donated
        with lowering(self.program, self.mesh, self.planning.annotations, self.plan.target):
            captured = sum(i >= len(self.call.keys) for i in self.kept)
            lowered = lower_plan(self.planning, aliased, captured)
        if aliased or not self.donated:
            warn_of_unused(self.call, self.traced_program, lowered, self.kept)
        return Lowered(self, lowered, platforms or self.platforms)


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
        options = {**(self.call.options or {}), **checked_options(compiler_options, "compile")}
        lowered = self._on_devices(device_assignment)
        self._check_platform(lowered.mesh)
        with compiling(self.call.title, lowered, options):
            executable = Executable(lowered, self.traced_program.out_weak, options, self.planned.committed, self._spellings())
        return Compiled(self, executable)

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
            raise ValueError(
                f"{self.call.title} is lowered for {mesh}, which needs {mesh.device_count} devices; {count}\n"
                "  fix: compile(device_assignment=meshjit.devices()[:n])"
            )
        grid = np.empty(mesh.device_count, dtype=object)
        grid[:] = list(devices)
        real = Mesh(grid.reshape(mesh.axis_sizes), mesh.axis_names)
        return dataclasses.replace(self.lowering, plan=dataclasses.replace(self.plan, mesh=real))

    def _check_platform(self, mesh: Mesh) -> None:
        platform = mesh.flat_devices[0].platform
        names = {platform, "gpu"} if platform in ("cuda", "rocm") else {platform}
        if self.platforms and not names & set(self.platforms):
            raise ValueError(
                f"{self.call.title} was lowered for {', '.join(self.platforms)}, its devices are of platform {platform}\n"
                f"  fix: lower(lowering_platforms=({platform!r},)), or leave lowering_platforms out"
            )
        if platform != "cpu" and calls_cpu_kernels(self.lowering.text):
            raise ValueError(
                f"{self.call.title} was lowered for CPU, whose LAPACK it calls; its devices are of platform {platform}\n"
                f"  fix: lower(lowering_platforms=({platform!r},))"
            )


_LOCATION = re.compile(r' loc\("(?:[^"\\]|\\.)*"(?:\("(?:[^"\\]|\\.)*":\d+:\d+\))?\)$', re.MULTILINE)


def without_locations(text: str) -> str:
    """StableHLO text without the source lines of its operations."""
    return _LOCATION.sub("", text)


OutInfo = ShapeDtypeStruct

__all__ = ["ArgInfo", "Call", "Compiled", "Lowered", "OutInfo", "Planned", "Traced"]
