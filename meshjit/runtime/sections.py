"""A Program outside of jit whose values move to other devices on the way (`put`): its parts run one after the other.

In rounds: all equations whose operands are there run, as one Program for each row of devices, and then what is to be put
elsewhere is. What depends on arrays that nobody committed runs where those do that it meets, and by itself where it meets none.
Constraints are on the mesh of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import run_programs, with_regions_changed
from meshjit.core.site import Site
from meshjit.ops.base.annotations import copy, optimization_barrier, put
from meshjit.runtime.array import Array
from meshjit.runtime.placing import default_sharding, device_put, device_row
from meshjit.transform.inline_calls import inline_calls

Row = tuple[Any, ...] | None
Run = Callable[[Program, Sequence[Any], Sequence[bool]], Sequence[Any]]


def has_puts(program: Program) -> bool:
    return any(eqn.op is put for eqn in program.eqns)


def with_puts_outside(program: Program) -> Program:
    """The same Program with what is moved inside of checkpoints and custom rules moved outside of them, where it is seen. What
    each of its rows computes is a Program by itself, so nothing is left for barriers to keep apart."""
    if not any(_moves(eqn) for eqn in program.eqns):
        return program
    whole = inline_calls(program, final=True)
    eqns = [each for eqn in whole.eqns for each in (_copies(eqn) if eqn.op is optimization_barrier else [eqn])]
    return Program(whole.name, whole.inputs, tuple(eqns), whole.outputs)


def _moves(eqn: Eqn) -> bool:
    """Whether this is a call whose body, or a call in it, puts a value elsewhere."""
    if eqn.op.written_out is None:
        return False
    return any(has_puts(body) or any(map(_moves, body.eqns)) for body in run_programs(eqn))


def _copies(barrier: Eqn) -> list[Eqn]:
    return [Eqn(copy, (x,), (y,), {}, barrier.source) for x, y in zip(barrier.inputs, barrier.outputs, strict=True)]


def put_one(value: Any, to: int, back: int) -> Any:
    """The value where `to` says, and from now on known at `back`; where it is, if nothing is known of `to`."""
    if isinstance(back, Site) and back.sharding is None:
        back.sharding = value.sharding if isinstance(value, Array) and value.committed else default_sharding()
    sharding = to.known() if isinstance(to, Site) else None
    return value if sharding is None else device_put(value, sharding)


def run_in_sections(program: Program, operands: Sequence[Any], weak: Sequence[bool], run: Run) -> list[Any]:
    """The results. `run(program, operands, weak)` runs a part on one row of devices."""
    sections = _Sections(program, dict(zip(program.inputs, operands, strict=True)), run)
    while sections.pending:
        sections.compute()
        sections.put_all()
    flags = dict(zip(program.outputs, weak, strict=True))
    sections.finish(flags)
    return [sections.values[v] for v in program.outputs]


def _is_known(site: int) -> bool:
    return isinstance(site, Site) and site.known() is not None


class _Sections:
    """`values`: of Vars so far. `pending`: equations that did not run, in order. What no committed array is in floats: it is
    computed in every part that reads it, as constants are."""

    def __init__(self, program: Program, values: dict[Var, Any], run: Run) -> None:
        self.program, self.values, self.run = program, values, run
        self.pending = list(program.eqns)
        self.places = {id(eqn): place for place, eqn in enumerate(program.eqns)}
        self.floating: dict[Var, Eqn] = {}

    def compute(self) -> None:
        """Everything that waits for no put."""
        rows: dict[Var, Row] = {}
        parts: dict[Row, list[Eqn]] = {}
        waiting: list[Eqn] = []
        for eqn in self.pending:
            if eqn.op is put or not self._is_ready(eqn, rows):
                waiting.append(eqn)
                continue
            row = next((r for r in (self._row(v, rows) for v in eqn.inputs) if r is not None), None)
            if row is None and is_pure(eqn) and not any(v in rows for v in eqn.inputs):
                self.floating.update(dict.fromkeys(eqn.outputs, eqn))
            else:
                parts.setdefault(row, []).append(eqn)
                rows.update(dict.fromkeys(eqn.outputs, row))
        self.pending = waiting
        for row in sorted(parts, key=lambda row: row is not None):  # what is nobody's first: others read it
            self._run_part(parts[row], [eqn for other, eqns in parts.items() if other != row for eqn in eqns])

    def _is_ready(self, eqn: Eqn, rows: dict[Var, Row]) -> bool:
        """Whether its operands are there, or are made by a part that runs before its own or is its own."""
        if not all(v in rows or v in self.values or v in self.floating for v in eqn.inputs):
            return False
        known = {row for v in eqn.inputs if (row := self._row(v, rows)) is not None}
        return len(known) <= 1 or not any(v in rows for v in eqn.inputs)

    def _row(self, var: Var, rows: dict[Var, Row]) -> Row:
        if var in rows:
            return rows[var]
        value = self.values.get(var)
        return device_row(value.sharding) if isinstance(value, Array) and value.committed else None

    def _run_part(self, eqns: list[Eqn], beside: list[Eqn]) -> None:
        read = {v for eqn in (*self.pending, *self.floating.values(), *beside) for v in eqn.inputs} | {*self.program.outputs}
        self._run(eqns, [v for eqn in eqns for v in eqn.outputs if v in read])

    def _run(self, eqns: Sequence[Eqn], outputs: Sequence[Var]) -> None:
        whole = self._with_floating(eqns, outputs)
        made = {v for eqn in whole for v in eqn.outputs}
        given = tuple(dict.fromkeys(v for eqn in whole for v in eqn.inputs if v not in made))
        part = Program(self.program.name, given, tuple(whole), tuple(outputs))
        results = self.run(part, [self.values[v] for v in given], [False] * len(outputs))
        self.values.update(zip(outputs, results, strict=True))

    def _with_floating(self, eqns: Sequence[Eqn], outputs: Sequence[Var]) -> list[Eqn]:
        """These equations and all floating ones that they or these results need, in order."""
        found = {id(eqn): eqn for eqn in eqns}
        own = {v for eqn in eqns for v in eqn.outputs}
        waiting = [*outputs, *(v for eqn in eqns for v in eqn.inputs)]
        while waiting:
            v = waiting.pop()
            eqn = None if v in self.values or v in own else self.floating.get(v)
            if eqn is not None and id(eqn) not in found:
                found[id(eqn)] = eqn
                waiting.extend(eqn.inputs)
        return sorted(found.values(), key=lambda eqn: self.places[id(eqn)])

    def put_all(self) -> None:
        """What is there to be put. A cotangent waits until the value that it belongs to was put, which says where it was."""
        puts = [eqn for eqn in self.pending if eqn.op is put]
        there = [eqn for eqn in puts if eqn.inputs[0] in self.values or eqn.inputs[0] in self.floating]
        backs = {eqn.params["back"] for eqn in puts}
        ready = [eqn for eqn in there if _is_known(eqn.params["to"]) or eqn.params["to"] not in backs] or there
        self._settle([eqn.inputs[0] for eqn in ready])
        for eqn in ready:
            self.values[eqn.outputs[0]] = put_one(self.values[eqn.inputs[0]], **eqn.params)
        done = {id(eqn) for eqn in ready}
        self.pending = [eqn for eqn in self.pending if id(eqn) not in done]

    def _settle(self, wanted: Sequence[Var]) -> None:
        """Compute what floats."""
        missing = list(dict.fromkeys(v for v in wanted if v not in self.values))
        if missing:
            self._run([], missing)

    def finish(self, weak: dict[Var, bool]) -> None:
        """Results that float; and the flags of all."""
        self._settle(self.program.outputs)
        for v, flag in weak.items():
            value = self.values[v]
            if getattr(value, "weak_type", False) != flag or not isinstance(value, Array):
                self.values[v] = self.run(Program(self.program.name, (v,), (), (v,)), [value], [flag])[0]


def without_constraints(program: Program) -> Program:
    """The Program, in which values are where they are computed."""
    eqns = [Eqn(copy, e.inputs, e.outputs, {}, e.source) if e.op.seed is not None else e for e in program.eqns]
    eqns = [e if e.op.pinned is not None else with_regions_changed(e, without_constraints) for e in eqns]
    return Program(program.name, program.inputs, tuple(eqns), program.outputs)
