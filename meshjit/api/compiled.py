"""Compiled: the last stage, which runs. What it checks of its arguments, and what becomes of donated ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meshjit import tree
from meshjit.api.leaves import key_of_value
from meshjit.api.memory import MemoryAnalysis
from meshjit.api.shardings import spec_of
from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array, LeafKey
from meshjit.runtime.executable import Executable, fits
from meshjit.runtime.placing import asarray_host, move, place
from meshjit.trace import Tracer, active_trace
from sharding.named import Sharding
from sharding.spec import ShardingError

if TYPE_CHECKING:
    from meshjit.api.stages import Lowered


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

    def memory_analysis(self) -> MemoryAnalysis:
        """Bytes per device, under JAX's names: `argument_size_in_bytes`, `temp_size_in_bytes`, …"""
        return MemoryAnalysis.of(_jaxlib.memory_stats(self.executable.compiled))

    def runtime_executable(self) -> Any:
        return self.executable.compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.flatten((args, kwargs))
        if active_trace() is not None and any(isinstance(x, Tracer) for x in leaves):
            raise TypeError(
                f"{self.name} is compiled already and cannot become part of a traced function\n"
                "  fix: call the jitted function itself there; a Compiled takes concrete arrays"
            )
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
        try:
            outputs = self.executable.run_placed(arguments)
        except RuntimeError:
            self._name_deleted(arguments)
            raise
        for i in self.donated:
            _donate(leaves[i], arguments[i], self.name)
        return self.out_tree.unflatten(outputs)

    def _name_deleted(self, arguments: Sequence[Any]) -> None:
        """Raise for the first argument that was deleted, now with its path."""
        for i, x in enumerate(arguments):
            if isinstance(x, Array) and x.is_deleted():
                raise RuntimeError(f"{self.name}, {self._name(i)}: {x._deleted_message()}") from None

    def _name(self, i: int) -> str:
        count = len(self.lowered.traced.call.keys)
        name = self.lowered.traced._input_name(i)  # pyright: ignore[reportPrivateUsage]
        return f"argument {name}" if i < count else name

    def _placed(self, leaves: Sequence[Any]) -> list[Array]:
        placed: list[Array] = []
        try:
            for x, sharding in zip(leaves, self.executable.in_shardings, strict=False):  # captured arrays come last
                if type(x) is not Array:
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
        name, bare = self._name, self.lowered.traced._input_name  # pyright: ignore[reportPrivateUsage]
        both = i in self.donated and j in self.donated
        i, j = (i, j) if i in self.donated else (j, i)
        return (
            f"{self.name}: {name(i)} and {name(j)} are the same array, and "
            f"{'both are' if both else f'{name(i)} is'} donated\n"
            "  the memory of a donated argument can hold a result, so nothing else may read it\n"
            f"  fix: pass {bare(j)}.copy(), or do not donate {bare(i)}"
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
