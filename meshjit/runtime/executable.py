"""Program → something that runs: plan, partition, emit, compile, and the call that takes and gives Arrays."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshjit.config import config
from meshjit.core.effects import Effect, effect_of_program, is_ordered
from meshjit.core.garbage import rarely_collected
from meshjit.core.host import host_calls, without_numbers
from meshjit.core.memories import memories_of
from meshjit.core.op import REGISTRY
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.core.program import Builder, Program
from meshjit.core.region import run_regions
from meshjit.core.rename_axes import rename_axes
from meshjit.core.target import Target
from meshjit.core.verify import verify
from meshjit.emit.module import emit
from meshjit.ops.control.callback import inspect_sharding
from meshjit.partition.partition import partition
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.make import Annotations, PlanAgain, make_plan
from meshjit.runtime import _jaxlib, client, effects, reproduce
from meshjit.runtime.agreement import agree
from meshjit.runtime.array import Array, LeafKey, leaf_key
from meshjit.runtime.callbacks import Failures, as_callback
from meshjit.runtime.compilation_cache import compile_or_load
from meshjit.runtime.contexts import is_waited_for
from meshjit.runtime.donation import match, tied
from meshjit.runtime.exhausted import failed_to_run
from meshjit.runtime.noting import noted
from meshjit.runtime.placing import move, same_place
from meshjit.runtime.progress import compiling, progress_bar
from meshjit.runtime.quiet import without_gloo_messages
from meshjit.runtime.serialized import from_bytes, to_bytes
from meshjit.runtime.targets import target_for
from meshjit.transform.pipeline import clean, simplify
from meshjit.transform.place_in_memories import place_in_memories
from sharding.axis_types import AxisType
from sharding.memory import DEVICE, memory_of
from sharding.mesh import Mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.placement import normalized
from sharding.spec import PartitionSpec, Placement, padded, spec_of
from sharding.translate import translate


@dataclass(frozen=True)
class Lowering:
    """A planned and partitioned Program: everything that is known before XLA sees it."""

    plan: Plan
    local: Program
    text: str
    aliases: Mapping[int, int]  # donated input → the output that takes its memory
    annotations: Annotations
    seconds: Mapping[str, float] = field(default_factory=dict)
    captured: int = 0  # so many of the inputs, the last ones, are arrays that a function closes over: the text has them first
    memories: tuple[Sequence[str], Sequence[str]] = ((), ())  # of inputs and outputs, see `memories_of`

    @property
    def mesh(self) -> Any:
        return self.plan.mesh


@dataclass(frozen=True)
class Planning:
    """A Plan before anything is partitioned, and the annotations that it obeys."""

    plan: Plan
    annotations: Annotations
    seconds: Mapping[str, float]
    plan_again: PlanAgain = make_plan  # for other annotations, as this plan was made; a search is brief then
    program: Program | None = None  # what was planned; that of the plan may have been rewritten since
    memories: tuple[Sequence[str], Sequence[str]] = ((), ())  # of inputs and outputs, see `memories_of`


@rarely_collected
def plan_program(
    program: Program,
    mesh: Any,
    annotations: Annotations,
    donated: Sequence[int] = (),
    target: Target | None = None,
    automatic: Limits | None = None,
    ties: Mapping[int, int] | None = None,
) -> Planning:
    """Simplify and plan, for the mesh's devices if no target is given. `donated` are positions of inputs whose memory results
    may take. With `automatic`, what nobody placed is placed as is best, and the outputs in `ties` as their inputs."""
    seconds: dict[str, float] = {}
    target = target or target_for(mesh)
    memories = memories_of(program)
    program = _timed(seconds, "simplify", lambda: checked(simplify(rename_axes(program, mesh)), "simplify"))
    if automatic is not None:
        with progress_bar(program.name):
            plan = _timed(
                seconds,
                "plan",
                lambda: make_automatic_plan(program, mesh, annotations, target, ties=ties, limits=automatic),
            )
        brief = automatic.briefly(len(program.eqns))
        again = functools.partial(make_automatic_plan, ties=ties, limits=brief)
        return Planning(plan, annotations, seconds, again, program, memories)
    plan = _timed(seconds, "plan", lambda: make_plan(program, mesh, annotations, target))
    closer = tied(plan, annotations, donated, memories)
    if closer is not None:
        annotations = closer
        plan = _timed(seconds, "plan", lambda: make_plan(program, mesh, annotations, target, plan))
    return Planning(plan, annotations, seconds, functools.partial(make_plan, like=plan), program, memories)


def lower(
    program: Program, mesh: Any, annotations: Annotations, donated: Sequence[int] = (), target: Target | None = None
) -> Lowering:
    """Plan, partition and emit."""
    return lower_plan(plan_program(program, mesh, annotations, donated, target), donated)


@rarely_collected
def lower_plan(planning: Planning, donated: Sequence[int] = (), captured: int = 0) -> Lowering:
    """Partition and emit for the plan's target. The last `captured` inputs are arrays that a function closes over."""
    plan, seconds = planning.plan, dict(planning.seconds)
    assert plan.target is not None, "planning names its target"
    target = plan.target
    local = _timed(seconds, "partition", lambda: checked(clean(partition(plan), target), "partition"))
    memories = planning.memories
    if target.has_host_memory:
        local = checked(place_in_memories(local, *memories), "place_in_memories")
    aliases = match(plan, donated, memories)
    text = _timed(seconds, "emit", lambda: emit(local, plan.mesh, aliases, target, captured, memories))
    return Lowering(plan, local, text, aliases, planning.annotations, seconds, captured, memories)


def checked(program: Program, after: str) -> Program:
    """The Program after a pass; whether its types are right is looked at where an option says so."""
    return verify(program, after, types=config.enable_checks)


def _timed(seconds: dict[str, float], name: str, run: Callable[[], Any]) -> Any:
    """What `run` gives; the time it took is added to seconds[name]."""
    start = time.perf_counter()
    result = run()
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
    return result


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
            agree(plan.program.name, f"{mesh}\n{text}\n", processes=processes)
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


def spelling_of(key: LeafKey) -> Sharding | None:
    """The sharding of a committed array, as it was written."""
    return key.sharding if key.committed else None


def build(
    program: Program,
    mesh: Any,
    annotations: Annotations,
    out_weak: Sequence[bool],
    committed: bool,
    spellings: Sequence[Sharding | None] = (),
) -> Executable:
    """Lower and compile a Program that nobody holds the stages of."""
    target = target_for(mesh)
    with reproduce.lowering(program, mesh, annotations, target):
        lowering = lower(program, mesh, annotations, target=target)
    with reproduce.compiling(program.name, lowering, {}):
        return Executable(lowering, out_weak, committed=committed, spellings=spellings)


@functools.lru_cache(maxsize=65536)
def fits(key: LeafKey, target: Sharding) -> bool:
    """Whether an array with this key already lies as `wanted` says, on the same devices in the same order."""
    assert key.sharding is not None
    rank = key.type.rank
    return same_place(key.sharding, target, rank)


def sharding_of(
    placement: Placement,
    mesh: Mesh,
    annotation: PartitionSpec | None,
    written: PartitionSpec | None = None,
    memory: str = DEVICE,
) -> Sharding:
    """What users see of a placement: the spec that they gave, if they gave a whole one, else as it is `written` elsewhere."""
    if mesh.size == 1 and mesh.axis_names == ONE_DEVICE_AXES:
        return SingleDeviceSharding(mesh.flat_devices[0], memory_kind=memory)
    whole = annotation is not None and PartitionSpec.UNCONSTRAINED not in annotation
    if not whole:
        sums = annotation
        annotation = spec_of(placement) if written is None else written
        if sums is not None and all(axis in mesh.explicit_axes for axes in placement.dims for axis in axes):
            annotation = padded(annotation, len(placement.dims))  # as the value's type has it
        if sums is not None and (sums.unreduced or sums.reduced):
            annotation = annotation.update(unreduced=sums.unreduced, reduced=sums.reduced)
    assert annotation is not None
    return NamedSharding(_explicit_over(annotation.unreduced | annotation.reduced, mesh), annotation, memory)


def _explicit_over(axes: frozenset[str], mesh: Mesh) -> Mesh:
    """The mesh with these axes Explicit, as those of unfinished sums are outside of `auto_axes`, too."""
    if axes <= {*mesh.explicit_axes}:
        return mesh
    return mesh.update(axis_types=mesh.types_with(dict.fromkeys(axes, AxisType.Explicit)))


ONE_DEVICE_AXES = ("_",)


@functools.cache
def one_device_mesh(device: Any) -> Mesh:
    """The mesh of computations that nobody gave a mesh: one device, one axis that nobody can name."""
    return Mesh([device], ONE_DEVICE_AXES)


def mesh_of(sharding: Sharding) -> Any:
    """The mesh of a sharding; an AbstractMesh where that is what it was made with."""
    if isinstance(sharding, NamedSharding):
        return sharding.mesh
    return one_device_mesh(next(iter(sharding.device_set)))


def merged(a: Mesh, b: Mesh) -> Mesh | None:
    """The mesh for values of two meshes: the first, if both are of the same devices in one order, unless users cannot name
    its axes."""
    if a.flat_devices != b.flat_devices:
        return None
    return b if a.axis_names == ONE_DEVICE_AXES else a


def spec_on(mesh: Any, sharding: Sharding, rank: int) -> PartitionSpec | None:
    """A sharding's spec on `mesh`, with an entry per dim; None if it is of other devices, or `mesh` cannot say it."""
    if isinstance(sharding, NamedSharding) and sharding.mesh == mesh:
        return whole_spec(sharding, rank)
    if not isinstance(sharding, NamedSharding) or not isinstance(mesh, Mesh) or not isinstance(sharding.mesh, Mesh):
        return None
    if sharding.mesh.flat_devices != mesh.flat_devices:
        return None
    placement = translate(sharding.placement(rank), sharding.mesh, mesh)
    return None if placement is None else _spec_with_sums(placement)


def _spec_with_sums(placement: Placement) -> PartitionSpec | None:
    """None where a part of an axis would be unreduced, which no spec can say."""
    entries = PartitionSpec(*(axes or None for axes in placement.dims))
    if not placement.partial:
        return entries
    whole = all(isinstance(axis, str) for axis in placement.partial_axes)
    return entries.update(unreduced=map(str, placement.partial_axes)) if whole else None


def default_mesh() -> Mesh:
    return one_device_mesh(client.default_device())


@functools.lru_cache(maxsize=4096)
def _identity(key: LeafKey, target: Sharding) -> Executable:
    """A program that gives its argument back, on other memory and as `target` says."""
    with Builder("device_put") as builder:
        var = builder.input(key.type)
        program = builder.build([var])
    assert key.sharding is not None
    annotations = Annotations([whole_spec(key.sharding, var.rank)], [whole_spec(target, var.rank)])
    return build(program, mesh_of(target), annotations, [key.weak], key.committed)


def whole_spec(sharding: Sharding, rank: int) -> PartitionSpec:
    """A sharding's spec with one entry per dim."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else PartitionSpec()
    return padded(spec, rank)


def reshard(array: Array, target: NamedSharding) -> Array:
    """The array under another sharding of the same devices, by the cheapest walk of collectives."""
    (result,) = _identity(array._key, target).run_placed([array])
    return Array(leaf_key(array.type, array.weak_type, target, True), result)  # the target as it was spelt


def filled(value: Array, shape: tuple[int, ...], target: Sharding) -> Array:
    """`value` broadcast to a shape, each device of `target` making its own part of it."""
    there = target.with_memory_kind(DEVICE)
    (result,) = _broadcasting(value._key, shape, there)([value])
    made = Array(leaf_key(result.type, value.weak_type, there, True), result)  # the target as it was spelt
    return made if memory_of(target) == DEVICE else move(made, target)


@functools.lru_cache(maxsize=4096)
def _broadcasting(key: LeafKey, shape: tuple[int, ...], target: Sharding) -> Executable:
    dims = tuple(range(len(shape) - key.type.rank, len(shape)))
    with Builder("full") as builder:
        operand = builder.input(key.type)
        results = builder.emit(REGISTRY["broadcast_in_dim"], [operand], {"shape": shape, "dimensions": dims})
        program = builder.build(results)
    annotations = Annotations([PartitionSpec(*[None] * key.type.rank)], [whole_spec(target, len(shape))])
    return build(program, mesh_of(target), annotations, [key.weak], True)


def copied(array: Array) -> Array:
    """The same elements, sharding and commitment in memory of their own."""
    if memory_of(array.sharding) != DEVICE:
        return Array(array._key, _jaxlib.copy_to_layout(array._live(), array._key.layout))
    (result,) = _identity(array._key, array.sharding).run_placed([array])
    return Array(array._key, result)
