"""The values of what is traced outside of jit: `if x > 0`, `int(n)` and `print(x)` under grad, vjp, jvp and linearize.

Nothing is computed while a function is traced, until Python asks for a value. Then the equations that the value depends on run
outside of any trace, each once, and their results are kept for the next question. What depends on a value that there is none of,
such as a member of a batch or an argument of jit, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from meshjit.core.effects import is_pure
from meshjit.core.program import Builder, Eqn, Var
from meshjit.core.types import is_inexact
from meshjit.trace.evaluators import run_eqn
from meshjit.trace.thread import active
from meshjit.trace.tracer import Tracer

Value = Any  # concrete array, np.ndarray or np.generic
Captured = dict[int, tuple[Any, Var]]
Run = Callable[[Eqn, Sequence[Value]], Sequence[Value]]


class Values:
    """Those of one trace, whose equations are in `builder`. `captured` are its outer values with their Vars, by id."""

    __slots__ = ("_builder", "_captured", "_derived", "_makers", "_outer", "_values", "asked", "outlived")

    def __init__(self, builder: Builder, captured: Captured, derived: bool = True) -> None:
        """`derived`: a derivative with respect to the inputs may be taken."""
        self._builder, self._captured, self._derived = builder, captured, derived
        self._outer: dict[Var, Any] = {}  # inputs and captured values: what they are outside, maybe a Tracer
        self._makers: dict[Var, int] = {}  # by which equation
        self._values: dict[Var, Value] = {}
        self.outlived: dict[Var, Value] = {}  # arrays of values that Python kept when the trace had ended
        self.asked = False  # whether what was traced may be right for these values only

    def put(self, var: Var, outer: Any) -> None:
        """An input whose value is that of `outer`."""
        self._outer[var] = outer

    def outer_values(self) -> list[Any]:
        """What the inputs are outside."""
        return list(self._outer.values())

    def take(self, others: Values) -> None:
        """What others computed for the same Vars."""
        self._values.update(others._values)

    def of(self, var: Var, run: Run) -> Value | None:
        """The value, computed by `run(equation, operands)`; None where there is none."""
        needed = self._needed(var)
        if needed is None:
            return None
        for place in needed:
            eqn = self._builder.eqns[place]
            self._values.update(zip(eqn.outputs, run(eqn, [self._values[v] for v in eqn.inputs]), strict=True))
        return self._values[var]

    def _needed(self, var: Var) -> list[int] | None:
        """The equations, in order, that were not computed yet; None where one of them has an operand without a value, or an
        effect, which happens when the whole function runs."""
        self._see_new()
        needed: set[int] = set()
        waiting = [var]
        while waiting:
            v = waiting.pop()
            if v in self._values or self._makers.get(v) in needed:
                continue
            place = self._makers.get(v)
            if place is None:
                if not self._take(v):
                    return None
                continue
            if not is_pure(self._builder.eqns[place]):
                return None
            needed.add(place)
            waiting.extend(self._builder.eqns[place].inputs)
        return sorted(needed)

    def _take(self, var: Var) -> bool:
        """Take the value of an input, or of a captured value, from outside; whether there is one."""
        outer = self._outer.get(var)
        value = outer.tracing.value(outer.variable) if isinstance(outer, Tracer) else outer
        if value is None:
            return False
        self._values[var], self.asked = value, True
        return True

    def put_outer(self, var: Var, value: Value) -> None:
        """What a captured Ref held when it was captured."""
        self._see_new()
        self._outer[var] = value

    def _see_new(self) -> None:
        """The equations and captured values that came since the last question."""
        eqns, makers = self._builder.eqns, self._makers
        start = makers[next(reversed(makers))] + 1 if makers else 0
        for place in range(start, len(eqns)):
            makers.update(dict.fromkeys(eqns[place].outputs, place))
        for value, var in reversed(self._captured.values()):
            if var in self._outer:
                break
            self._outer[var] = value

    def is_differentiated(self, var: Var) -> bool:
        """Whether the derivative of what is traced goes through this value: read as a NumPy array, it would be lost."""
        self._see_new()
        seen: set[Var] = set()
        waiting = [var]
        while waiting:
            v = waiting.pop()
            if v in seen or not is_inexact(v.dtype):
                continue
            seen.add(v)
            place = self._makers.get(v)
            if place is not None:
                eqn = self._builder.eqns[place]
                waiting.extend(eqn.inputs if _passes_on(eqn, v) else ())
            elif self._is_differentiated_outside(v):
                return True
        return False

    def _is_differentiated_outside(self, var: Var) -> bool:
        outer = self._outer.get(var)
        if self._derived and var in self._builder.inputs and not (isinstance(outer, Tracer) and isinstance(outer.tracing, Known)):
            return True
        return isinstance(outer, Tracer) and outer.tracing.is_differentiated(outer.variable)


class Known:
    """Those of a Program that a pass writes, for custom rules that it asks: outside of jit a rule for a derivative is given
    values, as in JAX. `given` are those of the Builder's first inputs. It takes the place of a Trace in `Tracer`."""

    name, names, ended = "a derivative", dict[Var, str](), False
    specs = varying = memories = None

    def __init__(self, given: Sequence[Any], mesh: Any) -> None:
        self._given, self._mesh = given, mesh
        self._builder: Builder | None = None
        self._eqns: list[Eqn] | None = None
        self._values: Values | None = None

    def tell(self, builder: Builder) -> None:
        """From now on `builder`, which has its inputs, is asked about."""
        self._builder, builder.known = builder, self

    def tracers(self, operands: Sequence[Var]) -> list[Tracer]:
        """The Vars as what Python may ask for values."""
        return [Tracer(var, cast(Any, self), False, None) for var in operands]

    def value(self, var: Var) -> Value | None:
        with active(None):
            return self._current().of(var, lambda eqn, operands: run_eqn(eqn, operands, self._mesh))

    def is_differentiated(self, var: Var) -> bool:
        """By a derivative further out; the one that the rule is for has asked it."""
        return self._current().is_differentiated(var)

    def _current(self) -> Values:
        """The pass may have replaced the Builder's equations since the last question."""
        assert self._builder is not None
        if self._values is None or self._eqns is not self._builder.eqns:
            before, self._eqns = self._values, self._builder.eqns
            self._values = Values(self._builder, {}, derived=False)
            for var, value in zip(self._builder.inputs, self._given, strict=False):
                self._values.put(var, value)
            if before is not None:
                self._values.take(before)
        return self._values


def _passes_on(eqn: Eqn, result: Var) -> bool:
    """Whether a result has a derivative with respect to the operands, other than zero: floor and stop_gradient have none."""
    op = eqn.op
    if op.stops:
        return False
    if op.regions is not None or op.linear_groups(eqn.input_types, eqn.params):
        return True
    if not op.jvp:
        return False
    with Builder() as builder:
        operands = [builder.input(v.type) for v in eqn.inputs]
        tangents = [builder.input(v.type) if is_inexact(v.dtype) else None for v in eqn.inputs]
        outputs = builder.emit(op, operands, eqn.params)
        if all(t is None for t in tangents):
            return False
        return op.jvp(operands, tangents, outputs, eqn.params)[eqn.outputs.index(result)] is not None
