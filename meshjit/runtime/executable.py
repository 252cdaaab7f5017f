"""What runs: a compiled program, and the call that takes and gives Arrays."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshjit.config import config
from meshjit.core.effects import Effect, effect_of_program, is_ordered
from meshjit.core.host import host_calls, without_numbers
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.core.region import run_regions
from meshjit.ops.control.callback import inspect_sharding
from meshjit.plan.make import Annotations
from meshjit.runtime import _jaxlib, effects, reproduce
from meshjit.runtime.agreement import agree
from meshjit.runtime.array import Array, leaf_key
from meshjit.runtime.callbacks import Failures, as_callback
from meshjit.runtime.compilation_cache import compile_or_load
from meshjit.runtime.contexts import is_waited_for
from meshjit.runtime.exhausted import failed_to_run
from meshjit.runtime.lowering import Lowering, lower
from meshjit.runtime.noting import noted
from meshjit.runtime.placing import move
from meshjit.runtime.progress import compiling
from meshjit.runtime.quiet import without_gloo_messages
from meshjit.runtime.serialized import from_bytes, to_bytes
from meshjit.runtime.shardings import fits, sharding_of
from meshjit.runtime.targets import target_for
from sharding.memory import DEVICE
from sharding.mesh import Mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.placement import normalized


class Executable:
    """A compiled program. Calling it takes one Array per input, wherever it lives, and gives one per output."""

    def __init__(
        self,
        lowering: Lowering,
        out_weak: Sequence[bool],
        options: Mapping[str, Any] | None = None,
        committed: bool = False,
        spellings: Sequence[Sharding | None] = (),
        serialized: bytes | None = None,
    ) -> None:
        """`committed`: somebody chose the devices, so that results stay there; on a named mesh that goes without saying.
        `spellings`: the inputs' shardings as users wrote them, for results that lie as one of them does. `serialized`: what
        `serialize` gave where the program was compiled; it is loaded instead."""
        plan, mesh = lowering.plan, lowering.plan.mesh
        assert isinstance(mesh, Mesh), "only a mesh of devices can run a program"
        self.lowering = lowering
        self.devices = tuple(mesh.flat_devices)
        is_here = not _jaxlib.is_absent(self.devices[0]) and bool(mesh.local_devices)
        self.is_noted = mesh.is_multi_process and is_here  # each call, for the watchdog
        if self.is_noted:
            processes = sorted({device.process_index for device in self.devices})
            # The readable text, without folders: hosts may keep the script in different places.
            text = without_numbers(print_program(lowering.local))
            devices = f"devices {', '.join([str(device.id) for device in self.devices])}"
            agree(plan.program.name, f"{mesh}, {devices}\n{text}\n", processes=processes)
        start = time.perf_counter()
        calls = host_calls(lowering.local)
        self.functions = tuple(host for host, _ in calls)
        self.failures = Failures() if mesh.size > 1 else None
        callbacks = [as_callback(host, ordered, mesh.size, self.failures) for host, ordered in calls]
        self.options = dict(options or {})
        if serialized is None:
            with compiling(plan.program.name, len(lowering.local.eqns)):
                self.compiled = compile_or_load(self.devices[0].client, lowering.text, self.devices, self.options, callbacks)
        else:
            self.compiled = from_bytes(serialized, plan.program.name, lowering.text, self.devices, self.options)
        self.compile_seconds = time.perf_counter() - start
        local = lowering.local
        outputs = [(v.shape, v.dtype) for v in local.outputs]
        annotations = lowering.annotations
        there = lowering.memories[0] or [DEVICE] * len(plan.inputs)
        pairs = zip(plan.inputs, annotations.inputs, there, strict=True)
        self.in_shardings = [sharding_of(p, mesh, s, memory=memory) for p, s, memory in pairs]
        self.local_outputs, self.out_weak, self.committed = outputs, out_weak, committed
        self._spell(spellings)
        tell_shardings(plan, plan.program)
        if self.is_noted and self.devices[0].platform == "cpu":
            self.run = self._first_run

    def serialize(self) -> bytes:
        """What `serialized` takes. ValueError for a program that calls Python functions: they are of this process."""
        if self.functions:
            problem = "it calls Python functions, which are of this process"
            raise ValueError(f"{self.lowering.plan.program.name}: {problem}\n  fix: compile it where it runs")
        return to_bytes(self.compiled, self.lowering.text, self.devices, self.options)

    def _spell(self, spellings: Sequence[Sharding | None]) -> None:
        plan, mesh = self.lowering.plan, self.lowering.plan.mesh
        assert isinstance(mesh, Mesh)
        self.spellings = tuple(spellings)
        written = {
            (len(p.dims), normalized(p, mesh)): s.spec.update(unreduced=(), reduced=())
            for p, s in zip(plan.inputs, self.spellings, strict=False)
            if isinstance(s, NamedSharding) and s.mesh == mesh
        }
        memories = self.lowering.memories[1] or [DEVICE] * len(plan.outputs)
        self.out_shardings = [
            sharding_of(p, mesh, s, written.get((len(p.dims), normalized(p, mesh))), memory)
            for p, s, memory in zip(plan.outputs, self.lowering.annotations.outputs, memories, strict=True)
        ]
        self.out_keys = [
            leaf_key(v.type, weak, s, self.committed or not isinstance(s, SingleDeviceSharding))
            for v, s, weak in zip(plan.program.outputs, self.out_shardings, self.out_weak, strict=True)
        ]
        layouts = [key.layout for key in self.out_keys]
        self.run = self.steady = self._executor(self.local_outputs, layouts)

    def spelt(self, spellings: Sequence[Sharding | None]) -> Executable:
        """The same for inputs whose shardings are written otherwise; itself where that makes no difference to its results."""
        if tuple(spellings) == self.spellings:
            return self
        other = copy.copy(self)
        other._spell(spellings)
        return self if other.out_shardings == self.out_shardings else other

    def _executor(self, outputs: list[Any], layouts: list[Any]) -> Callable[[Sequence[Any]], list[Any]]:
        run = self._unnoted_executor(outputs, layouts)
        if not self.is_noted:
            return run
        program = self.lowering.plan.program
        return noted(run, program.name, self.devices, program.outputs[0].type if program.outputs else None)

    def _unnoted_executor(self, outputs: list[Any], layouts: list[Any]) -> Callable[[Sequence[Any]], list[Any]]:
        if not self.functions:
            return _jaxlib.make_executor(self.compiled, outputs, self.devices, layouts=layouts)
        ordered = is_ordered(self.lowering.local)
        if ordered:
            outputs, layouts = [_jaxlib.TOKEN, *outputs], [_jaxlib.shared_layout(self.devices), *layouts]
        raise_any = None if self.failures is None else self.failures.raise_any
        gives = any(f.results for f in self.functions) or Effect.IO in effect_of_program(self.lowering.local)
        note = functools.partial(effects.note_running, self.functions, raise_any, gives and raise_any is not None)
        run = _jaxlib.make_executor(self.compiled, outputs, self.devices, layouts=layouts, note=note)
        return functools.partial(effects.run_in_order, run, self.devices) if ordered else run

    def _first_run(self, arrays: Sequence[Any]) -> list[Any]:
        """Groups of devices meet in the first run, and Gloo says so on standard output."""
        with without_gloo_messages():
            results = self.steady(arrays)
            for result in results:
                _jaxlib.block(result)
        self.run = self.steady
        return results

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        pairs = zip(arguments, self.in_shardings, strict=True)
        return self.run_placed([x if fits(x._key, s) else move(x, s) for x, s in pairs])

    def run_placed(self, arguments: Sequence[Array]) -> list[Array]:
        """The same for arguments that lie as `in_shardings` say, which is not checked again: this is the hot path."""
        n = self.lowering.captured
        if is_waited_for() and len(self.devices) > 1:
            raise self._would_hang()
        if config.no_execution:
            raise RuntimeError(f"{self.lowering.plan.program.name} would run, and config.no_execution is set")
        try:
            return self.run([*arguments[-n:], *arguments[:-n]] if n else arguments)
        except RuntimeError as error:
            for x in arguments:
                x._require_live()  # say who took it
            if isinstance(error, _jaxlib.XlaError):
                plan = self.lowering.plan
                raise failed_to_run(error, plan.program.name, plan.mesh, self.lowering.local, self.compiled) from None
            raise

    def _would_hang(self) -> RuntimeError:
        return RuntimeError(
            f"{self.lowering.plan.program.name} runs on {len(self.devices)} devices, and was called inside of a callback of a"
            " program that runs on several devices, too: each would wait for the other for ever\n"
            "  fix: compute with NumPy in the callback; or on one device, device_put(x, devices()[0])"
        )

    def parameter_layouts(self) -> list[Any]:
        """How XLA lays out each input."""
        layouts = _jaxlib.parameter_layouts(self.compiled)
        n = self.lowering.captured
        return [*layouts[n:], *layouts[:n]]


def tell_shardings(plan: Plan, program: Program) -> None:
    """Tell functions that inspect values where planning put these."""
    assert isinstance(plan.mesh, Mesh)
    for eqn in program.eqns:
        if eqn.op is inspect_sharding:
            eqn.params["host"].call([sharding_of(plan.placements[eqn.inputs[0]].without_partial(), plan.mesh, None)])
        for region in run_regions(eqn):
            tell_shardings(plan, region.program)


def build(
    program: Program,
    mesh: Any,
    annotations: Annotations,
    out_weak: Sequence[bool],
    committed: bool,
    spellings: Sequence[Sharding | None] = (),
    options: Mapping[str, Any] | None = None,
) -> Executable:
    """Lower and compile a Program that nobody holds the stages of."""
    target = target_for(mesh)
    with reproduce.lowering(program, mesh, annotations, target):
        lowering = lower(program, mesh, annotations, target=target)
    with reproduce.compiling(program.name, lowering, dict(options or {})):
        return Executable(lowering, out_weak, options, committed, spellings)
