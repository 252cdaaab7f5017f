"""trace_to_program: run a Python function on Tracers and keep what it did as a Program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.explicit import typed
from meshjit.core.garbage import rarely_collected
from meshjit.core.program import Program, Source
from meshjit.core.promotion import canonical, dtype_of_python_scalar, is_python_number
from meshjit.core.ref import Ref
from meshjit.core.types import TensorType
from meshjit.core.varying import NOWHERE, REDUCED, UNREDUCED, Axes, marked, with_mark
from meshjit.trace.common import Common
from meshjit.trace.concrete import Copy, Value, concrete_info
from meshjit.trace.explicit import sharding_in_type
from meshjit.trace.float0 import without_float0
from meshjit.trace.leaks import check_leaks
from meshjit.trace.memories import memory_in_type
from meshjit.trace.names import function_name, hint_of
from meshjit.trace.recursion import Level, explained
from meshjit.trace.refs import check_no_refs, content_of, written_in
from meshjit.trace.stack import active_trace, note_copies
from meshjit.trace.thread import depth
from meshjit.trace.tracer import Tracer
from meshjit.trace.tracing import Trace, varying_of
from meshjit.trees import WORDS as tree
from sharding.axes import AxisRef
from sharding.memory import DEVICE
from sharding.named import NamedSharding
from sharding.spec import entry_axes, padded


@dataclass(frozen=True, slots=True)
class Argument:
    """One array argument of a function: its type, whether its dtype is weak, its path (`params['w1']`), in code for single
    devices the mesh axes over which it varies, where its type says that it is, in explicit axes, and in which memory."""

    type: TensorType
    weak: bool = False
    name: str = ""
    varying: Axes = NOWHERE
    sharding: NamedSharding | None = None
    memory: str = DEVICE

    def with_type(self, type: TensorType) -> Argument:
        return replace(self, type=type)

    def without_dim(self, dim: int) -> Argument:
        """One slice of it along a dim."""
        shape, sharding = self.type.shape, self.sharding
        if sharding is not None:
            spec = padded(sharding.spec, len(shape))
            sharding = sharding.with_spec(spec.update(partitions=(*spec[:dim], *spec[dim + 1 :])))
        return replace(self, type=self.type.with_shape((*shape[:dim], *shape[dim + 1 :])), sharding=sharding)

    def with_dim(self, dim: int, extent: int, axes: tuple[AxisRef, ...]) -> Argument:
        """Many of it along a new dim, which these axes shard; without a placement where they shard it already."""
        shape, sharding = self.type.shape, self.sharding
        if sharding is not None:
            entries = padded(sharding.spec, len(shape)).partitions
            used = {axis for entry in entries for axis in entry_axes(entry)}
            spec = sharding.spec.update(partitions=(*entries[:dim], axes or None, *entries[dim:]))
            sharding = None if used.intersection(axes) else sharding.with_spec(spec)
        return replace(self, type=self.type.with_shape((*shape[:dim], extent, *shape[dim:])), sharding=sharding)

    @property
    def dual(self) -> Argument:
        """The type of its cotangent: what is unreduced over an axis has one that is reduced, and the other way around."""
        axes, sharding = self.varying, self.sharding
        swapped = with_mark(axes, "") | marked(with_mark(axes, UNREDUCED), REDUCED) | marked(with_mark(axes, REDUCED), UNREDUCED)
        return replace(self, varying=swapped, sharding=None if sharding is None else sharding.with_spec(sharding.spec.dual))

    @property
    def axes(self) -> tuple[tuple[AxisRef, ...], ...]:
        """Per dim, the explicit axes that its type says shard it."""
        entries = self.sharding.spec if self.sharding is not None else ()
        return (*map(entry_axes, entries), *((),) * (self.type.rank - len(entries)))

    @property
    def placed(self) -> Any:
        """All that its type says of where it is."""
        spec = None if self.sharding is None else self.sharding.spec
        return self.axes, *((spec.unreduced, spec.reduced) if spec is not None else (frozenset(), frozenset()))

    def __str__(self) -> str:
        return typed(self.type, None if self.sharding is None else self.sharding.spec, self.varying)


@dataclass(frozen=True)
class Traced:
    """A traced function: flat outputs with their tree and weak flags, and the outer values it closed over.

    `program.inputs` are the arguments' leaves, then one per value of `captured` (concrete arrays and Tracers of outer
    traces). `mesh` is the one that sharding constraints inside named, or None; `mesh_source` is the line of the first of them.
    `by_value`: Python asked for values, so that the Program may be right for these alone.
    """

    program: Program
    out_tree: Any
    out_weak: tuple[bool, ...]
    captured: tuple[Value, ...]
    mesh: Any = None
    mesh_source: Source | None = None
    by_value: bool = False
    out_varying: tuple[Axes, ...] = ()  # of code for single devices
    shardings: tuple[NamedSharding | None, ...] = ()  # of the outputs, where explicit axes are in use
    memories: tuple[str, ...] = ()  # of the outputs, where some value lies elsewhere than in the devices' own
    copies: tuple[Copy, ...] = ()  # NumPy arrays whose elements are constants in it
    writes: tuple[Ref | int, ...] = ()  # Refs whose new contents are the last outputs; the number of one that was lent to it

    @property
    def out_arguments(self) -> tuple[Argument, ...]:
        """The results as they would be arguments of a next function; not what it writes to refs."""
        varying = self.out_varying or [NOWHERE] * len(self.out_weak)
        shardings = self.shardings or [None] * len(self.out_weak)
        memories = self.memories or [DEVICE] * len(self.out_weak)
        count = len(self.out_weak) - len(self.writes)
        results = zip(self.program.output_types, self.out_weak, varying, shardings, memories, range(count), strict=False)
        return tuple(Argument(type, weak, "", axes, sharding, memory) for type, weak, axes, sharding, memory, _ in results)


@rarely_collected
def trace_to_program(
    fun: Callable[..., Any],
    arguments: Sequence[Argument],
    in_tree: Any,
    name: str | None = None,
    paths: Mapping[int, str] | None = None,
    operands: Sequence[Value] | None = None,
    everywhere: Axes = NOWHERE,
    writes: bool = False,
    common: Common | None = None,
) -> Traced:
    """Trace `fun(*args, **kwargs)`, `in_tree` being the structure of `(args, kwargs)` and `arguments` its leaves.

    Results may be arrays of any kind that `bind` takes and Python scalars (weak). TypeError, with the result's path, for
    anything else. The Program may repeat outputs, and outputs may be inputs. `paths`: paths by id of arrays that `fun`
    uses as they are; those of NumPy are captured, not constants. `operands`: outside of jit, what the arguments are, None for
    those without a value; Python may then ask for values (`if x > 0`). `everywhere`: mesh axes over which
    what reaches the function is taken to vary, in code for single devices. `writes`: the caller stores what the function writes
    to refs made outside of it (`store_outputs`), which is an error without. `common`: what Python may ask of code for single
    devices; `operands` are Operands then. RecursionError, with the line, for a function that
    calls itself without end.
    """
    name = name or function_name(fun)
    try:
        with Level(depth()), Trace(name, paths, operands is not None and common is None) as trace:
            trace.everywhere = everywhere
            trace.common = common or trace.common
            values = operands or [None] * len(arguments)
            pairs = zip(arguments, values, strict=True)
            tracers = [_input(trace, argument, value) for argument, value in pairs]
            args, kwargs = tree.unflatten(in_tree, tracers)
            result = fun(*args, **kwargs)
            result = without_float0(result)
            leaves, out_tree = tree.flatten(result)
            outputs = [_output(trace, leaf, result, index) for index, leaf in enumerate(leaves)]
            written: tuple[Ref | int, ...] = ()
            if Ref.made:
                check_no_refs(name, result, args, kwargs)
                written, contents = written_in(trace, writes)
                outputs += map(trace.lift, contents)
            shardings = () if trace.specs is None else tuple(map(sharding_in_type, outputs))
            memories = () if trace.memories is None else tuple(map(memory_in_type, outputs))
    except RecursionError as error:
        if depth() > 0:  # the outermost says where
            raise
        raise explained(error, name) from None
    captured = tuple(value for value, _ in trace.captured.values())
    program = trace.build(outputs)
    outer, mesh = active_trace(), trace.meshes
    if outer is not None and mesh is not None:
        program, mesh = outer.translated(program, mesh), outer.own_mesh(mesh)
    known = trace.values or trace.common
    by_value = known is not None and known.asked
    varying = () if trace.varying is None else tuple(map(varying_of, outputs))
    weak = tuple(t.weak_type for t in outputs)
    note_copies(trace.copies)
    copies = tuple(trace.copies)
    if config.check_tracer_leaks:
        del tracers, args, kwargs, result, leaves, outputs
        check_leaks(trace)
    types = varying, shardings, memories
    return Traced(program, out_tree, weak, captured, mesh, trace.mesh_source, by_value, *types, copies, written)


def _input(trace: Trace, a: Argument, value: Value) -> Tracer:
    return trace.input(a.type, a.weak, a.name, hint_of(a.name), value, a.varying, a.sharding, a.memory)


def argument_of(value: Any, name: str = "", fix: str = "") -> Argument:
    """The Argument for a value given to a transformed function; TypeError with its path, and `fix`, if it is no array or
    scalar."""
    if type(value) is Ref:  # closed over by a rule
        return Argument(value.type, value.weak, name, varying_of(content_of(value)))
    if isinstance(value, Tracer):
        sharding = None if value.tracing.specs is None else sharding_in_type(value)
        return Argument(value.type, value.weak_type, name, varying_of(value), sharding, memory_in_type(value))
    if is_python_number(value):
        dtype = canonical(dtype_of_python_scalar(value), config.enable_x64)
        return Argument(TensorType((), dtype), not isinstance(value, bool), name)
    if isinstance(value, np.ndarray | np.generic):
        _check_dtype(value.dtype, name, value, fix)
        check_unmasked(value, f"argument {name}")
        return Argument(TensorType(tuple(value.shape), canonical(value.dtype, config.enable_x64)), False, name)
    info = concrete_info(value)
    if info is None:
        raise TypeError(_not_an_array(value, f"argument {name}", fix=fix))
    return Argument(info[0], info[1], name, NOWHERE, sharding_in_type(value), memory_in_type(value))


def as_operand(value: Any, argument: Argument) -> Value:
    """The value as `bind` takes it: Python scalars and NumPy arrays in the argument's dtype."""
    if isinstance(value, bool | int | float | complex | np.ndarray | np.generic):
        return np.asarray(value, argument.type.dtype)
    return value


def _output(trace: Trace, leaf: Any, result: Any, index: int) -> Tracer:
    if is_python_number(leaf):
        dtype = canonical(dtype_of_python_scalar(leaf), config.enable_x64)
        tracer = trace.lift(np.asarray(leaf, dtype))
        tracer.weak_type = dtype != np.bool_
        return tracer
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OSUMm":
        return trace.lift(np.asarray(leaf, canonical(leaf.dtype, config.enable_x64)))
    if isinstance(leaf, Tracer) or concrete_info(leaf) is not None:
        return trace.lift(leaf)
    path = tree.path_names(result, "result")[index]
    raise TypeError(_not_an_array(leaf, f"{trace.name} returned {path}, which"))


def check_unmasked(value: Any, where: str) -> None:
    """ValueError for a masked array, whose mask would be lost."""
    if type(value) is not np.ndarray and hasattr(value, "filled"):
        raise ValueError(f"{where} is a masked array, and arrays have no masks\n  fix: x.filled(0), and mnp.where with the mask")


def _check_dtype(dtype: Any, name: str, value: Any, fix: str) -> None:
    if dtype.kind in "OSUMm":
        raise TypeError(_not_an_array(value, f"argument {name}", f" with dtype {dtype}", fix))


def _not_an_array(value: Any, where: str, more: str = "", fix: str = "") -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return (
        f"{where} is not an array: {type(value).__name__}{more} {shown}\n"
        "  arguments and results of traced functions are arrays, Python numbers, and trees of them\n"
        f"  fix: {fix or _fix(value, where)}"
    )


def _fix(value: Any, where: str) -> str:
    name = where.removeprefix("argument ")
    if name == where:
        return "leave it out of the result"
    if name in ("self", "cls"):
        return "mark it static (static_argnums=0), or make its class a pytree: meshjit.tree_util.register_dataclass"
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.ndarray):
        return "pass an array; for shapes alone there are .lower(...), .trace(...) and meshjit.eval_shape"
    return "for an argument that is a setting, mark it static (static_argnames=...); else leave it out of the tree"
