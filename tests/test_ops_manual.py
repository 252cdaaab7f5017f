"""manual: code for single devices inside of a Program of whole arrays, by its meaning, partitioned, derived and batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.ops  # noqa: F401  the parser looks ops up by name
from meshjit.core.collective import collectives_in
from meshjit.core.op import REGISTRY
from meshjit.core.parser import parse_program
from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.ops.base.arithmetic import multiply
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.collective.collectives import all_reduce
from meshjit.ops.reduce.contraction import dot_general
from meshjit.partition.partition import write_locally
from meshjit.plan.make import Annotations, make_plan
from meshjit.runtime.executable import build
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.batch import batch
from meshjit.transform.jvp import jvp
from meshjit.transform.pipeline import simplify
from meshjit.transform.transpose import vjp
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P
from tests.tools.laws import check_law, counted, random_spec

MESH = AbstractMesh((4, 2), ("x", "y"))
SPLIT, WHOLE = "P('x', 'y')", "P()"


def manual(
    ins: Sequence[tuple[str, str]], outs: Sequence[str], body: str, outer: str = "f32[8, 8]", results: str = ""
) -> Program:
    """One manual equation. `ins` are (type of a shard, spec); operands are %a, %b, … of type `outer`."""
    names = "abcdef"[: len(ins)]
    inner = ", ".join(f"%{n}: {t}" for n, (t, _) in zip(names, ins, strict=True))
    with_types = ", ".join(f"%{n}: {outer}" for n in names)
    specs = f"in_specs=({''.join(s + ',' for _, s in ins)}), out_specs=({''.join(s + ',' for s in outs)})"
    program = f"program f({inner}) -> () {{ {body} }}"
    made = ", ".join(f"%r{i}: {results or outer}" for i in range(len(outs)))
    params = f"mesh=(('x', 4), ('y', 2),), {specs}, checked=False, auto=False, body={program}"
    call = f"manual({', '.join('%' + n for n in names)})"
    returned = ", ".join(f"%r{i}" for i in range(len(outs)))
    return verify(parse_program(f"program main({with_types}) -> () {{ {made} = {call} {{{params}}}\n return {returned} }}"))


def numbers(program: Program, seed: int = 0) -> list[Any]:
    """Eighths, whose sums and products are exact."""
    generator = np.random.default_rng(seed)
    return [(generator.integers(-4, 5, t.shape) / 8).astype(t.dtype) for t in program.input_types]


# What one device does with its block f32[2, 4] of f32[8, 8], linear in it, and how the result is spread.
BODIES = {
    "all_reduce": ("%s: f32[2, 4] = all_reduce(%a) {axes=('x',), kind='sum'}\nreturn %s", SPLIT),
    "all_gather": ("%s: f32[8, 8] = all_gather(%g) {axes=('y',), size=2, dim=1}\nreturn %s", WHOLE),
    "reduce_scatter": ("%s: f32[1, 4] = reduce_scatter(%a) {axes=('y',), size=2, dim=0, kind='sum'}\n"
        "%t: f32[2, 4] = all_gather(%s) {axes=('y',), size=2, dim=0}\nreturn %t", SPLIT),
    "all_to_all": ("%s: f32[1, 8] = all_to_all(%a) {axes=('y',), size=2, split_dim=0, concat_dim=1}\nreturn %s", "P(('x', 'y'))"),
    "ppermute": ("%s: f32[2, 4] = ppermute(%a) {axes=('x', 'y'), pairs=((0, 1), (1, 0), (5, 2))}\nreturn %s", SPLIT),
}  # fmt: skip
BODIES["all_gather"] = ("%g: f32[8, 4] = all_gather(%a) {axes=('x',), size=4, dim=0}\n" + BODIES["all_gather"][0], WHOLE)


def collective(name: str) -> Program:
    body, spec = BODIES[name]
    return manual([("f32[2, 4]", SPLIT)], [spec], body)


def product() -> Program:
    """a @ b with the contracted dim over y, and b the same for all along x."""
    body = (
        "%p: f32[2, 8] = dot_general(%a, %b) {contract=((1,), (0,)), batch=((), ()), precision='highest'}\n"
        "%s: f32[2, 8] = all_reduce(%p) {axes=('y',), kind='sum'}\nreturn %s"
    )
    return manual([("f32[2, 4]", SPLIT), ("f32[4, 8]", "P('y')")], ["P('x')"], body)


def whole_product() -> Program:
    params = product().eqns[0].params["body"].eqns[0].params
    with Builder("main") as builder:
        a, b = (builder.input(TensorType.parse("f32[8,8]")) for _ in range(2))
        return builder.build([dot_general(a, b, **params)])


PROGRAMS = {"product": product, **{name: lambda name=name: collective(name) for name in BODIES}}
every = pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)


@every
def test_text(make: Any) -> None:
    assert str(verify(parse_program(str(make())))) == str(make())


def test_meaning() -> None:
    arrays = numbers(product())
    np.testing.assert_array_equal(evaluate(product(), arrays)[0], arrays[0] @ arrays[1])
    np.testing.assert_array_equal(evaluate(collective("all_gather"), arrays[:1])[0], arrays[0])
    blocks = arrays[0].reshape(4, 2, 8).sum(0)
    np.testing.assert_array_equal(evaluate(collective("all_reduce"), arrays[:1])[0], np.tile(blocks, (4, 1)))


@every
@pytest.mark.parametrize("seed", range(6))
def test_partitioned_is_unpartitioned(make: Any, seed: int) -> None:
    """Wherever operands come from and results go, in front of other equations and behind them."""
    generator, call = np.random.default_rng(seed), make()
    with Builder("main") as builder:
        inputs = [builder.input(v.type) for v in call.inputs]
        outputs = builder.inline(call, [multiply(v, v) for v in inputs])
        program = builder.build([*outputs, reduce_sum(outputs[0], axes=(0,))])
    specs = [random_spec(generator, 2, MESH) for _ in inputs]
    check_law(simplify(program), MESH, specs, [random_spec(generator, v.rank, MESH) for v in program.outputs], numbers(program))


LARGER = [AbstractMesh((4, 3, 2), ("x", "z", "y")), AbstractMesh((2, 4, 2), ("z", "x", "y"))]


@every
@pytest.mark.parametrize("mesh", LARGER)
@pytest.mark.parametrize("seed", range(4))
def test_a_body_is_partitioned_over_further_axes(make: Any, mesh: AbstractMesh, seed: int) -> None:
    """In front of other equations and behind them, and with a gradient; plans predict its collectives."""
    generator, program = np.random.default_rng(seed), left_to_us(make())
    with Builder("main") as builder:
        inputs = [builder.input(v.type) for v in program.inputs]
        outputs = builder.inline(program, [multiply(v, v) for v in inputs])
        whole = builder.build([*outputs, reduce_sum(outputs[0], axes=(0,))])
    for each in (whole, vjp(program, [True] * len(program.inputs)).backward):
        ins = [random_spec(generator, v.rank, mesh) for v in each.inputs]
        check_law(simplify(each), mesh, ins, [random_spec(generator, v.rank, mesh) for v in each.outputs], numbers(each))


def left_to_us(program: Program) -> Program:
    """Its bodies are planned over the axes that their mesh does not have."""
    eqns = tuple(e.with_params({**e.params, "auto": True}) if "auto" in e.params else e for e in program.eqns)
    return Program(program.name, program.inputs, eqns, program.outputs)


def test_what_is_spread_over_further_axes_stays_so() -> None:
    """Rows over z, the contracted dim over y by the body: nothing but the body's own sum is sent, of a part of the rows."""
    mesh = AbstractMesh((2, 2), ("z", "y"))
    body = product().eqns[0].params["body"]
    ins = [("f32[8, 4]", "P(None, 'y')"), ("f32[4, 8]", "P('y')")]
    with Builder("f") as builder:
        a, b = (builder.input(TensorType.parse(t)) for t, _ in ins)
        part = dot_general(a, b, **body.eqns[0].params)
        inner = builder.build([all_reduce(part, axes=("y",), kind="sum")])
    params = {"mesh": (("y", 2),), "in_specs": (P(None, "y"), P("y", None)), "out_specs": (P(None, None),)}
    with Builder("main") as builder:
        x, w = (builder.input(TensorType.parse("f32[8,8]")) for _ in range(2))
        outputs = builder.emit(REGISTRY["manual"], [x, w], {**params, "checked": False, "auto": True, "body": inner})
        program = builder.build(outputs)
    plan = make_plan(program, mesh, Annotations([P("z", "y"), P("y")], [P("z")]))
    assert [str(c) for c in plan.collectives] == ["all_reduce over y, 128 bytes"]
    check_law(program, mesh, [P("z", "y"), P("y")], [P("z")], numbers(program))


@every
@pytest.mark.parametrize("mesh", [AbstractMesh((2, 4), ("y", "x")), AbstractMesh((4, 3, 2), ("x", "z", "y"))])
def test_a_body_is_repeated_along_further_axes(make: Any, mesh: AbstractMesh) -> None:
    """And a mesh may have the same axes in another order."""
    program, generator = make(), np.random.default_rng(0)
    for _ in range(3):
        specs = [random_spec(generator, 2, mesh) for _ in program.inputs]
        check_law(simplify(program), mesh, specs, [random_spec(generator, 2, mesh)], numbers(program))


@every
def test_the_derivative_is_linear_and_its_transpose_is_its_transpose(make: Any) -> None:
    program = make()
    arrays, tangents, (cotangent,) = numbers(program), numbers(program, 1), [numbers(program, 2)[0]]
    flags = [True] * len(arrays)
    _, tangent = evaluate(verify(jvp(program, flags)[0]), [*arrays, *tangents])
    pullback = vjp(program, flags)
    results = evaluate(verify(pullback.forward), arrays)
    back = evaluate(verify(pullback.backward), [*results[1:], cotangent])
    np.testing.assert_array_equal(results[0], evaluate(program, arrays)[0])
    assert sum(float((b * t).sum()) for b, t in zip(back, tangents, strict=True)) == float((cotangent * tangent).sum())


def test_the_gradient_of_a_product_is_that_of_the_whole() -> None:
    """Also partitioned: forth, and back."""
    arrays, (cotangent,) = numbers(product()), [numbers(product(), 2)[0]]
    mine, its = vjp(product(), [True, True]), vjp(whole_product(), [True, True])
    results = [evaluate(p.forward, arrays) for p in (mine, its)]
    gradients = [evaluate(p.backward, [*r[1:], cotangent]) for p, r in zip((mine, its), results, strict=True)]
    for got, want in zip(*gradients, strict=True):
        np.testing.assert_array_equal(got, want)
    check_law(simplify(mine.forward), MESH, [P("x"), P()], [None] * len(mine.forward.outputs), arrays)
    given = [*results[0][1:], cotangent]
    check_law(simplify(mine.backward), MESH, [None] * len(given), [P(), P("y")], given)


def test_residuals_differ_between_devices() -> None:
    """Of tanh(a + number of the device) the derivative needs what only the device has, which no spec of the body names."""
    body = "%i: i32[] = axis_index() {axes=('x', 'y')}\n%f: f32[] = convert(%i) {dtype=dtype(f32)}\n"
    body += "%n: f32[2, 4] = broadcast_in_dim(%f) {shape=(2, 4), dimensions=()}\n%m: f32[2, 4] = add(%a, %n)\n"
    body += "%t: f32[2, 4] = tanh(%m)\nreturn %t"
    program = manual([("f32[2, 4]", SPLIT)], [SPLIT], body)
    (x,) = numbers(program)
    number = np.kron(np.arange(8).reshape(4, 2), np.ones((2, 4))).astype(np.float32)
    pullback = vjp(program, [True])
    value, *residuals = evaluate(verify(pullback.forward), [x])
    (back,) = evaluate(verify(pullback.backward), [*residuals, np.ones_like(x)])
    np.testing.assert_allclose(value, np.tanh(x + number), rtol=1e-6)
    np.testing.assert_allclose(back, 1 - np.tanh(x + number) ** 2, atol=1e-6)


@every
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_batch_is_every_member(make: Any, dim: int) -> None:
    program = make()
    arrays = [numbers(program, seed) for seed in range(3)]
    batched = verify(batch(program, [dim, *(0 for _ in program.inputs[1:])], 3, [dim]))
    given = [np.stack(x, dim if i == 0 else 0) for i, x in enumerate(zip(*arrays, strict=True))]
    want = np.stack([evaluate(program, each)[0] for each in arrays], dim)
    np.testing.assert_array_equal(evaluate(batched, given)[0], want)
    check_law(simplify(batched), MESH, [None] * len(given), [None], given)


# What JAX 0.10.2's shard_map gives for the arrays below: sums of the results, of the gradient, and of the gradient times its places.
FROM_JAX = [
    (SPLIT, "f32[8, 8]", "%s: f32[2, 4] = all_reduce(%a) {axes=('x',), kind='sum'}\nreturn %s", (2.5, 8.5, 275.0)),
    ("P(None, 'y')", "f32[2, 8]", "%s: f32[2, 4] = all_reduce(%a) {axes=('x',), kind='sum'}\nreturn %s", (0.625, -1.0, -18.5)),
    ("P(('x', 'y'))", "f32[8, 8]", "%s: f32[1, 8] = all_to_all(%a) {axes=('y',), size=2, split_dim=0, concat_dim=1}\nreturn %s",
        (0.625, 2.125, 117.75)),
    ("P(('x', 'y'))", "f32[8, 4]", "%s: f32[1, 4] = reduce_scatter(%a) {axes=('y',), size=2, dim=0, kind='sum'}\nreturn %s",
        (0.625, 4.25, 161.5)),
]  # fmt: skip


@pytest.mark.parametrize("spec, type, body, sums", FROM_JAX)
def test_numbers_are_those_of_shard_map(spec: str, type: str, body: str, sums: tuple[float, ...]) -> None:
    program = manual([("f32[2, 4]", SPLIT)], [spec], body, results=type)
    cotangent = numbers(program, 2)[0][: program.outputs[0].shape[0], : program.outputs[0].shape[1]]
    pullback = vjp(program, [True])
    value, *residuals = evaluate(pullback.forward, numbers(program))
    (gradient,) = evaluate(pullback.backward, [*residuals, cotangent])
    assert (value.sum(), gradient.sum(), (np.arange(64) * gradient.ravel()).sum()) == sums


def test_devices_may_take_branches_of_their_own() -> None:
    """Where no collective stands in them; with one they would hang."""
    branch = "program b(%v: f32[2, 4]) -> (f32[2, 4]) {{ {}\nreturn %w }}"
    body = "%i: i32[] = axis_index() {{axes=('y',)}}\n%r: f32[2, 4] = case(%i, %a) {{branches=({}, {})}}\nreturn %r"
    lines = ["%w: f32[2, 4] = negate(%v)", "%w: f32[2, 4] = add(%v, %v)", "%w: f32[2, 4] = all_reduce(%v) {axes=('x',), kind='sum'}"]
    program, hanging = (
        manual([("f32[2, 4]", SPLIT)], [SPLIT], body.format(*(branch.format(lines[i]) for i in pair))) for pair in ((0, 1), (0, 2))
    )
    (x,) = numbers(program)
    factor = np.repeat([-1, 2], 4).astype(np.float32)
    np.testing.assert_array_equal(evaluate(program, [x])[0], x * factor)
    check_law(simplify(program), MESH, [P()], [P("y")], [x])
    with pytest.raises(AssertionError, match="the devices take different ways"):
        evaluate(hanging, [x])


def test_it_runs_on_devices() -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"))
    arrays = numbers(product())
    run = build(product(), mesh, Annotations([P("x"), P()], [P()]), [False], committed=True)
    (got,) = run([mj.device_put(x, mj.NamedSharding(mesh, P())) for x in arrays])
    np.testing.assert_array_equal(np.asarray(got), arrays[0] @ arrays[1])


def test_loops_inside_and_outside() -> None:
    step = "program step(%c: f32[2, 4]) -> (f32[2, 4]) { %s: f32[2, 4] = all_reduce(%c) {axes=('y',), kind='sum'}\nreturn %s }"
    loop = "{length=3, reverse=False, unroll=1, num_consts=0, num_carry=1, body="
    inside = manual([("f32[2, 4]", SPLIT)], [SPLIT], f"%r: f32[2, 4] = scan(%a) {loop}{step}}}\nreturn %r")
    (call,) = collective("all_reduce").eqns
    body = str(Program("step", call.inputs, (call,), call.outputs))
    text = f"program main(%a: f32[8, 8]) -> () {{ %r: f32[8, 8] = scan(%a) {loop}{body}}}\nreturn %r }}"
    for program in (inside, verify(parse_program(text))):
        check_law(simplify(program), MESH, [P("y", "x")], [P()], numbers(program))
        pullback = vjp(program, [True])
        check_law(simplify(pullback.backward), MESH, [P("y")], [P("x")], numbers(program))


def test_dead_results_go_with_what_only_they_need() -> None:
    body = "%n: f32[2, 4] = negate(%a)\n%m: f32[4, 8] = negate(%b)\nreturn %n, %m"
    program = manual([("f32[2, 4]", SPLIT), ("f32[4, 8]", "P('y')")], [SPLIT, "P('y')"], body)
    (eqn,) = verify(simplify(program.with_outputs(program.outputs[:1]))).eqns
    assert len(eqn.inputs) == len(eqn.params["in_specs"]) == len(eqn.outputs) == len(eqn.params["body"].eqns) == 1


def test_refusals() -> None:
    with pytest.raises(TypeError, match=r"dim 0 of operand 0, f32\[6,8\], is no multiple of the 4 devices"):
        manual([("f32[2, 4]", SPLIT)], [SPLIT], "return %a", "f32[6, 8]")
    with pytest.raises(TypeError, match=r"shards of operand 0 are f32\[2,4\], the body takes f32\[2,8\]"):
        manual([("f32[2, 8]", SPLIT)], [SPLIT], "return %a")
    differs = manual([("f32[2, 4]", SPLIT)], ["P('x')"], "%b: f32[2, 8] = concatenate(%a, %a) {dimension=1}\nreturn %b")
    with pytest.raises(ValueError, match=r"devices give different results along \('y',\)"):
        evaluate(differs, numbers(differs))
    with pytest.raises(ValueError, match="its body is for a mesh"):
        check_law(product(), AbstractMesh((2, 4), ("x", "y")), [None, None], [None], numbers(product()))


@every
def test_plans_predict_the_collectives_of_bodies(make: Any) -> None:
    program = make()
    plan = make_plan(program, MESH, Annotations([P("y", "x")] * len(program.inputs), [P("y")]))
    assert plan.target is not None and plan.collectives
    assert counted(plan.collectives) == counted(collectives_in(write_locally(plan, plan.target), MESH))
