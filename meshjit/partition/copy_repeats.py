"""Write repeats once: the local equations of the others are copies of the first one's.

The key is all that partitioning a repeat reads of its surroundings: how its equations are computed, and which versions the values
from outside have. The Template is what it wrote: local equations whose operands are numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Builder, Eqn, Program, Source, Var
from meshjit.core.repeats import Repeat, numbers_of_constants, repeats
from meshjit.core.versions import Versions
from meshjit.partition.bodies import Body, body_of, with_calls
from meshjit.partition.moves import Moves
from sharding.placement import Placement

# Of a local Var: its number among those that the repeat makes, (position, placement) of a version, or the axes of an index.
Name = Any


@dataclass(frozen=True)
class Template:
    """What a repeat is written as. Positions count its inner values, then its outer ones."""

    eqns: tuple[tuple[Eqn, tuple[Name, ...]], ...]
    versions: tuple[tuple[int, tuple[tuple[Placement, Name], ...]], ...]
    indices: tuple[tuple[Any, int], ...]  # axes along which the repeat asks where the device stands for the first time
    made: tuple[tuple[int, int, int, EquationPlan], ...]  # position, bytes, number of the equation and its plan
    body: Body | None = None  # if it is written as calls

    @property
    def escaping(self) -> tuple[int, ...]:
        """The numbers of values that are read behind the repeat, as far as it makes them."""
        names = [name for _, versions in self.versions for _, name in versions] + [name for _, name in self.indices]
        return tuple(sorted({name for name in names if isinstance(name, int)}))


class Copies:
    """Writes the repeats of one Program with a partitioner's state."""

    def __init__(self, program: Program, versions: Versions[Var], builder: Builder, moves: Moves) -> None:
        self.program, self.state, self.builder, self.moves = program, versions, builder, moves
        self.repeats = {repeat.start: repeat for repeat in repeats(program)}
        self.constants = numbers_of_constants(program) if self.repeats else {}
        self.times = Counter(repeat.kind for repeat in self.repeats.values())
        self.templates: dict[Any, Template] = {}

    def write(
        self, repeat: Repeat, plans: Sequence[EquationPlan], sources: Mapping[Var, Source | None], write: Callable[[], None]
    ) -> None:
        """Write a repeat that is computed as `plans` say; `write` does so where none of its kind is there to copy."""
        key = self.key(repeat, plans, sources)
        template = self.templates.get(key)
        if template is not None:
            return self.copy(repeat, template)
        start, indices = len(self.builder.eqns), dict(self.moves.indices)
        write()
        template = self.template(repeat, start, indices)
        if template is not None:
            times, moves = self.times[repeat.kind], self.moves
            body = body_of(template.eqns, start, template.escaping, times, moves.mesh, moves.topology)
            self.templates[key] = replace(template, body=body)
        return None

    def finish(self) -> None:
        """After the last equation: the first repeats of their kinds become calls like the others."""
        with_calls(self.builder.eqns, [template.body for template in self.templates.values() if template.body is not None])

    def key(self, repeat: Repeat, plans: Sequence[EquationPlan], sources: Mapping[Var, Source | None]) -> Any:
        """All that writing the repeat depends on, and which of the local values that it may read are the same."""
        versions = [self.state.versions[v] for v in repeat.outer]
        numbers: dict[Var, int] = {}
        same = [numbers.setdefault(local, len(numbers)) for each in (self.moves.indices, *versions) for local in each.values()]
        outer = [(tuple(each), self.maker(v), sources.get(v)) for v, each in zip(repeat.outer, versions, strict=True)]
        return repeat.kind, tuple(map(id, plans)), tuple(outer), tuple(same), tuple(self.moves.indices)

    def maker(self, var: Var) -> Any:
        """How the value is made again, which the repeat may write. Constants of other numbers have the same plan."""
        maker = self.state.makers.get(var)
        return None if maker is None else (id(maker[1]), self.constants[var])

    def template(self, repeat: Repeat, start: int, indices: Mapping[Any, Var]) -> Template | None:
        """What was written since the builder had `start` equations, with indices that it had by then; None where it used what
        belongs to neither the repeat nor its outer values."""
        state, values, written = self.state, (*repeat.inner, *repeat.outer), self.builder.eqns[start:]
        names: dict[Var, Name] = {var: axes for axes, var in indices.items()}
        for i, var in enumerate(repeat.outer, len(repeat.inner)):
            names.update((local, (i, placement)) for placement, local in state.versions[var].items())
        names.update((v, n) for n, v in enumerate(v for eqn in written for v in eqn.outputs))
        inner = {v: i for i, v in enumerate(repeat.inner)}
        makers = {v: n for n, e in enumerate(self.program.eqns[repeat.start : repeat.stop]) for v in e.outputs}
        live = sorted({inner[v] for v in state.with_makers([repeat.inner[i] for i in repeat.escaping]) if v in inner})
        positions = [*live, *range(len(inner), len(values))]
        try:
            return Template(
                tuple([(eqn, tuple([names[v] for v in eqn.inputs])) for eqn in written]),
                tuple([(i, tuple([(p, names[v]) for p, v in state.versions[values[i]].items()])) for i in positions]),
                tuple([(axes, names[var]) for axes, var in self.moves.indices.items() if axes not in indices]),
                tuple([(i, state.cheap[v], makers[v], state.makers[v][1]) for i in live if (v := values[i]) in state.cheap]),
            )
        except KeyError:
            return None

    def copy(self, repeat: Repeat, template: Template) -> None:
        state, values, results = self.state, (*repeat.inner, *repeat.outer), dict[int, Var]()

        def local(name: Name) -> Var:
            if isinstance(name, int):
                return results[name]
            return state.versions[values[name[0]]][name[1]] if _is_version(name) else self.moves.indices[name]

        if template.body is not None:
            results |= template.body.call(list(map(local, template.body.inputs)), self.builder)
        for eqn, names in template.eqns if template.body is None else ():
            outputs = tuple([Var(v.type, v.hint) for v in eqn.outputs])
            self.builder.eqns.append(Eqn(eqn.op, tuple(map(local, names)), outputs, eqn.params, eqn.source))
            results.update(enumerate(outputs, len(results)))
        self.moves.indices.update((axes, results[number]) for axes, number in template.indices)
        versions = [(values[i], {p: local(name) for p, name in by_placement}) for i, by_placement in template.versions]
        state.versions.update(versions)
        for i, size, number, plan in template.made:
            state.cheap[values[i]], state.makers[values[i]] = size, (self.program.eqns[repeat.start + number], plan)


def _is_version(name: Name) -> bool:
    return len(name) == 2 and isinstance(name[1], Placement)
