"""A per-device program, not yet compiled: the stage before the last."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.api.call import Stage
from meshjit.api.compiled import Compiled
from meshjit.api.explain import log_plan
from meshjit.api.options import checked_options
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.watching import imaginers, tell
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.report import Report
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import Lowering
from meshjit.runtime.reproduce import compiling
from meshjit.runtime.shardings import spelling_of
from meshjit.runtime.targets import library_of
from meshjit.targets import family
from sharding.mesh import Mesh
from sharding.named import NamedSharding

if TYPE_CHECKING:
    from meshjit.api.stages import Planned


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
