"""The stages between a function and its results: Traced → Lowered → Compiled (as jax.stages), with the Plan in between."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import tree
from meshjit.api.leaves import key_of_value, stack_level
from meshjit.api.shardings import UNSPECIFIED, MeshFinder, broadcast, find_mesh, spec_for
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.plan.make import Annotations, make_plan
from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array, LeafKey
from meshjit.runtime.executable import Executable, Lowering, default_mesh, fits, lower, whole_spec
from meshjit.runtime.placing import asarray_host, move, place
from meshjit.trace import Traced as TracedProgram
from sharding.mesh import current_mesh
from sharding.named import NamedSharding, Sharding
from sharding.spec import PartitionSpec, ShardingError


@dataclass(frozen=True)
class OutInfo:
    """Shape, dtype and sharding of one result; what `jax.ShapeDtypeStruct` is for a result."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: Any = None


@dataclass(frozen=True)
class Call:
    """What one call (or one `lower`) asks for: its leaves' keys, their names, and what the user said about placement."""

    title: str
    names: Sequence[str]
    keys: Sequence[LeafKey]
    in_tree: Any
    in_shardings: Any  # pytree prefix of the positional arguments, or UNSPECIFIED
    out_shardings: Any
    donated: Sequence[bool]
    keep_unused: bool = False
    device: Any = None
    options: Mapping[str, Any] | None = None


class Traced:
    """A function traced at the types of its arguments. `.program` is what it does; `.lower()` plans and partitions it."""

    def __init__(self, call: Call, traced: TracedProgram) -> None:
        self.call = call
        self.traced = traced
        self.program: Program = traced.program
        self.committed = False  # whether anything names a device; known once the mesh is

    @property
    def fun_name(self) -> str:
        return self.program.name

    @property
    def jaxpr(self) -> Program:
        return self.program

    @property
    def out_info(self) -> Any:
        return tree.unflatten(self.traced.out_tree, [OutInfo(t.shape, t.dtype) for t in self.program.output_types])

    def plan(self) -> Plan:
        """The placements alone, without partitioning."""
        mesh, annotations = self.placements()
        return make_plan(self.program, mesh, annotations)

    def placements(self) -> tuple[Any, Annotations]:
        """The mesh, and a spec for every input and output that somebody placed."""
        call, program = self.call, self.program
        given = self._in_shardings()
        outs = broadcast(call.out_shardings, self.traced.out_tree, "out_shardings")
        mesh = self._mesh(given, outs)
        in_context = current_mesh() is not None
        inputs: list[PartitionSpec | None] = []
        for i, var in enumerate(program.inputs):
            name = self._input_name(i)
            if i < len(given) and given[i] is not UNSPECIFIED:
                self._check_committed(i, given[i], mesh)
                inputs.append(spec_for(given[i], var.shape, mesh, lambda n=name: f"in_shardings for {n}", in_context))
            else:
                inputs.append(self._committed_spec(i, mesh))
        outputs = [
            spec_for(s, var.shape, mesh, lambda i=i: f"out_shardings for {self._output_name(i)}", in_context)
            for i, (var, s) in enumerate(zip(program.outputs, outs, strict=True))
        ]
        return mesh, Annotations(inputs, outputs)

    def _in_shardings(self) -> list[Any]:
        count = len(self.call.keys)
        if self.call.in_shardings is UNSPECIFIED:
            return [UNSPECIFIED] * count
        args_tree = tree.structure(tree.unflatten(self.call.in_tree, [0] * count)[0])
        prefix = self.call.in_shardings
        if isinstance(prefix, list):
            prefix = tuple(prefix)
        if args_tree.num_leaves != count:
            raise ValueError(
                f"{self.call.title}: in_shardings place positional arguments; this call passes keyword arguments\n"
                "  fix: pass every argument by position"
            )
        return broadcast(prefix, args_tree, "in_shardings")

    def _mesh(self, given: Sequence[Any], outs: Sequence[Any]) -> Any:
        call = self.call
        named = [(f"in_shardings for {n}", s) for n, s in zip(call.names, given, strict=True)]
        named += [(f"out_shardings for {self._output_name(i)}", s) for i, s in enumerate(outs)]
        if call.device is not None:
            from sharding.named import SingleDeviceSharding

            named.append(("device", SingleDeviceSharding(call.device)))
        committed = [
            (f"argument {self._input_name(i)}", key.sharding)
            for i, key in enumerate(self.input_keys)
            if key.committed and key.sharding is not None
        ]
        mesh = find_mesh(call.title, named, committed, self.traced.mesh)
        self.committed = mesh is not None
        return default_mesh() if mesh is None else mesh

    @property
    def input_keys(self) -> list[LeafKey]:
        """Of the arguments and then of the captured arrays."""
        return [*self.call.keys, *(x._key for x in self.traced.captured)]

    def _input_name(self, i: int) -> str:
        return self.call.names[i] if i < len(self.call.names) else f"captured array {i - len(self.call.names)}"

    def _output_name(self, i: int) -> str:
        dummy = tree.unflatten(self.traced.out_tree, list(range(len(self.program.outputs))))
        return tree.path_names(dummy, "result")[i]

    def _committed_spec(self, i: int, mesh: Any) -> PartitionSpec | None:
        key = self.input_keys[i]
        if not key.committed or not isinstance(key.sharding, NamedSharding) or key.sharding.mesh != mesh:
            return None
        return whole_spec(key.sharding, key.type.rank)

    def _check_committed(self, i: int, asked: Any, mesh: Any) -> None:
        """A committed argument that is elsewhere than in_shardings say is an error, not a silent move."""
        key = self.input_keys[i]
        if not key.committed or key.sharding is None or not isinstance(asked, Sharding | PartitionSpec):
            return
        wanted = asked if isinstance(asked, Sharding) else NamedSharding(mesh, asked)
        if not fits(key, wanted):
            raise ShardingError(
                f"argument {self._input_name(i)} {key.type} is committed to {spec_of(key.sharding)},"
                f" but in_shardings say {spec_of(wanted)}\n"
                f"  fix: meshjit.device_put({self._input_name(i)}, sharding) before the call,"
                " or leave in_shardings out to use the argument's own"
            )

    def lower(self) -> Lowered:
        """Plan, partition and emit."""
        mesh, annotations = self.placements()
        donated = [i for i, d in enumerate(self.call.donated) if d]
        lowering = lower(self.program, mesh, annotations, donated)
        self._warn_unused(lowering, donated)
        return Lowered(self, lowering)

    def _warn_unused(self, lowering: Lowering, donated: Sequence[int]) -> None:
        """As JAX, warn of donated arrays that no result can take the memory of; a Python number is no loss."""
        unused = [i for i in donated if i not in lowering.aliases and self.call.keys[i].sharding is not None]
        if unused:
            listed = ", ".join(f"{self._input_name(i)} {self.call.keys[i].type}" for i in unused)
            warnings.warn(
                f"{self.call.title}: donated memory was not used: {listed}\n"
                "  a result can take it if it has the same shape and dtype on every device, and none is left that has\n"
                "  fix: do not donate it, or delete it yourself with x.delete()",
                stacklevel=stack_level(),
            )


def spec_of(sharding: Sharding) -> str:
    if isinstance(sharding, NamedSharding):
        return f"{sharding.spec} on {sharding.mesh}"
    return f"device {next(iter(sharding.device_set))}"


class Lowered:
    """A per-device program with explicit collectives, not yet compiled."""

    def __init__(self, traced: Traced, lowering: Lowering) -> None:
        self.traced = traced
        self.lowering = lowering

    @property
    def plan(self) -> Plan:
        return self.lowering.plan

    @property
    def in_tree(self) -> Any:
        return self.traced.call.in_tree

    @property
    def out_tree(self) -> Any:
        return self.traced.traced.out_tree

    def as_text(self, dialect: str | None = None) -> str:
        """`stablehlo` (the default), `meshjit` (the annotated Program) or `local` (the per-device Program)."""
        if dialect in (None, "stablehlo"):
            return self.lowering.text
        if dialect == "meshjit":
            return print_program(self.plan.program, self.plan.placements, elide=True)
        if dialect == "local":
            return print_program(self.lowering.local, elide=True)
        raise ValueError(f"unknown dialect {dialect!r}: use 'stablehlo', 'meshjit' or 'local'")

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> Compiled:
        options = {**(self.traced.call.options or {}), **(compiler_options or {})}
        traced = self.traced
        return Compiled(self, Executable(self.lowering, traced.traced.out_weak, options, traced.committed))


class Compiled:
    """Runs. Called with the same tree of arguments as the function was lowered for (without static ones)."""

    def __init__(self, lowered: Lowered, executable: Executable) -> None:
        self.lowered = lowered
        self.executable = executable
        traced = lowered.traced
        self.out_tree = lowered.out_tree
        self.donated = [i for i, d in enumerate(traced.call.donated) if d]
        self.name = traced.call.title
        self._captured: list[Array] | None = None

    @property
    def in_tree(self) -> Any:
        return self.lowered.in_tree

    @property
    def input_shardings(self) -> Any:
        count = len(self.lowered.traced.call.keys)
        return tree.unflatten(self.in_tree, self.executable.in_shardings[:count])

    @property
    def output_shardings(self) -> Any:
        return tree.unflatten(self.out_tree, self.executable.out_shardings)

    def as_text(self) -> str:
        """The HLO after XLA's optimisations, of one device."""
        return _jaxlib.hlo_text(self.executable.compiled)

    def cost_analysis(self) -> dict[str, float]:
        return _jaxlib.cost_analysis(self.executable.compiled)

    def memory_analysis(self) -> dict[str, int]:
        """Bytes per device: arguments, outputs, temp, alias, generated_code."""
        return _jaxlib.memory_stats(self.executable.compiled)

    def runtime_executable(self) -> Any:
        return self.executable.compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise TypeError(
                f"{self.name} was compiled for arguments {self.in_tree}, called with {in_tree}\n"
                "  fix: call it with the same containers, or lower and compile for these"
            )
        for i, leaf in enumerate(leaves):
            self._check_argument(i, leaf)
        return self.run(leaves)

    def _check_argument(self, i: int, leaf: Any) -> None:
        """The types must be those it was compiled for, and committed arrays must lie where it wants them."""
        call, wanted = self.lowered.traced.call, self.executable.in_shardings[i]
        name, expected = call.names[i], call.keys[i].type
        found = key_of_value(leaf, name)
        if found.type != expected:
            raise TypeError(
                f"{self.name} was compiled for {name}: {expected}, called with {found.type}\n"
                "  fix: convert or reshape the argument, or lower and compile for this type"
            )
        if found.committed and found.sharding is not None and not fits(found, wanted):
            raise ShardingError(
                f"{self.name} was compiled for {name} {expected} at {spec_of(wanted)},"
                f" called with one committed to {spec_of(found.sharding)}\n"
                f"  fix: meshjit.device_put({name}, compiled.input_shardings[...]) before the call,"
                " or lower and compile for this sharding"
            )

    def needs_moving(self, keys: Sequence[LeafKey]) -> bool:
        """Whether arguments that look like this have to be put or moved before they run."""
        wanted = zip(keys, self.executable.in_shardings, strict=False)  # captured arrays come last
        return not all(key.sharding is not None and fits(key, sharding) for key, sharding in wanted)

    def run(self, leaves: Sequence[Any], placed: bool = False) -> Any:
        """Flat arguments in, the function's result out. `placed`: they are Arrays for which no `needs_moving`."""
        arguments = leaves if placed else self._placed(leaves)
        if self.donated:
            self._check_donated(arguments)
        if self.lowered.traced.traced.captured:
            arguments = [*arguments, *self.captured]
        outputs = self.executable.run_placed(arguments)
        for i in self.donated:
            _donate(leaves[i], arguments[i], self.name)
        return self.out_tree.unflatten(outputs)

    def _placed(self, leaves: Sequence[Any]) -> list[Array]:
        wanted = zip(leaves, self.executable.in_shardings, strict=False)
        return [_put(x, s) if type(x) is not Array else x if fits(x._key, s) else move(x, s) for x, s in wanted]

    @property
    def captured(self) -> list[Array]:
        """The arrays that the function closed over, moved once to where the program wants them."""
        if self._captured is None:
            outer = self.lowered.traced.traced.captured
            wanted = self.executable.in_shardings[len(self.lowered.traced.call.keys) :]
            self._captured = [x if fits(x._key, s) else move(x, s) for x, s in zip(outer, wanted, strict=True)]
        return self._captured

    def _check_donated(self, arguments: Sequence[Array]) -> None:
        """An array that is donated must not be any other argument: XLA would crash, or compute with what overwrote it."""
        seen: dict[int, int] = {}
        handles = [x._handle for x in arguments]
        handles += [x._handle for x in self.captured] if self.lowered.traced.traced.captured else []
        if len(set(map(id, handles))) == len(handles):
            return
        for i, handle in enumerate(handles):
            first = seen.setdefault(id(handle), i)
            if handle is not None and first != i and (first in self.donated or i in self.donated):
                raise ValueError(self._donated_twice(first, i))

    def _donated_twice(self, i: int, j: int) -> str:
        name = self.lowered.traced._input_name  # pyright: ignore[reportPrivateUsage]
        both = i in self.donated and j in self.donated
        i, j = (i, j) if i in self.donated else (j, i)
        return (
            f"{self.name}: arguments {name(i)} and {name(j)} are the same array, and "
            f"{'both are' if both else f'{name(i)} is'} donated\n"
            "  the memory of a donated argument can hold a result, so nothing else may read it\n"
            f"  fix: pass {name(j)}.copy(), or do not donate {name(i)}"
        )


def _put(value: Any, sharding: Sharding) -> Array:
    array, weak = asarray_host(value)
    return place(array, sharding, committed=False, weak=weak)


def _donate(given: Any, used: Array, name: str) -> None:
    """After the call: a donated array is gone, also where XLA found no use for its memory."""
    if isinstance(given, Array) and given._handle is not None:
        if not _jaxlib.is_deleted(given._handle):
            _jaxlib.delete(given._handle)
        given._forget(name)


__all__ = ["Call", "Compiled", "Lowered", "MeshFinder", "OutInfo", "Traced"]
