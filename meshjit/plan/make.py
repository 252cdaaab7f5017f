"""Program and annotations → Plan.

Four steps, each of which sees factor rules only, never which op it has:

1. propagate   seeds (annotated inputs, outputs, constraints) spread over the rules to a placement for every value;
2. assign      every equation picks, among the spreads of its factors that its values suggest, the one that costs least
               in resharding its operands and results;
3. delay       partial sums stay unreduced through equations that are linear in them, and are reduced once, where
               somebody needs the sum;
4. settle      where two annotations wanted the same axis, the other way is planned too, and the cheaper plan is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshjit.core.plan import EquationPlan, Plan, PlanCost
from meshjit.core.program import Program, Var
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import Flow, Machine
from meshjit.plan.delay import Delays
from meshjit.plan.rules import rule_of
from meshjit.plan.settle import settled
from sharding.mesh import BaseMesh
from sharding.placement import normalized
from sharding.propagate import Graph, Node, Propagated, Seed
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec, Placement, open_dims, placement_of
from sharding.topology import Topology


@dataclass(frozen=True)
class Annotations:
    """What the user said: one spec per input and output of the Program; None leaves it to the compiler."""

    inputs: Sequence[PartitionSpec | None]
    outputs: Sequence[PartitionSpec | None]


def make_plan(
    program: Program, mesh: BaseMesh, annotations: Annotations, topology: Topology | None = None
) -> Plan:
    """Placements for every value of `program` on `mesh`. Annotated values are placed exactly as annotated."""
    topology = topology or Topology.of(mesh)
    rules = [rule_of(eqn) for eqn in program.eqns]
    numbers = {var: i for i, var in enumerate(program.vars())}
    graph = _graph(program, rules, numbers, annotations, mesh)
    maker = _Maker(program, rules, numbers, annotations, Machine(mesh, topology))
    return settled(graph, mesh, maker.plan, topology.memory)


class _Maker:
    """Makes plans of one Program from what propagation found."""

    def __init__(
        self,
        program: Program,
        rules: Sequence[FactorRule],
        numbers: Mapping[Var, int],
        annotations: Annotations,
        machine: Machine,
    ) -> None:
        self.program, self.rules, self.numbers, self.annotations = program, rules, numbers, annotations
        self.machine, self.mesh = machine, machine.mesh
        self.assigner = Assigner(machine)

    def plan(self, found: Propagated) -> Plan:
        program, mesh = self.program, self.mesh
        placements = {var: found.placements[i] for var, i in self.numbers.items()}
        inputs = tuple(placements[v] for v in program.inputs)
        outputs = tuple(
            placements[v] if spec is None else normalized(_filled(spec, placements[v]), mesh)
            for v, spec in zip(program.outputs, self.annotations.outputs, strict=True)
        )
        outputs = tuple(p.without_partial() for p in outputs)
        equations, cost = self._equations(placements, inputs, outputs)
        origins, conflicts = _origins(found, self.numbers), tuple(found.conflicts)
        return Plan(
            program, mesh, placements, equations, inputs, outputs, origins, conflicts, self.machine.topology, cost
        )

    def _equations(
        self, placements: dict[Var, Placement], inputs: Sequence[Placement], outputs: Sequence[Placement]
    ) -> tuple[tuple[EquationPlan, ...], PlanCost]:
        """Assign every equation in order; placements of delayed partial sums are updated on the way."""
        delays, flow = Delays(self.program), Flow(self.program, self.machine)
        flow.start(inputs)
        steps: list[EquationPlan] = []
        for eqn, rule in zip(self.program.eqns, self.rules, strict=True):
            step = self.assigner.assign(eqn, rule, placements, flow.versions)
            step = delays.through(eqn, step, placements)
            flow.run(eqn, step)
            steps.append(step)
        for var, placement in zip(self.program.outputs, outputs, strict=True):
            flow.bring(var, placement)
        return tuple(steps), flow.cost()


def _graph(
    program: Program,
    rules: Sequence[FactorRule],
    numbers: Mapping[Var, int],
    annotations: Annotations,
    mesh: BaseMesh,
) -> Graph:
    nodes = [
        Node(rule, tuple(numbers[v] for v in eqn.inputs), tuple(numbers[v] for v in eqn.outputs), _label(eqn))
        for eqn, rule in zip(program.eqns, rules, strict=True)
    ]
    return Graph([v.shape for v in program.vars()], nodes, [], _seeds(program, numbers, annotations, mesh))


def _label(eqn: object) -> str:
    op, source = getattr(eqn, "op", None), getattr(eqn, "source", None)
    return f"{op} at {source}" if source else str(op)


def _seeds(
    program: Program, numbers: Mapping[Var, int], annotations: Annotations, mesh: BaseMesh
) -> dict[int, Seed]:
    """Inputs first, then constraints, then outputs: the first to speak about a value is its seed."""
    seeds: dict[int, Seed] = {}

    def add(var: Var, spec: PartitionSpec | None) -> None:
        if spec is not None and numbers[var] not in seeds:
            seeds[numbers[var]] = Seed(normalized(placement_of(spec, var.rank), mesh), open_dims(spec, var.rank))

    for var, spec in zip(program.inputs, annotations.inputs, strict=True):
        add(var, spec)
    for eqn in program.eqns:
        if eqn.op.seed is not None:
            add(eqn.outputs[0], eqn.op.seed(eqn.params))
    for var, spec in zip(program.outputs, annotations.outputs, strict=True):
        add(var, spec)
    return seeds


def _filled(spec: PartitionSpec, placement: Placement) -> Placement:
    """The spec's placement, its UNCONSTRAINED dims as propagation placed them, as far as axes are still free."""
    wanted = placement_of(spec, placement.rank)
    for dim, is_open in enumerate(open_dims(spec, placement.rank)):
        used = {str(axis) for axis in wanted.axes()}
        if is_open and not used & {str(axis) for axis in placement.dims[dim]}:
            wanted = wanted.with_dim(dim, placement.dims[dim])
    return wanted


def _origins(found: Propagated, numbers: Mapping[Var, int]) -> dict[object, object]:
    """Keyed by Var instead of number: (var, dim, axis) → where that axis came from."""
    names = {i: var for var, i in numbers.items()}
    return {(names[v], dim, axis): origin for (v, dim, axis), origin in found.origins.items()}
