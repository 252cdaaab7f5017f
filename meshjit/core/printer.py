"""Programs as text that a person can read and `parser.parse_program` reads back to the same Program.

    program main(%x: f32[8, 4], %w: f32[4, 16]) -> (f32[8, 16]) {
      %0: f32[8, 16] = dot_general(%x, %w) {contract=((1,), (0,)), batch=((), ())}  # train.py:31 mlp
      return %0
    }

With placements (a Plan's side map) types become `f32[8@data, 16@model]`, or `f32[8 | sum(model)]` for partial sums.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from meshjit.core.host import HostFunction
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Rule, programs_of
from meshjit.core.splat import element_of, is_splat
from meshjit.core.types import TensorType, short_name
from sharding.extent import extent_text
from sharding.spec import PartitionSpec, Placement

_INLINE_ELEMENTS = 16  # larger constants are printed as base64


def print_program(
    program: Program,
    placements: Mapping[Var, Placement] | None = None,
    *,
    sources: bool = True,
    elide: bool = False,
) -> str:
    """The Program's text. `elide` leaves out the contents of large constants (then it does not parse back)."""
    return _Printer(placements or {}, sources, elide).program(program)


def print_value(value: Any, elide: bool = False) -> str:
    """A param's value; the closed set that the parser knows."""
    return _Printer({}, True, elide).value(value)


class _Printer:
    def __init__(self, placements: Mapping[Var, Placement], sources: bool, elide: bool) -> None:
        self.placements = placements
        self.sources = sources
        self.elide = elide
        self.names: dict[Var, str] = {}
        self.taken: set[str] = set()
        self.depth = 0

    def program(self, program: Program) -> str:
        inputs = ", ".join(f"{self.name(v)}: {self.type(v)}" for v in program.inputs)
        outputs = ", ".join(self.type(v) for v in program.outputs)
        pad = "  " * self.depth
        self.depth += 1
        lines = [f"{pad}  {self.eqn(eqn)}" for eqn in program.eqns]
        self.depth -= 1
        returned = ", ".join(self.names[v] for v in program.outputs)
        tail = f"{pad}  return {returned}".rstrip()
        return "\n".join([f"program {program.name}({inputs}) -> ({outputs}) {{", *lines, tail, f"{pad}}}"])

    def name(self, var: Var) -> str:
        """The Var's hint if it is free, else a number; counting only unhinted Vars keeps texts stable."""
        name = f"%{var.hint}" if var.hint else f"%{len(self.names)}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        self.names[var] = name
        return name

    def type(self, var: Var) -> str:
        placement = self.placements.get(var)
        if placement is None:
            return print_type(var.type)
        return f"{short_name(var.type.dtype)}[{placement.annotate(var.type.shape)}]"

    def eqn(self, eqn: Eqn) -> str:
        inputs = ", ".join(self.names[v] for v in eqn.inputs)
        outputs = ", ".join(f"{self.name(v)}: {self.type(v)}" for v in eqn.outputs)
        params = ", ".join(f"{k}={self.value(v)}" for k, v in eqn.params.items())
        left = f"{outputs} = " if outputs else ""
        text = f"{left}{eqn.op.name}({inputs})" + (f" {{{params}}}" if params else "")
        return f"{text}  # {eqn.source}" if self.sources and eqn.source is not None else text

    def value(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if np.isfinite(value) else f"float({value})"
        if isinstance(value, np.dtype):
            return f"dtype({short_name(cast(Any, value))})"
        if isinstance(value, TensorType):
            return print_type(value)
        if isinstance(value, PartitionSpec):
            entries = ", ".join("*" if e is PartitionSpec.UNCONSTRAINED else self.value(e) for e in value)
            named = (("unreduced", value.unreduced), ("reduced", value.reduced))
            sums = "".join(f" {name} {self.value(tuple(sorted(axes)))}" for name, axes in named if axes)
            return f"P({entries}){sums}" + (f"/{self.value(value.priorities)}" if value.priorities else "")
        if isinstance(value, tuple):
            items = [self.value(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if isinstance(value, Program):
            return self.program(value)
        if isinstance(value, Rule):
            return f"rule({value.name!r})"
        if isinstance(value, np.ndarray):
            return self.array(cast(Any, value))
        if isinstance(value, HostFunction):
            results = "".join(f", {print_type(t)}" for t in value.results)
            return f"host({value.name!r}, {value.number}, {value.operands}{results})"
        raise TypeError(f"a param of type {type(value).__name__} cannot be printed: {value!r}")

    def array(self, array: np.ndarray[Any, Any]) -> str:
        type = print_type(TensorType(tuple(array.shape), array.dtype))
        if array.size > 1 and is_splat(array):
            return f"splat({type}, {element(element_of(array))})"
        raw = np.ascontiguousarray(array).reshape(-1)
        if array.size <= _INLINE_ELEMENTS:
            return f"array({type}, ({' '.join(f'{element(x)},' for x in raw)}))"
        if self.elide:
            return f"array({type}, …)"
        return f'array({type}, "{base64.b64encode(raw.tobytes()).decode()}")'


def print_type(type: TensorType) -> str:
    return f"{short_name(type.dtype)}[{', '.join(map(extent_text, type.shape))}]"


def element(x: Any) -> str:
    """One element, exactly: Python's repr of the value, or its bytes where repr would lose something (nan payloads)."""
    if x.dtype == np.bool_:
        return str(bool(x))
    if x.dtype.kind in "iu":
        return str(int(x))
    if x.dtype.kind != "c" and np.isfinite(np.float64(x)):
        return repr(float(x))
    return f"bits({x.tobytes().hex()})"


def names_of(program: Program) -> dict[Var, str]:
    """The names that values have in the text of a Program, nested ones included."""
    printer = _Printer({}, False, True)
    _name(printer, program)
    return printer.names


def root_of(path: str) -> str:
    """The argument that a leaf belongs to: `state[0]['w']` → `state`."""
    return path.partition("[")[0].partition(".")[0]


def _name(printer: _Printer, program: Program) -> None:
    """Name values in the order in which the text does, without writing it."""
    for var in program.inputs:
        printer.name(var)
    for eqn in program.eqns:
        for var in eqn.outputs:
            printer.name(var)
        for nested in programs_of(eqn.params) if eqn.op.regions is not None else ():
            _name(printer, nested)
