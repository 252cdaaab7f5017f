"""What custom_jvp and custom_vjp have in common: a call of the function becomes one equation, whose rules are traced when asked.

A rule is traced after the functions around it have ended, and may use what these computed. So the traced values and the arrays
that a rule or the function itself can reach become operands of the equation ("closed"), and the rule's trace knows them by these
operands: an array is an input of the program, and stays sharded, also where only a rule uses it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.attached import Attached
from meshjit.core.needed import needed_by
from meshjit.core.program import Builder, Program, Var
from meshjit.core.ref import Ref
from meshjit.core.region import Rule
from meshjit.core.types import TensorType, is_inexact
from meshjit.lax.regions import Leaves, captured_first, leaves_of, trace_region
from meshjit.numpy.filling import zeros_of
from meshjit.numpy.promote import ops
from meshjit.ops.control.custom import closed_over
from meshjit.trace import Argument, Traced, Tracer, active_trace, argument_of, concrete_info, trace_for, trace_to_program
from meshjit.trace.float0 import FLOAT0, without_float0
from meshjit.trace.members import DeviceAxis, MemberAxis, named_axes, under
from meshjit.trace.names import function_name, parameter_names, wraps
from meshjit.trace.outlived import array_of, is_usable, outlives
from meshjit.trace.reads import global_values
from meshjit.trace.refs import Held, content_of, refs_in
from meshjit.trace.tracing import Trace, stand_in_of
from meshjit.trace.types import ShapedArray
from meshjit.transform.derivable import derivable
from meshjit.trees import USERS, WORDS as tree

Function = Callable[..., Any]


class SymbolicZero:
    """A tangent or cotangent that is zero, in rules with symbolic_zeros=True (`jax.custom_derivatives.SymbolicZero`)."""

    def __init__(self, aval: Any) -> None:
        self.aval = ShapedArray(aval.shape, aval.dtype) if isinstance(aval, TensorType) else aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype if is_inexact(self.aval.dtype) else FLOAT0)
    ndim = property(lambda self: len(self.aval.shape))
    size = property(lambda self: self.aval.size)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval})"

    @staticmethod
    def from_primal_value(value: Any) -> SymbolicZero:
        return SymbolicZero(argument_of(value).type)


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangents of a tree of values: arrays of zeros of their shapes, or SymbolicZeros (`jax.custom_derivatives`)."""
    return USERS.map(SymbolicZero.from_primal_value if symbolic_zeros else lambda x: zeros_of(argument_of(x)), val)


class CustomFunction:
    """A function with rules of its own. Its attributes are those of the function."""

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()) -> None:
        wraps(fun)(self)
        self.fun = fun
        names = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        parameters = list(inspect.signature(fun).parameters) if names else []
        unknown = [name for name in names if name not in parameters]
        if unknown:
            takes = f"{function_name(fun)} takes {', '.join(parameters)}"
            raise ValueError(f"{self.what}: nondiff_argnames has {unknown[0]!r}, {takes}")
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else nondiff_argnums
        self.nondiff_argnums = tuple(sorted({*numbers, *(parameters.index(name) for name in names)}))

    what = "a custom rule"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        """The methods that give a function that this one is made of its rules: `custom_vmap(custom_jvp(f)).defjvp`."""
        if name in _DEFINING and isinstance(self.fun, CustomFunction):
            return getattr(self.fun, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{self.what} of {function_name(self.fun)}>"


_DEFINING = frozenset({"defjvp", "defjvps", "defvjp", "def_vmap"})


def positional(fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> tuple[Any, ...]:
    """The arguments by position, with the defaults of those that have one; TypeError where they do not fit the function, or one
    that is given has no position."""
    try:
        if isinstance(fun, functools.partial):  # whose own arguments have no position
            raise ValueError
        signature = inspect.signature(fun)
    except (ValueError, TypeError):
        if kwargs:
            raise TypeError(f"{what}: {function_name(fun)} has no signature that could place {', '.join(kwargs)}") from None
        return args
    try:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = [name for name in bound.kwargs if name in kwargs]
        if named:
            raise TypeError(f"keyword arguments could not be resolved to positions: {', '.join(named)}")
    except TypeError as error:
        raise TypeError(
            f"The input arguments to the {what}-decorated function {function_name(fun)} could not be resolved to "
            f"positional-only arguments. Binding failed with the error:\n{error}"
        ) from None
    return bound.args


@dataclass(frozen=True)
class CustomCall:
    """fun(*args), traced. `closed` are the values that the function and its rules close over, the first operands of
    the equation; the leaves of the arguments that can be differentiated follow."""

    name: str
    traced: Traced
    closed: list[Any]
    leaves: Leaves
    axes: tuple[MemberAxis | DeviceAxis, ...]  # named axes around the call, which its rules see when they are traced
    knows: bool  # whether Python may ask for values there: outside of jit and vmap
    slots: tuple[Ref, ...] = ()  # of the refs that bwd may write to: the last leaves, behind those of the arguments

    @property
    def body(self) -> Program:
        body = captured_first(self.traced, self.closed)
        return body.with_inputs([*body.inputs, *(Var(slot.type) for slot in self.slots)])

    def rule(self, name: str, make: Function, seeing: Function) -> Rule:
        """A rule of the user's: make(*question), or with operands whose values are known seeing(operands, *question)."""
        return Rule(name, make, seeing=seeing if self.knows else None)

    @property
    def operands(self) -> list[Any]:
        return [*self.closed, *self.leaves.values]

    @property
    def types(self) -> list[TensorType]:
        return [*(argument_of(x).type for x in self.closed), *self.leaves.types]

    @property
    def counts(self) -> dict[str, int]:
        """The op's params that tell the operands apart."""
        return {"consts": len(self.traced.captured), "closed": len(self.closed)}

    def require_arguments_only(self, program: Program, flags: Sequence[bool], kind: str) -> None:
        """A rule's Program may not compute with a closed value that has a tangent; `flags` say which operands have."""
        computed_with = needed_by(program.with_outputs([v for v in program.outputs if v not in program.inputs]))
        if any(flag and v in computed_with for v, flag in zip(program.inputs, flags[: len(self.closed)], strict=False)):
            raise closed_over(kind, self.name)

    @property
    def out_tree(self) -> Any:
        return self.traced.out_tree

    @property
    def out_types(self) -> Sequence[TensorType]:
        return self.traced.program.output_types


def custom_call(fun: Function, args: tuple[Any, ...], static: Sequence[int], rules: Iterable[Function]) -> CustomCall | None:
    """The call of `fun`; arguments at the positions `static` reach it as they are. None where nothing is traced."""
    if active_trace() is None and trace_for(tree.leaves([x for i, x in enumerate(args) if i not in static])) is None:
        return None
    args = tuple([x if i in static else without_float0(x) for i, x in enumerate(args)])
    name = function_name(fun)
    leaves = _named(fun, args, static)
    function = with_static(fun, args, static)
    traced = trace_region(function, leaves.arguments, *_trees(args, static), name=name, operands=leaves.values)
    trace = active_trace()
    values = None if trace is None else trace.values
    if values is not None:
        values.asked = True  # by the rules, maybe, once a derivative is
    closed = list(traced.captured)
    seen = {id(x) for x in closed}
    axes = named_axes()
    numbers = [axis.number for axis in axes if isinstance(axis, MemberAxis)]
    refs = refs_in(args) if Ref.made else []
    reached = {id(x): x for x in (*refs, *arrays_in([fun, *rules, *(args[i] for i in static), *numbers]))}
    closed += [x for x in reached.values() if id(x) not in seen and is_live(x)]
    return CustomCall(name, traced, closed, leaves, axes, values is not None)


def is_live(x: Any) -> bool:
    """Whether a rule can still use it: no Tracer of a trace that has ended or runs elsewhere, which a library may keep."""
    return not isinstance(x, Tracer) or is_usable(x) or stand_in_of(x) is not None or outlives(x)


def _trees(args: Sequence[Any], static: Sequence[int]) -> list[Any]:
    return [tree.structure(x) for i, x in enumerate(args) if i not in static]


def _named(fun: Function, args: Sequence[Any], static: Sequence[int]) -> Leaves:
    names = parameter_names(fun, len(args))
    groups = [leaves_of(x, names[i]) for i, x in enumerate(args) if i not in static]
    whole = tuple(x for i, x in enumerate(args) if i not in static)
    return Leaves([v for g in groups for v in g.values], [a for g in groups for a in g.arguments], tree.structure(whole))


def with_static(fun: Function, args: Sequence[Any], static: Sequence[int]) -> Function:
    """fun as a function of the other arguments."""
    if not static:
        return fun

    def of_rest(*rest: Any) -> Any:
        values = iter(rest)
        return fun(*(args[i] if i in static else next(values) for i in range(len(args))))

    return of_rest


# -- the traced values and arrays that a function can reach


def arrays_in(values: Iterable[Any]) -> Iterator[Any]:
    """The Tracers and arrays that functions close over, directly or by other functions, methods, partials and containers, once
    each; and those among the globals that they and functions of their module name."""
    seen: dict[int, Any] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen[id(value)] = value
        if isinstance(value, Tracer | Ref) or concrete_info(value) is not None:
            yield value
        else:
            waiting += _parts(value)


# A Program is closed: what rules in it reach are the operands of their equations.
_PLAIN = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, type, type(inspect), Attached, Trace, Program)


def _parts(value: Any) -> list[Any]:
    """What a value holds: cells and defaults of a function, elements of containers, attributes of objects."""
    if inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_set(cell)]
        own = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *vars(value).values()]
        return [*cells, *own, *filter(_is_array_or_function, global_values(value))]
    if inspect.ismethod(value):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    slots = [getattr(value, name, None) for kind in type(value).__mro__ for name in _slots(kind)]
    return [*getattr(value, "__dict__", {}).values(), *slots]


def _is_array_or_function(value: Any) -> bool:
    kinds = Ref | functools.partial | CustomFunction
    return concrete_info(value) is not None or inspect.isfunction(value) or isinstance(value, kinds)


def _slots(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # assigned later
        return False


# -- rules


def traced_rule(
    rule: Function, call: CustomCall, arguments: Sequence[Argument], name: str, operands: Sequence[Any] = ()
) -> tuple[Program, Sequence[Argument]]:
    """(closed values, then the arguments) -> what rule(*arguments) returns, as a Program; and its results as arguments.

    `operands`: the first of its inputs, whose values Python may ask for outside of jit."""
    closed = call.closed

    def of_all(*inputs: Any) -> Any:
        trace = active_trace()
        assert trace is not None
        for value, here in zip(closed, inputs, strict=False):
            if isinstance(value, Ref):
                trace.refs[id(value)] = Held(value, here, apart=True)
            trace.stand_ins[id(value)] = (value, here)
        return rule(*inputs[len(closed) :])

    everything = [*(argument_of(x) for x in closed), *arguments]
    in_tree = tree.structure(((0,) * len(everything), {}))
    with under(call.axes):
        values = [*(operands or closed), *[None] * (len(everything) - len(operands or closed))]
        traced = trace_to_program(of_all, everything, in_tree, name, operands=values)
    return _closed(traced), traced.out_arguments


def _closed(traced: Traced) -> Program:
    """The Program as derivatives need it, with what it captured besides as constants."""
    return with_constants(derivable(traced.program), traced.captured)


def with_constants(program: Program, captured: Sequence[Any]) -> Program:
    """The Program with its last inputs, which stand for arrays that it closes over, as constants. Tracers are an error."""
    if not captured:
        return program
    with Builder(program.name) as builder:
        own = program.inputs[: len(program.inputs) - len(captured)]
        constants = [_constant(x) for x in captured]
        return builder.build(builder.inline(program, [*(builder.input(v.type, v.hint) for v in own), *constants]))


def _constant(value: Any) -> Any:
    value = content_of(value) if isinstance(value, Ref) else value
    if isinstance(value, Tracer):
        value = array_of(value)
    return ops("constant")(value=np.asarray(value))


def has_tangent(type: TensorType) -> bool:
    return is_inexact(type.dtype)
