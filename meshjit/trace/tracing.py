"""Trace: one function in the middle of being traced.

While a trace is active every op is staged, also one without traced operands. What an operand may be then:

    Tracer of this trace       its Var
    Tracer of an outer trace   captured: an extra input of the Program, added once, in order of first use
    concrete array             captured likewise (classes that `register_concrete` knows)
    np.ndarray in `paths`      captured likewise: an argument that reaches the function as it is, of another value each time
    np.ndarray, np.generic     a `constant` equation, with a copy of the elements; a large one becomes a concrete array first,
                               so that it is an input, which is sharded as others are and not a part of every device's program
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.explicit import Unclear, check_sums, typed
from meshjit.core.memories import Memories
from meshjit.core.op import REGISTRY, Op
from meshjit.core.program import Builder, Eqn, Program, Source, Var
from meshjit.core.ref import Ref
from meshjit.core.region import copied
from meshjit.core.splat import element_of, is_known_splat, own, splat
from meshjit.core.stored import in_wider
from meshjit.core.types import TensorType, type_of
from meshjit.core.varying import (
    NOWHERE,
    REDUCED,
    UNREDUCED,
    Axes,
    marked,
    sums_in,
    varying_outputs,
    varying_results,
    with_mark,
)
from meshjit.trace.common import Common
from meshjit.trace.concrete import Copy, Value, concrete_info, is_large, put
from meshjit.trace.evaluators import run_eqn
from meshjit.trace.explicit import (
    addends_not_taken,
    governing,
    is_explicit,
    mesh_in_use,
    pinned_input,
    sharding_in_type,
    type_inlined,
    type_results,
    type_value,
)
from meshjit.trace.members import is_checked
from meshjit.trace.memories import behind_memory, memory_in_type, note_inlined, note_memories
from meshjit.trace.meshes import Meshes, in_words_of, is_on, is_without_devices, moves_to, why_apart
from meshjit.trace.outlived import is_usable, kept_array, lifted
from meshjit.trace.refs import Held, content_in
from meshjit.trace.source import line_of, user_source
from meshjit.trace.thread import active, innermost, pop, push, traces
from meshjit.trace.tracer import Tracer, origin
from meshjit.trace.values import Values
from sharding.memory import DEVICE
from sharding.mesh import Mesh, named_mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec, ShardingError


class Trace:
    """One function in the middle of being traced. A context manager: while entered it is the active trace.

    `knows`: Python may ask for its values, unless a function around it is traced whose values are not known."""

    __slots__ = (
        "name", "builder", "names", "paths", "captured", "large", "mesh", "mesh_source", "ended", "bodies", "splats", "values",
        "stand_ins", "memories", "moved", "specs", "varying", "everywhere", "varied", "copies", "typed", "refs", "lent",
        "alike", "transparent", "common", "others",
    )  # fmt: skip

    @property
    def main(self) -> Trace:
        """Itself: what libraries ask JAX's traces for."""
        return self

    def __init__(self, name: str, paths: Mapping[int, str] | None = None, knows: bool = False) -> None:
        self.name = name
        self.paths = paths or {}  # by id: paths of arrays among arguments that are no inputs
        self.builder = Builder(name)
        self.names: dict[Var, str] = {}  # of the inputs, for error messages
        self.captured: dict[int, tuple[Value, Var]] = {}  # by id of the value, which is kept alive here
        self.large: dict[int, tuple[Any, Value]] = {}  # NumPy arrays, likewise, and what they became
        self.mesh: Any = None
        self.mesh_source: Source | None = None
        self.others: list[Any] = []  # outside of jit: further meshes, of other devices
        self.ended = False
        self.splats: dict[Any, Mapping[str, Any]] = {}  # params of constants
        self.alike: dict[Any, Eqn] = {}  # the first of equal constants of one value
        self.specs: dict[Var, PartitionSpec] | None = None  # placements in types; None while no mesh has explicit axes
        self.typed: dict[Any, Any] = {}  # what is worked out of equations and the placements of their operands
        mesh = mesh_in_use()
        if mesh is not None:
            self.specs, self.mesh = {}, mesh
        self.memories: dict[Var, Memories] | None = None  # where values lie; None while all are in the devices' own memory
        self.moved: dict[Var, Var] = {}  # captured values behind the equation that says where they lie
        self.bodies: dict[Any, Any] = {}  # functions traced inside that capture values of this one (`trace/once.py`)
        self.copies: list[Copy] = []  # NumPy arrays whose elements became constants
        self.refs: dict[int, Held] = {}  # by id: those made outside that the function reads or writes (`trace/refs.py`)
        self.lent: list[Ref] = []  # those whose contents are arguments
        self.stand_ins: dict[int, tuple[Value, Tracer]] = {}  # by id of an array, or of another trace's Tracer
        self.transparent = knows  # JAX would run the function as it is
        outer = innermost()
        # Of code for single devices outside of jit: what all of them have in common, which Python may ask for.
        self.common: Common | None = outer.common.inside() if knows and outer is not None and outer.common is not None else None
        self.values = Values(self.builder, self.captured) if knows and (outer is None or outer.values is not None) else None
        # Of code for single devices: the mesh axes over which values vary (absent: over none), those over which all inputs do,
        # and values by what they vary over beside that. None elsewhere.
        self.varying: dict[Var, Axes] | None = {} if is_checked() else None
        self.everywhere = NOWHERE
        self.varied: dict[tuple[Var, Axes], Var] = {}

    def __enter__(self) -> Trace:
        push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        pop()
        self.ended = True

    def input(
        self,
        type: TensorType,
        weak: bool = False,
        name: str = "",
        hint: str = "",
        value: Value = None,
        varying: Axes = NOWHERE,
        sharding: NamedSharding | None = None,
        memory: str = DEVICE,
    ) -> Tracer:
        """A new input of the Program, as a Tracer. `name` is for errors, `hint` for the printed Program, `value` what it will
        be if that is known, `sharding` where its type says that it is, and in which `memory`."""
        var = self.builder.input(type, hint)
        self._vary(var, varying | self.everywhere)
        known = self.values or self.common
        if value is not None and known is not None:
            known.put(var, value)
        type_value(self, var, sharding)
        var = self._lying_in(memory, var)
        if self.specs is not None:
            var = pinned_input(self, var)
        if name:
            self.names[var] = name
        return Tracer(var, self, weak, None)

    def _lying_in(self, memory: str, var: Var) -> Var:
        """An input behind the equation that says in which memory it lies; itself where that is the devices' own."""
        if memory == DEVICE:
            return var
        there = behind_memory(self, var, memory)
        if self.specs is not None and var in self.specs:
            self.specs[there] = self.specs[var]
        if self.varying is not None and var in self.varying:
            self.varying[there] = self.varying[var]
        return there

    def lift(self, value: Value) -> Tracer:
        """A value of any kind that an operand may be, as a Tracer of this trace."""
        if isinstance(value, Tracer):
            if value.tracing is self:
                return value
            stand_in = stand_in_of(value)
            if stand_in is not None:
                return self.lift(stand_in)
            if not is_usable(value):
                return lifted(self, value)
            return Tracer(self.capture(value, value.type), self, value.weak_type, value.source)
        if isinstance(value, np.ndarray | np.generic):
            if id(value) in self.paths:
                return Tracer(self.capture(value, type_of(np.asarray(value))), self, False, None)
            return self._large(value) if is_large(value) else self._constant(value)
        info = concrete_info(value)
        if info is None:
            if type(value) is Ref:
                return self.lift(content_in(self, value))
            raise TypeError(f"{type(value).__name__} is not an array: {value!r}")
        stand_in = stand_in_of(value)
        if stand_in is not None:
            return self.lift(stand_in)
        return Tracer(self.capture(value, info[0]), self, info[1], None)

    def capture(self, value: Value, type: TensorType, like: Value = None) -> Var:
        """`like`: a value that varies and is placed as this one."""
        entry = self.captured.get(id(value))
        if entry is None:
            like = value if like is None else like
            entry = self.captured[id(value)] = (value, Var(type, ""))
            if self.varying is not None:
                self._vary(entry[1], varying_of(like) | self.everywhere)
            type_value(self, entry[1], sharding_in_type(like))
            name = self.paths.get(id(value))
            if name is None and isinstance(value, Tracer):
                name = value.tracing.names.get(value.variable)
            there = self._lying_in(memory_in_type(like), entry[1])
            if there is not entry[1]:
                self.moved[entry[1]] = there
            if name is not None:
                self.names[there] = name
        return self.moved.get(entry[1], entry[1])

    def _large(self, value: Any) -> Tracer:
        entry = self.large.get(id(value))
        if entry is None:
            entry = self.large[id(value)] = (value, put(np.array(value)))  # a copy, as of small ones
            self.copies.append(Copy(value, None))
        return self.lift(entry[1])

    def _constant(self, value: Any) -> Tracer:
        source = user_source()
        self.builder.source = source
        params = self._params_of(value)
        (var,) = self.builder.emit(REGISTRY["constant"], (), params)
        if type(value) is np.ndarray and value.flags.writeable:
            self.copies.append(Copy(value, params["value"]))
        return Tracer(var, self, False, source)

    def _params_of(self, value: Any) -> Mapping[str, Any]:
        """Those of a constant with a copy of the value, whose array the caller may change; one object for equal splats, which
        makes their equations alike by identity."""
        array = np.asarray(value)
        if array.size == 0 or not is_known_splat(array):
            return {"value": own(array)}
        key = array.dtype, array.shape, element_of(array).tobytes()
        params = self.splats.get(key)
        if params is None:
            params = self.splats[key] = {"value": own(array)}
        return params

    def splat(self, element: np.ndarray[Any, Any], shape: tuple[int, ...], weak_type: bool) -> Tracer:
        """A constant of this shape with the one element of an array of no dims everywhere."""
        key = element.dtype, shape, element.tobytes()
        like = self.alike.get(key)
        if like is None or self.varying is not None or self.memories is not None or self.specs is not None:
            tracer = self.emit(REGISTRY["constant"], (), {"value": splat(element, shape)}, weak_type)[0]
            if (eqn := self.builder.eqns[-1]).op is REGISTRY["constant"]:
                self.alike[key] = eqn
            return tracer
        self.builder.source = source = user_source()
        return Tracer(self.builder.repeat(like), self, weak_type, source)

    def emit(self, op: Op, operands: Sequence[Value], params: Mapping[str, Any], weak: bool | None) -> list[Tracer]:
        """Stage one equation. `weak` None: results are weak when all operands are, and of the first one's dtype."""
        tracers = [x if type(x) is Tracer and x.tracing is self else self.lift(x) for x in operands]
        source = user_source()
        self.builder.source = source
        if self.varying is not None and op.varying is None and op.regions is None:
            tracers = self.agreeing(tracers)
        if op is REGISTRY["constant"] and isinstance(params.get("value"), np.ndarray):
            params = self._params_of(params["value"])
        try:
            outputs = self.builder.emit(op, [t.variable for t in tracers], params)
        except TypeError as error:
            results = in_wider(op, tracers, params, REGISTRY, lambda each, xs, given: self.emit(each, xs, given, False))
            if results is None:
                raise located(error, source) from None
            return list(results)
        if self.varying is not None:
            operand_axes = [varying_of(t) for t in tracers]
            self._check_sums(op, operand_axes, tracers, source)
            axes = varying_results(self.builder.eqns[-1], operand_axes)
            for var, result in zip(outputs, axes, strict=True):
                self._vary(var, result)
        if self.memories is not None or op.memory is not None or op.regions is not None:
            note_memories(self, tracers, source, lambda t: f"{t.type}: {origin(t)}")
        if self.specs is not None:
            outputs = type_results(self, tracers, source)
        if weak is None:
            weak = bool(tracers) and all(t.weak_type for t in tracers)
            return [Tracer(v, self, weak and v.type.dtype == tracers[0].dtype, source) for v in outputs]
        return [Tracer(v, self, weak, source) for v in outputs]

    def inline(self, program: Program, operands: Sequence[Value], weak: Sequence[bool]) -> list[Tracer]:
        """Copy a Program's equations here; its lines stay those it was traced at."""
        tracers = [self.lift(x) for x in operands]
        first = len(self.builder.eqns)
        outputs = self.builder.inline(program, [t.variable for t in tracers])
        note_inlined(self, first)
        if self.specs is not None:
            type_inlined(self, first)
        if self.varying is not None:
            for var, axes in zip(outputs, varying_outputs(program, [varying_of(t) for t in tracers]), strict=True):
                self._vary(var, axes)
        source = user_source()
        return [Tracer(v, self, w, source) for v, w in zip(outputs, weak, strict=True)]

    def call(self, program: Program, operands: Sequence[Value], weak: Sequence[bool]) -> list[Tracer]:
        """One `call` equation, with a copy of the Program: every Var stands in one place."""
        results = self.emit(REGISTRY["call"], operands, {"body": copied(program)}, False)
        for tracer, flag in zip(results, weak, strict=True):
            tracer.weak_type = flag
        return results

    def agreeing(self, tracers: Sequence[Tracer], axes: Axes = NOWHERE) -> list[Tracer]:
        """The values, each varying over all axes over which any does, and over `axes`."""
        own = [varying_of(t) for t in tracers]
        everywhere = axes.union(*own)
        if all(everywhere == axes for axes in own):
            return [*tracers]
        everywhere = axes | with_mark(everywhere, "")
        return [self._varied(t, everywhere - axes) for t, axes in zip(tracers, own, strict=True)]

    def _varied(self, tracer: Tracer, axes: Axes) -> Tracer:
        """The value, varying over further axes; one equation for all uses, so that there is one sum backwards."""
        if not axes or self.varying is None:
            return tracer
        key = tracer.variable, axes
        if key not in self.varied:
            own, var = varying_of(tracer), tracer.variable
            if with_mark(own, UNREDUCED) & axes:
                raise ValueError(_addends_vary(tracer, axes))
            reduced, plain = with_mark(own, REDUCED) & axes, with_mark(axes, "")
            var = self._cast(var, "pcast", reduced, source=REDUCED, to="")
            var = self._cast(var, "pvary", plain.union(*(with_mark(axes, m) for m in (UNREDUCED, REDUCED))) - reduced)
            for mark in (UNREDUCED, REDUCED):
                var = self._cast(var, "pcast", with_mark(axes, mark), source="", to=mark)
            self._vary(var, (own | axes) - marked(reduced, REDUCED))
            self.varied[key] = var
        return Tracer(self.varied[key], self, tracer.weak_type, tracer.source)

    def _cast(self, var: Var, op: str, axes: Axes, **params: str) -> Var:
        if not axes:
            return var
        (cast,) = self.builder.emit(REGISTRY[op], [var], {"axes": tuple(sorted(axes)), **params})
        if self.specs is not None and var in self.specs:
            self.specs[cast] = self.specs[var]
        if self.memories is not None and var in self.memories:
            self.memories[cast] = self.memories[var]
        return cast

    def _check_sums(self, op: Op, axes: Sequence[Axes], operands: Sequence[Tracer], source: Source | None) -> None:
        """ShardingTypeError where an equation that is no collective takes addends otherwise than linearly."""
        if op.varying is None and op.regions is None and any(with_mark(a, UNREDUCED) for a in axes):
            eqn, specs = self.builder.eqns[-1], [sums_in(a) for a in axes]
            try:
                check_sums(eqn, specs)
            except Unclear as unclear:
                raise addends_not_taken(eqn, specs, unclear, source, lambda i: origin(operands[i])) from None

    def _vary(self, var: Var, axes: Axes) -> None:
        if axes and self.varying is not None:
            self.varying[var] = axes

    def require_mesh(self, mesh: Any, program: Program | None = None) -> None:
        """Note that this function needs `mesh`; two different ones in one function are an error. One without devices is the mesh
        of the context, or another one of this function, if it is that but for the devices."""
        mesh = named_mesh() if is_without_devices(mesh, named_mesh()) else mesh
        if mesh is None or mesh == self.mesh or is_without_devices(mesh, self.mesh):
            return
        if self._is_of_another_part(mesh, program):
            self.others += [mesh] if mesh not in self.others else []
            return
        source = user_source()
        if self.mesh is not None and not is_without_devices(self.mesh, mesh):
            raise ShardingError(
                f"{self.name} uses two meshes: {self.mesh} at {line_of(self.mesh_source)} and {mesh} at {line_of(source)}\n"
                f"  {why_apart(self.mesh, mesh, program)}\n"
                f"  fix: build every NamedSharding of {self.name} on the same mesh"
            )
        self.mesh, self.mesh_source = mesh, source

    @property
    def meshes(self) -> Any:
        """Its mesh; several, where values move between them."""
        return Meshes((self.mesh, *self.others)) if self.others else self.mesh

    def own_mesh(self, mesh: Any) -> Any:
        """In whose words `translated` says what is on this mesh, or on several."""
        return self.meshes if isinstance(mesh, Meshes) or not self.others else self.meshes.of(mesh) or self.mesh

    def _is_of_another_part(self, mesh: Any, program: Program | None) -> bool:
        """Whether what is on this mesh runs as a part of its own, as in JAX outside of jit: its devices are others, and values
        are there."""
        if self.values is None or self.specs is not None or not (isinstance(mesh, Mesh) and isinstance(self.mesh, Mesh)):
            return False
        known = Meshes((self.mesh, *self.others)).of(mesh)
        if mesh.explicit_axes or not (known is None or known == mesh):
            return False
        outer = [*self.values.outer_values(), *(value for value, _ in self.captured.values())]
        eqns = [*self.builder.eqns, *(() if program is None else program.eqns)]
        return known is not None or any(is_on(x, mesh) for x in outer) or any(moves_to(eqn, mesh) for eqn in eqns)

    def translated(self, program: Program, mesh: Any) -> Program:
        """A Program whose constraints name axes of `mesh`, with the axes of this function's mesh, which it is from now on if
        there was none. ShardingError where the two do not go together."""
        if isinstance(mesh, Meshes):
            for each in mesh:
                self.require_mesh(each, program)
            return program
        own = Meshes((self.mesh, *self.others)).of(mesh) if self.others else None
        if own is not None and own != self.mesh and (said := in_words_of(own, mesh, program)) is not None:
            return said
        translated = in_words_of(self.mesh, mesh, program)
        if translated is None or self.mesh is None or is_without_devices(self.mesh, mesh):
            self.require_mesh(mesh, program)
        if self.specs is None and is_explicit(governing(self.mesh)):
            self.specs = {}
        return program if translated is None else translated

    def value(self, var: Var) -> Value | None:
        """What a value of this trace is outside of jit, computed now if it was not before; None where nobody knows."""
        if self.values is None and self.common is None:
            return None
        with active(None):
            if self.common is not None:
                return self.common.of(self, var)
            assert self.values is not None
            return self.values.of(var, lambda eqn, operands: run_eqn(eqn, operands, self.meshes))

    def kept_array(self, tracer: Tracer) -> Value | None:
        """What Python kept of this trace, which has ended, as an array; None where it is none."""
        return kept_array(tracer)

    def is_differentiated(self, var: Var) -> bool:
        """Whether a derivative with respect to the function's arguments goes through this value."""
        if self.common is not None and traces.stack and traces.stack[0] is self:
            return False
        return self.values is None or self.values.is_differentiated(var)

    def build(self, outputs: Sequence[Tracer]) -> Program:
        """The Program; captured values are its last inputs."""
        program = self.builder.build([t.variable for t in outputs])
        extra = tuple(var for _, var in self.captured.values())
        return Program(program.name, program.inputs + extra, program.eqns, program.outputs)


def varying_of(value: Value) -> Axes:
    """The mesh axes over which a value varies in code for single devices; none that is not traced there."""
    varying = value.tracing.varying if isinstance(value, Tracer) else None
    return NOWHERE if varying is None else varying.get(value.variable, NOWHERE)


def _addends_vary(tracer: Tracer, axes: Axes) -> str:
    over = tuple(sorted(with_mark(varying_of(tracer), UNREDUCED) & axes))
    type = typed(tracer.type, None, varying_of(tracer))
    return (
        f"{type} is an unfinished sum over {', '.join(map(repr, over))}: {origin(tracer)}\n"
        f"  at {line_of(user_source())} it meets what varies over {tuple(sorted(axes))}, or is sent along it\n"
        f"  fix: lax.psum(x, {over}) or lax.psum_scatter before"
    )


def stand_in_of(value: Value) -> Tracer | None:
    """What an array or a Tracer of another trace is called where it was handed in (see `Trace.stand_ins`)."""
    for trace in reversed(traces.stack):
        if trace is not None and id(value) in trace.stand_ins:
            return trace.stand_ins[id(value)][1]
    return None


def located(error: TypeError, source: Source | None) -> TypeError:
    """The same error, its message followed by the user's line."""
    text = str(error)
    if source is not None and "\n  at " not in text:
        error.args = (f"{text}\n  at {line_of(source)}",)
    return error
