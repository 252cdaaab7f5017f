"""A Program outside of jit whose values move to other devices on the way (`put`): its parts run one after the other.

In rounds: all equations whose operands are there run, as one Program for each row of devices, and then what is to be put
elsewhere is. What depends on arrays that nobody committed runs where those do that it meets, and by itself where it meets none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.site import Site
from meshjit.ops.base.annotations import put
from meshjit.runtime.array import Array
from meshjit.runtime.placing import default_sharding, device_put, device_row

Row = tuple[Any, ...] | None
Run = Callable[[Program, Sequence[Any], Sequence[bool]], Sequence[Any]]


def has_puts(program: Program) -> bool:
    return any(eqn.op is put for eqn in program.eqns)


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
    """`values`: of Vars so far. `pending`: equations that did not run, in order. Constants are equations of every part that
    reads them."""

    def __init__(self, program: Program, values: dict[Var, Any], run: Run) -> None:
        self.program, self.values, self.run = program, values, run
        self.constants = {eqn.outputs[0]: eqn for eqn in program.eqns if not eqn.inputs and len(eqn.outputs) == 1}
        self.pending = [eqn for eqn in program.eqns if eqn.inputs or len(eqn.outputs) != 1]

    def compute(self) -> None:
        """Everything that waits for no put."""
        rows: dict[Var, Row] = {}
        parts: dict[Row, list[Eqn]] = {}
        for eqn in self.pending:
            if eqn.op is not put and self._is_ready(eqn, rows):
                row = next((r for r in (self._row(v, rows) for v in eqn.inputs) if r is not None), None)
                parts.setdefault(row, []).append(eqn)
                rows.update(dict.fromkeys(eqn.outputs, row))
        done = {id(eqn) for eqns in parts.values() for eqn in eqns}
        self.pending = [eqn for eqn in self.pending if id(eqn) not in done]
        for row in sorted(parts, key=lambda row: row is not None):  # what is nobody's first: others read it
            self._run_part(parts[row], {v for other, eqns in parts.items() if other != row for eqn in eqns for v in eqn.inputs})

    def _is_ready(self, eqn: Eqn, rows: dict[Var, Row]) -> bool:
        """Whether its operands are there, or are made by a part that runs before its own or is its own."""
        made = [v for v in eqn.inputs if v in rows]
        if not all(v in rows or v in self.values or v in self.constants for v in eqn.inputs):
            return False
        known = {row for v in eqn.inputs if (row := self._row(v, rows)) is not None}
        return len(known) <= 1 or not made

    def _row(self, var: Var, rows: dict[Var, Row]) -> Row:
        if var in rows:
            return rows[var]
        value = self.values.get(var)
        return device_row(value.sharding) if isinstance(value, Array) and value.committed else None

    def _run_part(self, eqns: list[Eqn], read_beside: set[Var]) -> None:
        made = {v for eqn in eqns for v in eqn.outputs}
        read = {v for eqn in self.pending for v in eqn.inputs} | read_beside | {*self.program.outputs}
        outputs = tuple(v for eqn in eqns for v in eqn.outputs if v in read)
        self._run(eqns, outputs, {}, made)

    def _run(self, eqns: list[Eqn], outputs: tuple[Var, ...], weak: dict[Var, bool], made: set[Var]) -> None:
        inputs = dict.fromkeys(v for eqn in eqns for v in eqn.inputs if v not in made)
        own = [self.constants[v] for v in inputs if v in self.constants]
        given = tuple(v for v in inputs if v not in self.constants)
        part = Program(self.program.name, given, (*own, *eqns), outputs)
        results = self.run(part, [self.values[v] for v in given], [weak.get(v, False) for v in outputs])
        self.values.update(zip(outputs, results, strict=True))

    def put_all(self) -> None:
        """What is there to be put. A cotangent waits until the value that it belongs to was put, which says where it was."""
        puts = [eqn for eqn in self.pending if eqn.op is put]
        there = [eqn for eqn in puts if eqn.inputs[0] in self.values or eqn.inputs[0] in self.constants]
        backs = {eqn.params["back"] for eqn in puts}
        ready = [eqn for eqn in there if _is_known(eqn.params["to"]) or eqn.params["to"] not in backs]
        for eqn in ready or there:
            self._make_constants(eqn.inputs)
            self.values[eqn.outputs[0]] = put_one(self.values[eqn.inputs[0]], **eqn.params)
        done = {id(eqn) for eqn in ready or there}
        self.pending = [eqn for eqn in self.pending if id(eqn) not in done]

    def _make_constants(self, wanted: Sequence[Var]) -> None:
        missing = dict.fromkeys(v for v in wanted if v not in self.values)
        if missing:
            self._run([self.constants[v] for v in missing], tuple(missing), {}, set(missing))

    def finish(self, weak: dict[Var, bool]) -> None:
        """Results that are constants; and the flags of all."""
        self._make_constants(self.program.outputs)
        for v, flag in weak.items():
            value = self.values[v]
            if getattr(value, "weak_type", False) != flag or not isinstance(value, Array):
                self.values[v] = self.run(Program(self.program.name, (v,), (), (v,)), [value], [flag])[0]
