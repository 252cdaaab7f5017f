"""What all devices have in common, as a value: `if lax.psum(x, "data") > 0` in shard_map outside of jit.

There a value that varies over no mesh axis can be told to Python, as in JAX, since it is one value; what differs from device to
device cannot. Nothing is computed until Python asks. Then the part of the function that the value depends on runs as a function
of shards of its own, and the answer is kept for the next question. A derivative that is taken inside of the function asks the
function around it for what it has of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.ref import Ref
from meshjit.trace.tracer import Tracer

Value = Any
Trace = Any  # of trace/tracing.py, which reads this file


@dataclass(frozen=True)
class Operand:
    """The shards of one of the function's arguments, by its number."""

    number: int


Run = Callable[[Program, Sequence[Any]], Value | None]


class Common:
    """Those of one trace. `run(program, operands)` gives the one result of a Program of shards that is the same on all devices;
    operands are values that all devices have, and Operands. None where one of these has no value."""

    __slots__ = ("_around", "_outer", "_run", "_values", "asked")

    def __init__(self, run: Run, around: Common | None = None) -> None:
        self._run, self._around = run, around
        self._outer: dict[Var, Any] = {}  # what the inputs are
        self._values: dict[Var, Value] = {}
        self.asked = False  # whether what was traced may be right for these values only

    def inside(self) -> Common:
        """Of a trace in this one."""
        return Common(self._run, self)

    def put(self, var: Var, outer: Any) -> None:
        self._outer[var] = outer

    def of(self, trace: Trace, var: Var) -> Value | None:
        """The value; None where it varies, and where there is none."""
        if trace.ended or trace.varying is None or trace.varying.get(var):
            return None
        if var not in self._values:
            part = self.part(trace, var)
            value = None if part is None else self._run(part.program(trace.name), list(part.leaves.values()))
            if value is None:
                return None
            self._values[var] = value
        self._note_asked()
        return self._values[var]

    def _note_asked(self) -> None:
        """What the traces around this one are of depends on it, too."""
        self.asked = True
        if self._around is not None:
            self._around._note_asked()

    def part(self, trace: Trace, var: Var) -> Part | None:
        """What a value depends on, through all traces around this one; None where that is an effect, a Ref or unknown."""
        makers = {v: place for place, eqn in enumerate(trace.builder.eqns) for v in eqn.outputs}
        around = {v: value for value, v in trace.captured.values()} | self._outer
        part, places, waiting = Part(var), set[int](), [var]
        while waiting:
            v = waiting.pop()
            place = makers.get(v)
            if place is None:
                if v not in part.known and not part.take(v, around.get(v)):
                    return None
            elif place not in places:
                places.add(place)
                waiting.extend(trace.builder.eqns[place].inputs)
        eqns = [trace.builder.eqns[place] for place in sorted(places)]
        part.add(eqns)
        return part if all(map(is_pure, eqns)) else None


class Part:
    """Equations in order, and what they read: Vars with the value that all devices have, or an Operand."""

    def __init__(self, result: Var) -> None:
        self.result = result
        self.eqns: dict[Var, Eqn] = {}  # by the first output
        self.leaves: dict[Var, Any] = {}
        self.known: dict[Var, Var] = {}  # Vars of an inner trace → what they are in this part

    def take(self, var: Var, outer: Any) -> bool:
        """Take what a Var is around its trace; whether that is anything."""
        inner = outer.tracing.common if isinstance(outer, Tracer) and hasattr(outer.tracing, "common") else None
        if inner is not None:
            part = inner.part(outer.tracing, outer.variable)
            if part is None:
                return False
            self.eqns.update(part.eqns)
            self.leaves.update(part.leaves)
            self.known[var] = part.result
            return True
        value = outer.tracing.value(outer.variable) if isinstance(outer, Tracer) else outer
        if value is None or isinstance(value, Ref):
            return False
        self.leaves[var], self.known[var] = value, var
        return True

    def add(self, eqns: Sequence[Eqn]) -> None:
        for eqn in eqns:
            self.eqns[eqn.outputs[0]] = replace(eqn, inputs=tuple(self.known.get(v, v) for v in eqn.inputs))
        self.result = self.known.get(self.result, self.result)

    def program(self, name: str) -> Program:
        return Program(name, tuple(self.leaves), tuple(self.eqns.values()), (self.result,))
