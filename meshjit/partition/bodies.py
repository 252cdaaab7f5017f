"""Long repeats are calls of one body, which later passes, checks and emission see once.

    a = dot(x, w1);  b = tanh(a);  c = dot(b, w2);  d = tanh(c)     ->     b = repeated(x, w1) {body};  d = repeated(b, w2) {body}

Not so where a pass may have to look beyond the body's ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshjit.core.effects import is_pure
from meshjit.core.program import Builder, Eqn, Program, Source, Var
from meshjit.ops.control.repeated import repeated
from meshjit.transform.cse import cse
from meshjit.transform.reaching import is_reaching
from sharding.mesh import BaseMesh
from sharding.topology import Topology

WORTH: Final = 256  # equations that are spared; for fewer a text in one piece is easier to read


@dataclass(eq=False)
class Body:
    """The `first` equations of a kind as a Program, whose inputs and outputs have these names."""

    params: Mapping[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]  # numbers among the values that the equations make
    first: tuple[int, int]  # where the equations stand that it was made of
    operands: tuple[Var, ...]  # what these read
    results: tuple[Var, ...]
    source: Source | None
    calls: int = 0

    def call(self, operands: Sequence[Var], builder: Builder) -> dict[int, Var]:
        """Add a call; the values that it gives, by number."""
        self.calls += 1
        outputs = tuple([Var(v.type, v.hint) for v in self.results])
        builder.eqns.append(self.equation(operands, outputs))
        return dict(zip(self.outputs, outputs, strict=True))

    def equation(self, operands: Sequence[Var], outputs: Sequence[Var]) -> Eqn:
        return Eqn(repeated, tuple(operands), tuple(outputs), self.params, self.source)


def body_of(
    eqns: Sequence[tuple[Eqn, tuple[Any, ...]]],
    start: int,
    outputs: Sequence[int],
    times: int,
    mesh: BaseMesh,
    topology: Topology,
) -> Body | None:
    """The body of equations and the names that they read, numbers for what they make themselves. They stand at `start`, and there
    are so many `times` of them. None where they stay as they are."""
    if (times - 1) * len(eqns) < WORTH or not all(is_pure(eqn) for eqn, _ in eqns):
        return None
    if is_reaching([eqn for eqn, _ in eqns], mesh, topology):
        return None
    inputs = {name: v for eqn, names in eqns for name, v in zip(names, eqn.inputs, strict=True) if not isinstance(name, int)}
    made = [v for eqn, _ in eqns for v in eqn.outputs]
    program = Program("repeated", tuple(inputs.values()), tuple([eqn for eqn, _ in eqns]), tuple([made[n] for n in outputs]))
    with Builder("repeated") as builder:
        results = builder.inline(program, [builder.input(v.type, v.hint) for v in program.inputs])
        body = cse(builder.build(results), constants=True)
    span = start, start + len(eqns)
    return Body({"body": body}, tuple(inputs), tuple(outputs), span, program.inputs, program.outputs, eqns[0][0].source)


def with_calls(eqns: list[Eqn], bodies: Sequence[Body]) -> None:
    """Put a call in the place of the equations that a body was made of, where there are other calls of it."""
    for body in sorted(bodies, key=lambda body: -body.first[0]):
        if body.calls:
            eqns[slice(*body.first)] = [body.equation(body.operands, body.results)]
