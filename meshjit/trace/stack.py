"""The stack of traces of each thread, and `bind`: the one door through which functions of arrays apply ops.

While a trace is active every op is staged, also one without traced operands. What an operand may be then:

    Tracer of this trace       its Var
    Tracer of an outer trace   captured: an extra input of the Program, added once, in order of first use
    concrete array             captured likewise (classes that `register_concrete` knows)
    np.ndarray in `paths`      captured likewise: an argument that reaches the function as it is, of another value each time
    np.ndarray, np.generic     a `constant` equation, with a copy of the elements; a large one becomes a concrete array first,
                               so that it is an input, which is sharded as others are and not a part of every device's program

Without a trace the op runs at once, through the evaluator that the runtime installed (`trace/evaluators.py`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import REGISTRY, Op
from meshjit.core.program import Builder, Program, Source, Var
from meshjit.core.region import copied
from meshjit.core.splat import element_of, is_known_splat, is_splat, own
from meshjit.core.types import TensorType, type_of
from meshjit.core.varying import NOWHERE, Axes, varying_outputs, varying_results
from meshjit.trace.evaluators import run_eqn, run_op, run_program
from meshjit.trace.explicit import mesh_in_use, pinned_input, sharding_in_type, type_inlined, type_results, type_value
from meshjit.trace.members import is_checked
from meshjit.trace.meshes import in_words_of, why_apart
from meshjit.trace.source import line_of, user_source
from meshjit.trace.tracer import Tracer, leaked
from meshjit.trace.values import Values
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec, ShardingError

Value = Any  # Tracer, concrete array, np.ndarray or np.generic


class Trace:
    """One function in the middle of being traced. A context manager: while entered it is the active trace.

    `knows`: Python may ask for its values, unless a function around it is traced whose values are not known."""

    __slots__ = (
        "name", "builder", "names", "paths", "captured", "large", "mesh", "mesh_source", "ended", "bodies", "splats", "values",
        "stand_ins", "specs", "varying", "everywhere", "varied",
    )  # fmt: skip

    def __init__(self, name: str, paths: Mapping[int, str] | None = None, knows: bool = False) -> None:
        self.name = name
        self.paths = paths or {}  # by id: paths of arrays among arguments that are no inputs
        self.builder = Builder(name)
        self.names: dict[Var, str] = {}  # of the inputs, for error messages
        self.captured: dict[int, tuple[Value, Var]] = {}  # by id of the value, which is kept alive here
        self.large: dict[int, tuple[Any, Value]] = {}  # NumPy arrays, likewise, and what they became
        self.mesh: Any = None
        self.mesh_source: Source | None = None
        self.ended = False
        self.splats: dict[Any, Mapping[str, Any]] = {}  # params of constants
        self.specs: dict[Var, PartitionSpec] | None = None  # placements in types; None while no mesh has explicit axes
        mesh = mesh_in_use()
        if mesh is not None:
            self.specs, self.mesh = {}, mesh
        self.bodies: dict[Any, Any] = {}  # what was traced inside once for several uses
        self.stand_ins: dict[int, tuple[Tracer, Tracer]] = {}  # by id of a Tracer of another trace: it, and what it is here
        outer = active_trace()
        self.values = Values(self.builder, self.captured) if knows and (outer is None or outer.values is not None) else None
        # Of code for single devices: the mesh axes over which values vary (absent: over none), those over which all inputs do,
        # and values by what they vary over beside that. None elsewhere.
        self.varying: dict[Var, Axes] | None = {} if is_checked() else None
        self.everywhere = NOWHERE
        self.varied: dict[tuple[Var, Axes], Var] = {}

    def __enter__(self) -> Trace:
        _push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _pop()
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
    ) -> Tracer:
        """A new input of the Program, as a Tracer. `name` is for errors, `hint` for the printed Program, `value` what it will
        be if that is known, `sharding` where its type says that it is."""
        var = self.builder.input(type, hint)
        self._vary(var, varying | self.everywhere)
        if value is not None and self.values is not None:
            self.values.put(var, value)
        type_value(self, var, sharding)
        if self.specs is not None:
            var = pinned_input(self, var)
        if name:
            self.names[var] = name
        return Tracer(var, self, weak, None)

    def lift(self, value: Value) -> Tracer:
        """A value of any kind that an operand may be, as a Tracer of this trace."""
        if isinstance(value, Tracer):
            if value.tracing is self:
                return value
            stand_in = _stand_in(value)
            if stand_in is not None:
                return self.lift(stand_in)
            _require_live(value)
            return Tracer(self._capture(value, value.type), self, value.weak_type, value.source)
        if isinstance(value, np.ndarray | np.generic):
            if id(value) in self.paths:
                return Tracer(self._capture(value, type_of(np.asarray(value))), self, False, None)
            return self._large(value) if _is_large(value) else self._constant(value)
        info = concrete_info(value)
        if info is None:
            raise TypeError(f"{type(value).__name__} is not an array: {value!r}")
        return Tracer(self._capture(value, info[0]), self, info[1], None)

    def _capture(self, value: Value, type: TensorType) -> Var:
        entry = self.captured.get(id(value))
        if entry is None:
            entry = self.captured[id(value)] = (value, Var(type, ""))
            if self.varying is not None:
                self._vary(entry[1], varying_of(value) | self.everywhere)
            type_value(self, entry[1], sharding_in_type(value))
            name = self.paths.get(id(value))
            if name is None and isinstance(value, Tracer):
                name = value.tracing.names.get(value.variable)
            if name is not None:
                self.names[entry[1]] = name
        return entry[1]

    def _large(self, value: Any) -> Tracer:
        entry = self.large.get(id(value))
        if entry is None:
            assert _put is not None
            entry = self.large[id(value)] = (value, _put(np.array(value)))  # a copy, as of small ones
        return self.lift(entry[1])

    def _constant(self, value: Any) -> Tracer:
        source = user_source()
        self.builder.source = source
        (var,) = self.builder.emit(REGISTRY["constant"], (), self._params_of(value))
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
            raise _located(error, source) from None
        if self.varying is not None:
            axes = varying_results(self.builder.eqns[-1], [varying_of(t) for t in tracers])
            for var, result in zip(outputs, axes, strict=True):
                self._vary(var, result)
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
        everywhere = axes.union(*(varying_of(t) for t in tracers))
        return [self._varied(t, everywhere - varying_of(t)) for t in tracers]

    def _varied(self, tracer: Tracer, axes: Axes) -> Tracer:
        """The value, varying over further axes; one equation for all uses, so that there is one sum backwards."""
        if not axes or self.varying is None:
            return tracer
        key = tracer.variable, axes
        if key not in self.varied:
            (self.varied[key],) = self.builder.emit(REGISTRY["pvary"], [tracer.variable], {"axes": tuple(sorted(axes))})
            self._vary(self.varied[key], varying_of(tracer) | axes)
        return Tracer(self.varied[key], self, tracer.weak_type, tracer.source)

    def _vary(self, var: Var, axes: Axes) -> None:
        if axes and self.varying is not None:
            self.varying[var] = axes

    def require_mesh(self, mesh: Any) -> None:
        """Note that this function needs `mesh`; two different ones in one function are an error."""
        if mesh is None or mesh == self.mesh:
            return
        source = user_source()
        if self.mesh is not None:
            raise ShardingError(
                f"{self.name} uses two meshes: {self.mesh} at {line_of(self.mesh_source)} and {mesh} at {line_of(source)}\n"
                f"  {why_apart(self.mesh, mesh)}\n"
                f"  fix: build every NamedSharding of {self.name} on the same mesh"
            )
        self.mesh, self.mesh_source = mesh, source

    def translated(self, program: Program, mesh: Any) -> Program:
        """A Program whose constraints name axes of `mesh`, with the axes of this function's mesh, which it is from now on if
        there was none. ShardingError where the two do not go together."""
        translated = in_words_of(self.mesh, mesh, program)
        if translated is None or self.mesh is None:
            self.require_mesh(mesh)
        return program if translated is None else translated

    def value(self, var: Var) -> Value | None:
        """What a value of this trace is outside of jit, computed now if it was not before; None where nobody knows."""
        if self.values is None:
            return None
        with _active(None):
            return self.values.of(var, lambda eqn, operands: run_eqn(eqn, operands, self.mesh))

    def is_differentiated(self, var: Var) -> bool:
        """Whether a derivative with respect to the function's arguments goes through this value."""
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


def vary(value: Value, axes: Axes) -> Value:
    """The value, taken to vary over these axes, too, where it is known which values vary."""
    trace = active_trace()
    if not axes or trace is None or trace.varying is None:
        return value
    return trace.agreeing([trace.lift(value)], axes)[0]


class _Traces(threading.local):
    def __init__(self) -> None:
        self.stack: list[Trace | None] = []  # None: ensure_compile_time_eval


_traces = _Traces()
traces = _traces  # for code that looks at `.stack` at every call; others ask `active_trace`
on_stack: list[Callable[[], None]] = []  # called in a thread whose stack of traces has another depth now
_concrete: dict[type, Callable[[Any], tuple[TensorType, bool] | None]] = {}
_put: Callable[[Any], Value] | None = None
LARGE = 1 << 20  # bytes


def _push(trace: Trace | None) -> None:
    _traces.stack.append(trace)
    for tell in on_stack:
        tell()


def _pop() -> None:
    _traces.stack.pop()
    for tell in on_stack:
        tell()


def depth() -> int:
    """How many functions are being traced in this thread, one inside of the other."""
    return len(_traces.stack)


def active_trace() -> Trace | None:
    """The innermost trace of this thread, or None when ops run at once."""
    stack = _traces.stack
    return stack[-1] if stack else None


def array_paths() -> Mapping[int, str]:
    """Paths by id of the arrays that reach the function which is being traced as they are (see `Trace.paths`)."""
    trace = active_trace()
    return trace.paths if trace is not None else {}


@contextlib.contextmanager
def ensure_compile_time_eval() -> Generator[None, None, None]:
    """Inside, ops on concrete values run at once, also while a function is traced (`jax.ensure_compile_time_eval`).

    Ops on traced values are staged as ever."""
    with _active(None):
        yield


@contextlib.contextmanager
def _active(trace: Trace | None) -> Generator[None, None, None]:
    _push(trace)
    try:
        yield
    finally:
        _pop()


def trace_for(values: Iterable[Value]) -> Trace | None:
    """The trace that stages an op on these values: the active one; inside ensure_compile_time_eval only if one is traced."""
    stack = _traces.stack
    if not stack or stack[-1] is not None:
        return stack[-1] if stack else None
    if any(isinstance(x, Tracer) for x in values):
        return next((trace for trace in reversed(stack) if trace is not None), None)
    return None


@contextlib.contextmanager
def staging(values: Iterable[Value]) -> Generator[Trace | None, None, None]:
    """Makes `trace_for(values)` the active trace."""
    trace = trace_for(values)
    with _active(trace) if trace is not None else contextlib.nullcontext():
        yield trace


def require_mesh(mesh: Any) -> None:
    """Record on the active trace, if there is one, that the function needs this mesh."""
    trace = active_trace()
    if trace is not None:
        trace.require_mesh(mesh)


def set_put(put: Callable[[Any], Value] | None) -> Callable[[Any], Value] | None:
    """Install what makes concrete arrays of large NumPy arrays; gives back what was installed before."""
    global _put
    before, _put = _put, put
    return before


def _is_large(value: Any) -> bool:
    """Whether a constant is worth an input of its own: a megabyte or more that is not one value throughout."""
    return _put is not None and value.nbytes >= LARGE and not is_splat(value)


def register_concrete(kind: type, type_and_weak: Callable[[Any], tuple[TensorType, bool] | None]) -> None:
    """Values of this class are concrete arrays: operands of ops, captured by traces. None: this one is not."""
    _concrete[kind] = type_and_weak


def concrete_info(value: Any) -> tuple[TensorType, bool] | None:
    """(type, weak) of an instance of a registered class, else None."""
    describe = _concrete.get(type(value))
    if describe is None:
        describe = next((_concrete[k] for k in type(value).__mro__[1:] if k in _concrete), None)
        if describe is None:
            return None
    return describe(value)


def type_and_weak(value: Value) -> tuple[TensorType, bool] | None:
    """(type, weak) of anything an operand may be, else None."""
    if isinstance(value, Tracer):
        return value.variable.type, value.weak_type
    if isinstance(value, np.ndarray | np.generic):
        return type_of(np.asarray(value)), False
    return concrete_info(value)


def bind(op: Op, *operands: Value, weak_type: bool | None = None, **params: Any) -> Any:
    """Apply an op: staged by the active trace, or run at once. One result comes bare, several as a tuple.

    Operands must already agree in dtype and shape as the op's type rule asks; promotion and broadcasting are the
    business of `meshjit.numpy`. A TypeError of the type rule names the user's line.
    """
    trace = active_trace() or trace_for(operands)
    if trace is not None:
        outputs: Sequence[Value] = trace.emit(op, operands, params, weak_type)
    else:
        outputs = _eager(op, operands, params, weak_type)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def bind_program(
    program: Program, operands: Sequence[Value], weak: Sequence[bool] | None = None, mesh: Any = None
) -> list[Value]:
    """Apply a whole Program: its equations are inlined into the active trace, or it runs at once.

    `mesh`: whose axes its constraints name, if it has any."""
    flags = [False] * len(program.outputs) if weak is None else list(weak)
    trace = active_trace() or trace_for(operands)
    if trace is not None:
        return list(trace.inline(trace.translated(program, mesh), operands, flags))
    _require_no_tracers(operands)
    return list(run_program(program, operands, flags, mesh))


def _eager(op: Op, operands: Sequence[Value], params: Mapping[str, Any], weak: bool | None) -> Sequence[Value]:
    _require_no_tracers(operands)
    infos = [type_and_weak(x) for x in operands]
    for value, info in zip(operands, infos, strict=True):
        if info is None:
            raise TypeError(f"{type(value).__name__} is not an array: {value!r}")
    types = tuple(info[0] for info in infos if info is not None)
    try:
        outputs = op.type_rule(types, params)
    except TypeError as error:
        raise _located(error, user_source()) from None
    if weak is None:
        weak = bool(infos) and all(info[1] for info in infos if info) and outputs[0].dtype == types[0].dtype
    return run_op(op, operands, params, weak)


def _require_no_tracers(operands: Sequence[Value]) -> None:
    for x in operands:
        if isinstance(x, Tracer):
            raise leaked(x)


def _stand_in(tracer: Tracer) -> Tracer | None:
    """What a Tracer of another trace is called where its value was handed in (see `Trace.stand_ins`)."""
    for trace in reversed(_traces.stack):
        if trace is not None and id(tracer) in trace.stand_ins:
            return trace.stand_ins[id(tracer)][1]
    return None


def _require_live(tracer: Tracer) -> None:
    if tracer.tracing.ended or tracer.tracing not in _traces.stack:
        raise leaked(tracer)


def _located(error: TypeError, source: Source | None) -> TypeError:
    """The same error, its message followed by the user's line."""
    text = str(error)
    if source is not None and "\n  at " not in text:
        error.args = (f"{text}\n  at {line_of(source)}",)
    return error
