"""Stretches of equations that are alike: found, and planned once."""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, tree
from meshjit.core.op import REGISTRY
from meshjit.core.plan import Plan
from meshjit.core.printer import print_program
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import run_programs
from meshjit.core.repeats import repeats
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.emit.module import emit
from meshjit.ops.control.repeated import repeated
from meshjit.partition import bodies, copy_repeats
from meshjit.partition.partition import partition
from meshjit.partition.watch import partition_watched
from meshjit.plan import cost, equations, uses
from meshjit.plan.assign import EQUAL, Assigner
from meshjit.plan.automatic.domain import Along, Plans
from meshjit.plan.automatic.layers import copies_of
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.prescribe import prescribe
from meshjit.plan.automatic.price_list import PriceList
from meshjit.plan.cost import Machine
from meshjit.plan.draft import first_draft
from meshjit.plan.events import Choice
from meshjit.plan.graph import flatten
from meshjit.plan.lifetimes import Lifetimes
from meshjit.plan.make import Annotations, make_plan
from meshjit.runtime.lowering import lower
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import target_of
from meshjit.trace import Argument, trace_to_program
from meshjit.transform.cse import cse
from meshjit.transform.pipeline import clean, simplify
from meshjit.transform.rewriting import Rewriter, everywhere, rewrite
from sharding.graph import Seed
from sharding.mesh import AbstractMesh
from sharding.propagation import propagate
from tests.tools.laws import check_law

MESH = AbstractMesh((4, 2), ("x", "y"))
SPECS = (P("x", "y"), P("y", "x"), P("x", None), P(None, "y"), P(None, None), None)


def traced(step: Any, types: list[str]) -> Program:
    arguments = [Argument(TensorType.parse(t), False, f"x{i}") for i, t in enumerate(types)]
    in_tree = tree.structure((tuple(range(len(types))), {}))
    return simplify(trace_to_program(step, arguments, in_tree).program)


def network(layers: int) -> Program:
    """A step of gradient descent of a network of so many layers; inputs: an up and a down matrix per layer, then the rows."""

    def loss(weights: Any, x: Any) -> Any:
        for up, down in weights:
            x = x + mnp.dot(mnp.tanh(mnp.dot(x, up)), down)
        return mnp.mean(x * x)

    def step(*leaves: Any) -> Any:
        weights = [(leaves[2 * i], leaves[2 * i + 1]) for i in range(layers)]
        gradient = mj.grad(loss)(weights, leaves[-1])
        return tree.map(lambda w, g: w - 0.1 * g, weights, gradient)

    return traced(step, [*("f32[64,256]", "f32[256,64]") * layers, "f32[128,64]"])


def annotated(layers: int) -> Annotations:
    specs = [P("x", "y"), P("y", "x")] * layers
    return Annotations([*specs, P("x", None)], specs)


def random_program(draw: random.Random) -> tuple[Program, Annotations]:
    """Several equal layers of drawn ops, maybe with the gradient, under drawn placements."""
    ops = ("dot", "back", "tanh", "sum", "turn", "twice", "norm", "mask", "loop")
    kinds = [draw.choice(ops) for _ in range(draw.randint(2, 6))]
    layers, size = draw.randint(3, 6), draw.choice((16, 24, 30))

    def layer(x: Any, w: Any, v: Any) -> Any:
        for kind in kinds:
            x = {
                "dot": lambda x: mnp.dot(x, w),
                "back": lambda x: mnp.dot(mnp.dot(x, w), w.T) + x,
                "tanh": mnp.tanh,
                "sum": lambda x: x + mnp.sum(x * v, axis=1, keepdims=True),
                "turn": lambda x: mnp.dot(x.T, w).T + v,
                "twice": lambda x: mnp.dot(x, w) + mnp.dot(x, w * 2.0),
                "norm": lambda x: x / (1.0 + mnp.sqrt(mnp.mean(x * x, axis=0))),
                "mask": lambda x: mnp.where(mnp.arange(size)[:, None] < 5, x, v),
                "loop": lambda x: mj.lax.scan(lambda x, row: (mnp.tanh(mnp.dot(x, w) + row), None), x, w[:3])[0],
            }[kind](x)
        return x

    def loss(weights: Any, x: Any) -> Any:
        for w, v in weights:
            x = layer(x, w, v)
        return mnp.sum(x * x)

    def step(*leaves: Any) -> Any:
        weights = [(leaves[2 * i], leaves[2 * i + 1]) for i in range(layers)]
        if not draws_gradient:
            return loss(weights, leaves[-1])
        gradient = mj.grad(loss)(weights, leaves[-1])
        return tree.map(lambda w, g: w * 0.9 - 0.1 * g / (1.0 + g * g), weights, gradient)

    draws_gradient = draw.random() < 0.7
    program = traced(step, [*(f"f32[{size},{size}]", f"f32[{size}]") * layers, f"f32[{size},{size}]"])
    of_layer = [draw.choice(SPECS), draw.choice((P("x"), P("y"), P(None), None))]
    specs = [draw.choice(SPECS) if len(v.shape) == 2 and draw.random() < 0.1 else None for v in program.inputs]
    given = [own or spec for own, spec in zip(specs, [*of_layer * layers, draw.choice(SPECS)], strict=True)]
    return program, Annotations(given, [None] * len(program.outputs))


def described(plan: Plan) -> list[Any]:
    """All that a plan says, with the cost to the last bit."""
    places = [plan.placements[v] for v in plan.program.vars()]
    steps = [(step.rule, dict(step.assignment), step.operands, step.results) for step in plan.equations]
    events = [(e.eqn, e.options()) if isinstance(e, Choice) else e for e in plan.events]
    return [places, steps, plan.inputs, plan.outputs, plan.cost, plan.collectives, events]


@pytest.mark.parametrize("seed", range(24))
def test_plans_are_the_same_as_without_recalling(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, annotations = random_program(random.Random(seed))
    plan = make_plan(program, MESH, annotations)
    monkeypatch.setattr(uses, "repeats", lambda program: ())
    assert described(plan) == described(make_plan(program, MESH, annotations))


def decoder(layers: int) -> Program:
    """The gradient of layers that all read what an encoder made: its cotangent is a sum that grows from layer to layer."""

    def loss(weights: Any, context: Any, x: Any) -> Any:
        context = mnp.tanh(mnp.dot(context, weights[0]))
        for query, key, value in zip(weights[1::3], weights[2::3], weights[3::3], strict=True):
            scores = mnp.tanh(mnp.dot(mnp.dot(x, query), mnp.dot(context, key).T))
            x = x + mnp.dot(scores, mnp.dot(context, value))
        return mnp.mean(x * x)

    def step(*leaves: Any) -> Any:
        return mj.grad(loss)(list(leaves[:-2]), leaves[-2], leaves[-1])

    return traced(step, [*["f32[64,64]"] * (3 * layers + 1), "f32[96,64]", "f32[32,64]"])


@pytest.mark.parametrize("weights", [P("x", "y"), P("y", "x"), P(None, "y")])
@pytest.mark.parametrize("rows", [P("x", None), P(None, "y"), P(None, None)])
def test_layers_behind_which_a_sum_grows_are_planned_once(weights: P, rows: P, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, plan_equation = Counter[int](), equations.Planner.equation

    def counted(self: equations.Planner, eqn: Eqn, course: Any) -> Any:
        planned[len(course.program.eqns)] += 1
        return plan_equation(self, eqn, course)

    def make(layers: int) -> Plan:
        specs = [weights] * (3 * layers + 1)
        return make_plan(decoder(layers), MESH, Annotations([*specs, rows, rows], [None] * len(specs)))

    with monkeypatch.context() as patch:
        patch.setattr(equations.Planner, "equation", counted)
        few, many = make(6), make(12)
    each = [planned[len(plan.program.eqns)] / (1 + len(plan.trials)) for plan in (few, many)]
    assert each[1] < each[0] + (len(many.program.eqns) - len(few.program.eqns)) / 6, "one layer more"
    monkeypatch.setattr(uses, "repeats", lambda program: ())
    again = make_plan(few.program, MESH, Annotations([*[weights] * 19, rows, rows], [None] * 19))
    assert described(few) == described(again)


@pytest.mark.parametrize("seed", range(6))
def test_plans_with_the_tables_of_another_plan_are_the_same(seed: int) -> None:
    """Of the same Program under other annotations, and of one with a constraint more."""
    draw = random.Random(seed)
    program, annotations = random_program(draw)
    like = make_plan(program, MESH, annotations)
    specs = [
        draw.choice(SPECS) if v.rank == 2 and draw.random() < 0.3 else s
        for v, s in zip(program.inputs, annotations.inputs, strict=True)
    ]
    others = Annotations(specs, annotations.outputs)
    assert described(make_plan(program, MESH, others, like=like)) == described(make_plan(program, MESH, others))
    with_constraint = constrained(program, draw)
    again = make_plan(with_constraint, MESH, annotations, like=like)
    assert described(again) == described(make_plan(with_constraint, MESH, annotations))
    assert described(make_plan(program, MESH, annotations, like=like)) == described(like), "nothing was written into its tables"


def constrained(program: Program, draw: random.Random) -> Program:
    """With one of its matrices behind a constraint."""
    at = draw.choice([i for i, eqn in enumerate(program.eqns) if eqn.outputs[0].rank == 2])
    var = program.eqns[at].outputs[0]
    pinned = Var(var.type)
    constraint = Eqn(REGISTRY["sharding_constraint"], (var,), (pinned,), {"spec": draw.choice(SPECS[:-1])})
    later = [eqn.with_inputs(tuple(pinned if v is var else v for v in eqn.inputs)) for eqn in program.eqns[at + 1 :]]
    outputs = [pinned if v is var else v for v in program.outputs]
    return Program(program.name, program.inputs, (*program.eqns[: at + 1], constraint, *later), tuple(outputs))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_chosen_costs_about_the_least_of_all(seed: int) -> None:
    """Also of those whose price was not worked out, as it could not be less."""
    program, annotations = random_program(random.Random(seed))
    plan = make_plan(program, MESH, annotations)
    plans = dict(zip(program.eqns, plan.equations, strict=True))
    options = [event.options() for event in plan.events if isinstance(event, Choice)]
    assert all(each[0][1] <= EQUAL * min(seconds for _, seconds in each) for each in options)
    assert all(e.options()[0][0] is plans[e.eqn] for e in plan.events if isinstance(e, Choice) and e.eqn in plans)


@pytest.mark.parametrize("seed", range(24))
def test_propagation_is_the_same_as_without_repeats(seed: int) -> None:
    """Placements, origins and conflicts, in their order; with seeds on values in the middle, too, and of several priorities."""
    draw = random.Random(seed)
    program, annotations = random_program(draw)
    graph = flatten(program, annotations, MESH).graph
    for _ in range(3):
        ours, plain = propagate(graph, MESH), propagate(dataclasses.replace(graph, repeats=()), MESH)
        assert graph.repeats and ours.placements == plain.placements
        assert ours.conflicts == plain.conflicts
        assert list(ours.origins.items()) == list(plain.origins.items())
        assert [o.path for o in ours.origins.values()] == [o.path for o in plain.origins.values()]
        value = draw.randrange(len(graph.shapes))
        seed_ = Seed(ours.placements[value], (True,) * len(graph.shapes[value]), draw.choice((0, 0, 1)))
        graph = dataclasses.replace(graph, seeds={**graph.seeds, value: seed_})


@pytest.mark.parametrize("seed", range(12))
def test_lifetimes_are_the_same_as_of_every_equation(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at each equation, and at some of them which versions are only kept."""
    program, annotations = random_program(random.Random(seed))
    plan = make_plan(program, MESH, annotations)
    draw = random.Random(seed)
    undonated = frozenset(v for v in program.inputs if draw.random() < 0.5)

    def lifetimes() -> tuple[Any, Any]:
        machine = cost.Machine(MESH, target_of(MESH), undonated)
        own = Lifetimes(program, machine, plan.equations, plan.inputs, plan.outputs)
        held = own.held_bytes()
        kept = [set(own.kept(at)) for at in (held.index(max(held)), *range(0, len(held), 7))]
        assert own.held_bytes() == held
        return held, kept

    recalled = lifetimes()
    monkeypatch.setattr(uses, "repeats", lambda program: ())
    assert recalled == lifetimes()


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("worth", [0, 10**9], ids=["called", "copied"])
def test_local_programs_are_the_same_as_without_copying(seed: int, worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, annotations = random_program(random.Random(seed))
    plan = make_plan(program, MESH, annotations)
    monkeypatch.setattr(bodies, "WORTH", worth)
    local = partition(plan)
    assert verify(local) and (worth == 0 or not calls(local))
    monkeypatch.setattr(copy_repeats, "repeats", lambda program: ())
    assert print_program(written_out(local), sources=True) == print_program(partition(plan), sources=True)


@pytest.mark.parametrize("worth", [0, 10**9], ids=["called", "copied"])
def test_constants_from_outside_are_made_again_with_their_own_numbers(worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The equations between two constants are alike, which read the one before them."""

    def power(x: Any, y: Any) -> Any:
        result = mnp.ones_like(x)
        for bit in range(8):
            result = mnp.where((y >> bit) & 1 != 0, result * x, result)
            x = x * x
        return result

    monkeypatch.setattr(bodies, "WORTH", worth)
    program = traced(power, ["i32[1,6]", "i32[1,6]"])
    assert len({repeat.kind for repeat in repeats(program)}) < len(repeats(program))
    x, y = np.array([[6, 4, 6, 1, 4, 3]], np.int32), np.array([[6, 2, 5, 6, 5, 4]], np.int32)
    for spec in (P("x"), P("x", "y"), P(None, "x")):
        check_law(program, MESH, [spec, spec], [None], [x, y])


def calls(program: Program) -> int:
    return sum((eqn.op is repeated) + sum(map(calls, run_programs(eqn))) for eqn in program.eqns)


def written_out(program: Program) -> Program:
    """Bodies in the place of their calls, and the constants that all of them have once."""

    def change(program: Program) -> Program:
        def rule(eqn: Eqn, here: Rewriter) -> Any:
            return here.inline(eqn.params["body"], eqn.inputs)

        return rewrite(program, {"repeated": rule})

    return cse(everywhere(program, change), constants=True)


def test_equal_layers_are_calls_of_one_body() -> None:
    """The text is that of the equations one by one, but for constants, which every body has of its own."""
    lowering = lower(network(32), MESH, annotated(32))
    assert calls(lowering.local) > 40
    assert len({id(eqn.params["body"]) for eqn in lowering.local.eqns if eqn.op is repeated}) < 12
    plain = emit(clean(written_out(lowering.local), target_of(MESH)), MESH)
    ours, theirs = (Counter(re.findall(r'"(\w+\.\w+)"\(', text)) for text in (lowering.text, plain))
    constants = (ours.pop("stablehlo.constant"), theirs.pop("stablehlo.constant"))
    assert ours == theirs and constants[0] > constants[1]


def test_all_values_of_equal_layers_can_be_watched() -> None:
    plan = make_plan(network(6), MESH, annotated(6))
    assert [var for var, _ in partition_watched(plan).values] == [v for eqn in plan.program.eqns for v in eqn.outputs]


def test_bodies_hold_no_equation_whose_neighbours_a_pass_must_see() -> None:
    """Borders of several steps, and updates of what is still read, stay where passes see them."""

    def steps(x: Any) -> Any:
        for _ in range(40):
            y = mnp.roll(x, 1) + mnp.roll(x, -1) - 2.0 * x
            x = x + mnp.tanh(y * 0.25) * mnp.exp(-x * x) + mnp.sin(y)
        return x

    local = partition(make_plan(traced(steps, ["f32[64]"]), MESH, Annotations([P("x")], [P("x")])))
    assert not calls(local) and any(eqn.op.name == "collective_permute" for eqn in local.eqns)


SWAP = ((0, 0), (1, 2), (2, 1), (3, 3))


@pytest.mark.parametrize(
    "extent, op, params, pairs, is_body",
    [
        (512, "tanh", {}, SWAP, True),
        (8, "tanh", {}, SWAP, False),  # might be merged with one of another layer
        (8, "all_reduce", {"axes": ("x",), "kind": "sum"}, SWAP, True),  # but not before this sum is there
        (512, "tanh", {}, SWAP[:3], False),  # might be paired with one that the last device sends in
        (512, "slice", {"start": (0, 0), "limit": (512, 512), "strides": (1, 1)}, SWAP, False),  # with another part
        (512, None, {}, SWAP, False),
    ],
)
def test_bodies_hold_permutes_that_no_pass_puts_together(
    extent: int, op: str | None, params: dict[str, Any], pairs: Any, is_body: bool
) -> None:
    with Builder("layer") as builder:
        x = builder.input(TensorType.parse(f"f32[{extent},{extent}]"))
        made = x if op is None else REGISTRY[op](x, **params)
        REGISTRY["tanh"](REGISTRY["collective_permute"](made, pairs=pairs))
    numbers = {v: n for n, v in enumerate(v for eqn in builder.eqns for v in eqn.outputs)}
    eqns = [(eqn, tuple(numbers.get(v, "x") for v in eqn.inputs)) for eqn in builder.eqns]
    mesh = AbstractMesh((2, 2), ("x", "y"))
    body = bodies.body_of(eqns, 0, (len(eqns) - 1,), 1 + bodies.WORTH, mesh, target_of(mesh).topology)
    assert (body is not None) == is_body


def test_layers_are_found_with_their_gradients_and_updates() -> None:
    program = network(12)
    found = repeats(program)
    covered = sum(repeat.stop - repeat.start for repeat in found)
    assert covered > 0.8 * len(program.eqns)
    assert all(a.stop <= b.start for a, b in zip(found, found[1:], strict=False))


def test_what_stands_between_loops_is_found() -> None:
    def layer(x: Any, w: Any) -> Any:
        x = mnp.tanh(mnp.dot(x, w)) / (1.0 + mnp.sqrt(mnp.mean(x * x, axis=0)))
        x, _ = mj.lax.scan(lambda x, row: (mnp.tanh(mnp.dot(x, w) + row), None), x, w[:3])
        return mnp.where(x > 0.5, x * x, mnp.exp(x)) + mnp.sum(x * w, axis=1, keepdims=True) * mnp.cos(x)

    def layers(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = layer(x, w)
        return x

    program = traced(layers, ["f32[16,16]"] * 9)
    loops = {at for at, eqn in enumerate(program.eqns) if eqn.op.regions is not None}
    spans = [range(repeat.start, repeat.stop) for repeat in repeats(program)]
    assert len(loops) == 8 and not any(loops & {*span} for span in spans)
    assert sum(map(len, spans)) > 0.8 * len(program.eqns)


@pytest.mark.parametrize("of", ["all", "an axis"])
@pytest.mark.parametrize("seed", range(12))
def test_choices_cost_the_same_without_the_copies_of_values(seed: int, of: str) -> None:
    """And lead to the same plan, value by value."""
    program, annotations = random_program(random.Random(seed))
    machine = Machine(MESH, target_of(MESH))
    draft = first_draft(program, annotations, Assigner(machine))

    def model(is_whole: bool) -> Model:
        known: Any = {"bounds": PriceList(machine)} if of == "all" else {"estimates": True, "joins": True}
        domain = None if of == "all" else Along(Plans(MESH, machine.kinds), ("x",), {}, {})
        return Model(program, draft.flat, machine, annotations, domain=domain, is_whole=is_whole, **known)

    whole, less = model(True), model(False)
    for every, same in (whole.problem.tables, less.problem.tables), (whole.tables.terms, less.tables.terms):
        assert every.keys() == same.keys()
    for scope, table in whole.problem.tables.items():
        np.testing.assert_array_equal(less.problem.tables[scope], table)
    for scope, terms in whole.tables.terms.items():
        assert [t.weight for t in less.tables.terms[scope]] == [t.weight for t in terms]
    assert len(whole.values) == len(less.values) + len(less.copies)
    choices = [random.Random(seed).randrange(size) for size in whole.problem.sizes]
    plans = [prescribe(draft, each, choices).plan for each in (whole, less)]
    assert described(plans[0]) == described(plans[1])


def test_of_equal_layers_most_values_are_copies() -> None:
    program = network(12)
    copies = copies_of(program)
    assert len(copies.values) > 0.5 * len(list(program.vars()))
    assert all(program.eqns[first].op is program.eqns[at].op and first < at for at, first in copies.equations.items())


def test_repeats_of_a_kind_are_alike() -> None:
    program = network(6)
    firsts: dict[int, Any] = {}
    for repeat in repeats(program):
        eqns = program.eqns[repeat.start : repeat.stop]
        values = {v: i for i, v in enumerate((*repeat.inner, *repeat.outer))}
        shape = [(e.op, e.output_types, [values[v] for v in e.inputs], [values[v] for v in e.outputs]) for e in eqns]
        assert firsts.setdefault(repeat.kind, shape) == shape
    assert firsts


def test_what_differs_in_a_constant_is_no_repeat() -> None:
    def unlike(x: Any) -> Any:
        for i in range(6):
            for _ in range(4):
                x = mnp.tanh(x * (0.5 + i)) + x
        return x

    kinds = [(repeat.kind, repeat.stop - repeat.start) for repeat in repeats(traced(unlike, ["f32[8]"]))]
    assert all(length < 2 * 12 for _, length in kinds)


def test_equal_layers_are_placed_alike() -> None:
    plan = make_plan(network(32), MESH, annotated(32))
    first: dict[int, Any] = {}
    for repeat in repeats(plan.program):
        placements = [plan.placements[v] for v in repeat.inner]
        steps = plan.equations[repeat.start : repeat.stop]
        found = first.setdefault(repeat.kind, (placements, steps))
        assert placements == found[0]
        assert all(a.assignment == b.assignment for a, b in zip(steps, found[1], strict=True))


def test_planning_sees_hardly_more_equations_of_more_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    plan_equation = equations.Planner.equation

    def counted(self: Any, eqn: Any, *rest: Any) -> Any:
        planned.append(eqn)
        return plan_equation(self, eqn, *rest)

    monkeypatch.setattr(equations.Planner, "equation", counted)

    def count(layers: int) -> int:
        planned.clear()
        make_plan(network(layers), MESH, annotated(layers))
        return len(planned)

    assert count(32) < 1.5 * count(8)


@pytest.mark.parametrize(
    "specs", [(P(), P()), (P("x", "y"), P("x", "y")), (P("y"), P(None, "y", "x")), (P(None, "x"), P("x", None, "y"))]
)
def test_repeats_of_loops_and_branches_are_not_those_around_them(specs: Any) -> None:
    """Their values have another rank; each Program counts its kinds from 0."""

    def layers(x: Any) -> Any:
        for _ in range(4):
            a = mnp.tanh(x)
            b = a * x
            c, d = b + a, mnp.sin(b - x)
            x = c * d + (d * c - b) * a
        return x

    def f(x: Any, w: Any) -> Any:
        return layers(x), lax.fori_loop(0, 2, lambda i, w: layers(w), w), lax.cond(x[0, 0] > 0, layers, lambda v: v, x.sum(0))

    mesh = mj.make_mesh((2, 4), ("x", "y"))
    x, w = (np.linspace(-1, 1, n).astype(np.float32) for n in (32, 64))
    x, w = x.reshape(8, 4), w.reshape(2, 8, 4)
    placed = mj.jit(f, in_shardings=tuple(mj.NamedSharding(mesh, spec) for spec in specs))(x, w)
    for result, expected in zip(placed, mj.jit(f)(x, w), strict=True):
        np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5, atol=1e-6)
