"""Compiled: the last stage, which runs. What it checks of its arguments, and what becomes of donated ones."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meshjit.api.call import Stage
from meshjit.api.layouts import Format, formats
from meshjit.api.leaves import key_of_value
from meshjit.api.memory import MemoryAnalysis
from meshjit.api.mismatch import tree_mismatch
from meshjit.api.placements import output_names
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.shardings import cut, spec_of
from meshjit.api.tracebacks import hide_own_frames
from meshjit.report import Report
from meshjit.runtime import _jaxlib, nans
from meshjit.runtime.array import Array, LeafKey
from meshjit.runtime.composed import is_inside
from meshjit.runtime.executable import Executable
from meshjit.runtime.fast import fast_call
from meshjit.runtime.placing import asarray_host, move, place
from meshjit.runtime.shardings import fits, spelling_of
from meshjit.trace import Tracer, active_trace
from meshjit.trace.outlived import as_array
from meshjit.tree_views import about_leaves, hidden_dims
from meshjit.trees import WORDS as tree
from sharding.mesh import AbstractMesh
from sharding.named import Sharding
from sharding.spec import ShardingError

if TYPE_CHECKING:
    from meshjit.api.stages import Lowered


class Compiled(Stage):
    """Runs. Called with the same tree of arguments as the function was lowered for (without static ones).

    Inputs of the executable are the arguments that the function uses (`kept`, positions of leaves), then captured arrays.
    """

    def __init__(self, lowered: Lowered, executable: Executable) -> None:
        self.lowered = lowered
        self.executable = executable
        self.call = lowered.call
        self.traced_program = lowered.traced_program
        self.name = self.call.title
        self.treedef = lowered.traced_program.out_tree
        count = len(self.call.keys)
        self.kept = [i for i in lowered.kept if i < count]
        self.all_kept = len(self.kept) == count
        self.donated = [n for n, i in enumerate(self.kept) if self.call.donated[i]]
        self.outer = [self.traced_program.captured[i - count] for i in lowered.kept if i >= count]
        self.checks = bool(nans.active_tests())
        self._captured: list[Array] | None = None

    def report(self) -> Report:
        """What lives where and why, what is sent, what is held (`meshjit.report.Report`)."""
        return self.lowered.report()

    def spelt(self, keys: Sequence[LeafKey]) -> Compiled:
        """The same for arguments whose shardings mean the same and are written as in `keys`, for results that lie as they do."""
        spellings = [spelling_of(keys[i]) for i in self.kept] + list(self.executable.spellings[len(self.kept) :])
        executable = self.executable.spelt(spellings)
        if executable is self.executable:
            return self
        other = copy.copy(self)
        other.executable = executable
        return other

    @property
    def input_shardings(self) -> Any:
        """A sharding per argument; None for one that the function does not use, which is not put anywhere."""
        keys = [self.call.keys[i] for i in self.kept]
        pairs = zip(keys, self.executable.in_shardings, strict=False)
        return self._per_argument([_own_sharding(key, sharding) for key, sharding in pairs], None)

    @property
    def output_shardings(self) -> Any:
        return about_leaves(self.traced_program.out_tree, self._out_shardings())

    def _out_shardings(self) -> list[Any]:
        """Per result; of keys, not of their words."""
        outputs, hidden = self.traced_program.program.output_types, hidden_dims(self.traced_program.out_tree)
        pairs = zip(self.executable.out_shardings, outputs, hidden, strict=True)
        return [cut(s, t.rank - 1) if dims else s for s, t, dims in pairs]

    @property
    def input_formats(self) -> Any:
        """A Format (layout and sharding) per argument."""
        leaf_formats = formats(self.executable.parameter_layouts(), self.executable.in_shardings)
        return self._per_argument(leaf_formats, Format(None, None))

    @property
    def output_formats(self) -> Any:
        return about_leaves(
            self.traced_program.out_tree, formats(_jaxlib.result_layouts(self.executable.compiled), self.executable.out_shardings)
        )

    @property
    def input_layouts(self) -> Any:
        """A Layout per argument."""
        return tree.map(lambda format: format.layout, self.input_formats, is_leaf=lambda x: isinstance(x, Format))

    @property
    def output_layouts(self) -> Any:
        return tree.map(lambda format: format.layout, self.output_formats, is_leaf=lambda x: isinstance(x, Format))

    def _per_argument(self, kept: Sequence[Any], missing: Any) -> Any:
        by_number = dict(zip(self.kept, kept, strict=False))  # captured arrays come last
        return about_leaves(self.call.in_tree, [by_number.get(i, missing) for i in range(len(self.call.keys))])

    def _out_info(self, shardings: Sequence[Any] | None = None) -> list[ShapeDtypeStruct]:
        return super()._out_info(self.executable.out_shardings if shardings is None else shardings)

    def as_text(self) -> str:
        """The HLO after XLA's optimisations, of one device."""
        return _jaxlib.hlo_text(self.executable.compiled)

    def cost_analysis(self) -> dict[str, float]:
        """XLA's own estimate for one device: "flops", "bytes accessed", …"""
        return _jaxlib.cost_analysis(self.executable.compiled)

    def memory_analysis(self) -> MemoryAnalysis:
        """Bytes per device, under JAX's names: `argument_size_in_bytes`, `temp_size_in_bytes`, …"""
        return MemoryAnalysis.of(_jaxlib.memory_stats(self.executable.compiled))

    def serialize(self) -> bytes:
        """The compiled program, for `Lowered.load` on the machine that it was compiled for: same function, devices and versions.

            data = lowered.compile(device_assignment=absent).serialize()          # here, with get_topology_desc's devices
            step = jit(step, …).lower(*args).load(data)                           # on the pod: traced and lowered, not compiled

        ValueError for a program that calls Python functions, or that XLA cannot write down."""
        return self.executable.serialize()

    def runtime_executable(self) -> Any:
        """jaxlib's own executable."""
        return self.executable.compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.run(self._checked(args, kwargs))
        except Exception as error:
            hide_own_frames(error)
            raise

    def _checked(self, args: Any, kwargs: Any) -> list[Any]:
        """The leaves; TypeError or ShardingError where they are not what it was compiled for, naming each."""
        leaves, in_tree = tree.flatten((args, kwargs))
        if active_trace() is not None and any(isinstance(x, Tracer) for x in leaves):
            raise TypeError(
                f"{self.name} is compiled already and cannot become part of a traced function\n"
                "  fix: call the jitted function itself there; a Compiled takes concrete arrays"
            )
        if in_tree != self.call.in_tree:
            raise TypeError(self._other_tree(args, kwargs))
        leaves = [as_array(x) for x in leaves]
        shardings = dict(zip(self.kept, self.executable.in_shardings, strict=False))
        problems = [self._problem(i, leaf, shardings.get(i)) for i, leaf in enumerate(leaves)]
        types = [text for kind, text in filter(None, problems) if kind is TypeError]
        places = [text for kind, text in filter(None, problems) if kind is ShardingError]
        if types:
            raise TypeError("\n".join([*types, "  fix: convert or reshape the argument, or lower and compile for this type"]))
        if places:
            raise ShardingError("\n".join([*places, self._place_fix(problems)]))
        return leaves

    def _other_tree(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        statics = ""
        if self.call.statics:
            names = ", ".join(name for name, _ in self.call.statics)
            statics = f"  static arguments ({names}) are part of the compiled function: leave them out\n"
        return (
            f"{self.name} was compiled for {tree_mismatch(self.call.in_tree, self.call.names, args, kwargs)}\n"
            f"{statics}  fix: call it with the same containers, or lower and compile for these"
        )

    def _problem(self, i: int, leaf: Any, sharding: Sharding | None) -> tuple[type[Exception], str] | None:
        """The types must be those it was compiled for, and committed arrays must lie where it wants them."""
        name, expected = self.call.names[i], self.call.keys[i].type
        key = key_of_value(leaf, name)
        if key.type != expected:
            return TypeError, f"{self.name} was compiled for {name}: {expected}, called with {key.type}"
        if sharding is None or not key.committed or key.sharding is None or fits(key, sharding):
            return None
        if self.call.device is not None:  # to which jit moves its arguments
            return None
        return ShardingError, (
            f"{self.name} was compiled for {name} {expected} at {spec_of(sharding)},"
            f" called with one committed to {spec_of(key.sharding)}"
        )

    def _place_fix(self, problems: Sequence[Any]) -> str:
        i = next(i for i, p in enumerate(problems) if p is not None)
        return (
            f"  fix: meshjit.device_put({self.call.names[i]}, compiled.input_shardings[...]) before the call,"
            " or lower and compile for this sharding"
        )

    def needs_moving(self, keys: Sequence[LeafKey]) -> bool:
        """Whether arguments that look like this have to be put or moved before they run."""
        pairs = zip([keys[i] for i in self.kept], self.executable.in_shardings, strict=False)  # captured arrays come last
        return not all(key.sharding is not None and fits(key, sharding) for key, sharding in pairs)

    def run(self, leaves: Sequence[Any], placed: bool = False) -> Any:
        """Flat arguments in, the function's result out. `placed`: they are Arrays for which no `needs_moving`."""
        if not self.all_kept:
            leaves = [leaves[i] for i in self.kept]
        arguments = leaves if placed else self._placed(leaves)
        if self.donated:
            self._check_donated(arguments)
        if self.outer:
            arguments = [*arguments, *self.captured]
        try:
            outputs = self.executable.run_placed(arguments)
        except RuntimeError:
            self._name_deleted(arguments)
            raise
        if self.checks and not is_inside():
            self._check_results(arguments, outputs)
        for i in self.donated:
            _donate(leaves[i], arguments[i], self.name)
        return self.treedef.unflatten(outputs)

    def fast_call(self) -> Any:
        """How C++ may run calls like those that this was compiled for; None where Python has to look at each: at results, at
        which of the donated arguments were given away, at what the host's functions do, or at calls over processes."""
        if self.executable.functions or self.executable.is_noted:
            return None
        kept = set(self.kept)
        flags = [i in kept for i in range(len(self.call.keys))]
        if self.checks or any(donated and not taken for donated, taken in zip(self.call.donated, flags, strict=True)):
            return None
        return fast_call(self.executable, self.treedef, flags, self.captured if self.outer else ())

    def _check_results(self, arguments: Sequence[Array], outputs: Sequence[Array]) -> None:
        nans.check_results(
            self.name,
            outputs,
            lambda: output_names(self.traced_program),
            self.lowered.plan.program,
            arguments,
            lambda: [self._name(i) for i in range(len(arguments))],
        )

    def _name_deleted(self, arguments: Sequence[Any]) -> None:
        """Raise for the first argument that was deleted, now with its path."""
        for i, x in enumerate(arguments):
            if isinstance(x, Array) and x.is_deleted():
                raise RuntimeError(f"{self.name}, {self._name(i)}: {x._deleted_message()}") from None

    def _name(self, i: int) -> str:
        """Of the i-th input of the executable."""
        return self.call.titled_name(self.lowered.kept[i])

    def _bare_name(self, i: int) -> str:
        return self.call.input_name(self.lowered.kept[i]).removeprefix("captured array ")

    def _placed(self, leaves: Sequence[Any]) -> list[Array]:
        placed: list[Array] = []
        try:
            for x, sharding in zip(leaves, self.executable.in_shardings, strict=False):  # captured arrays come last
                if not isinstance(x, Array):
                    x = _put(x, sharding)
                elif not fits(x._key, sharding):
                    x = move(x, sharding)
                placed.append(x)
        except RuntimeError:
            self._name_deleted(leaves)
            raise
        except OverflowError as error:
            i = len(placed)
            raise OverflowError(
                f"{self.name}, {self._name(i)}: {error}\n  fix: config.update('enable_x64', True), or pass a float"
            ) from None
        return placed

    @property
    def captured(self) -> list[Array]:
        """The arrays that the function closed over, moved once to where the program wants them."""
        if self._captured is None:
            shardings = self.executable.in_shardings[len(self.kept) :]
            self._captured = [x if fits(x._key, s) else move(x, s) for x, s in zip(self.outer, shardings, strict=True)]
        return self._captured

    def _check_donated(self, arguments: Sequence[Array]) -> None:
        """An array that is donated must not be any other argument: XLA would crash, or compute with what overwrote it."""
        seen: dict[int, int] = {}
        memories = [x.memory for x in arguments]
        memories += [x.memory for x in self.captured] if self.outer else []
        if len(set(map(id, memories))) == len(memories):
            return
        for i, memory in enumerate(memories):
            first = seen.setdefault(id(memory), i)
            if first != i and (first in self.donated or i in self.donated):
                raise ValueError(self._donated_twice(first, i))

    def _donated_twice(self, i: int, j: int) -> str:
        name, bare = self._name, self._bare_name
        both = i in self.donated and j in self.donated
        i, j = (i, j) if i in self.donated else (j, i)
        return (
            f"{self.name}: {name(i)} and {name(j)} are the same array, and "
            f"{'both are' if both else f'{name(i)} is'} donated\n"
            "  the memory of a donated argument can hold a result, so nothing else may read it\n"
            f"  fix: pass {bare(j)}.copy(), or do not donate {bare(i)}"
        )


def _own_sharding(key: LeafKey, sharding: Sharding) -> Sharding:
    """A committed argument's own sharding where it says the same: the way the user wrote it."""
    own = key.sharding
    if not key.committed or own is None or isinstance(getattr(own, "mesh", None), AbstractMesh):
        return sharding
    return own if fits(key, sharding) else sharding


def _put(value: Any, sharding: Sharding) -> Array:
    array, weak = asarray_host(value)
    return place(array, sharding, committed=False, weak=weak)


def _donate(argument: Any, used: Array, name: str) -> None:
    """After the call: a donated array is gone, also where XLA found no use for its memory."""
    if isinstance(argument, Array):
        argument._give_up(name)
