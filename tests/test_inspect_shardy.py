"""Plans in Shardy's words, and its own propagation as a second mind: where both place a value alike, `why` names its origins."""

from __future__ import annotations

import re

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.cli import main
from meshjit.inspect.shardy import mlir_text, second_opinion
from meshjit.report.edges import single_spreads
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P

MESH = AbstractMesh((4, 2), ("data", "model"))


def struct(shape, *spec, annotated=True):
    return mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)) if annotated else None)


def free(*shape):
    return struct(shape, annotated=False)


def mlp(x, w1, w2):
    return mnp.tanh(x @ w1) @ w2


def attention(x, wq, wk, wv):
    q, k, v = (mnp.einsum("btd,dhk->bhtk", x, w) for w in (wq, wk, wv))
    weights = nn.softmax(mnp.einsum("bhsk,bhtk->bhst", q, k), axis=-1)
    return mnp.einsum("bhst,bhtk->bshk", weights, v)


def constrained(x, w):
    h = lax.with_sharding_constraint(mnp.sin(x) @ w, NamedSharding(MESH, P("data", "model")))
    return mnp.sum(h * 2.0, axis=1)


def normalised(x, scale):
    return (x - mnp.mean(x, -1, keepdims=True)) * lax.rsqrt(mnp.var(x, -1, keepdims=True) + 1e-5) * scale


PROGRAMS = {
    "mlp": (mlp, (struct((64, 32), "data"), struct((32, 128), None, "model"), free(128, 32))),
    "mlp, middle": (mlp, (struct((64, 32), "data"), free(32, 128), struct((128, 32), "model", None))),
    "attention": (attention, (struct((8, 16, 32), "data"), struct((32, 4, 8), None, "model"), free(32, 4, 8), free(32, 4, 8))),
    "constraint": (constrained, (free(64, 32), free(32, 16))),
    "norm": (normalised, (struct((64, 32), "data"), struct((32,), "model"))),
    "transposed": (lambda x, y: mnp.concatenate([x.T, y], 0).reshape(4, 24), (struct((8, 8), "data"), free(4, 8))),
}


@pytest.fixture(params=PROGRAMS)
def planned(request):
    fun, arguments = PROGRAMS[request.param]
    return mj.jit(fun).trace(*arguments).plan()


def test_origins_are_shardys(planned):
    """Each axis comes from one annotation in these programs, so there is one right answer."""
    subject = planned.report().subject
    propagated, numbers = subject.describer.propagated, subject.describer.flat.numbers
    alike = 0
    for opinion in second_opinion(planned.plan, planned.planning.annotations):
        number = numbers[opinion.var]
        placement = propagated.placements[number]
        if tuple(tuple(map(str, axes)) for axes in placement.dims) != opinion.dims:
            continue
        alike += 1
        for dim, axes in enumerate(placement.dims):
            for axis in axes:
                seed = subject.values[propagated.origins[number, dim, axis].seed]
                assert shardys_name(planned, seed, opinion.var) == opinion.origins[str(axis)], subject.names[opinion.var]
    assert alike >= 3


def test_edges_are_shardys(planned):
    """Where both place all values of an op alike, they take the same steps at it."""
    subject = planned.report().subject
    opinions = {opinion.var: opinion for opinion in second_opinion(planned.plan, planned.planning.annotations)}
    ours: dict[object, set[tuple[str, str, str]]] = {}
    for row in single_spreads(subject):
        ours.setdefault(row.eqn, set()).update((row.axis, row.origin, end) for end in row.targets)
    alike = 0
    for eqn in planned.plan.program.eqns:
        values = [*eqn.inputs, *eqn.outputs]
        if eqn.op.seed is None and all(v in opinions and same_dims(subject, opinions[v]) for v in values):
            alike += 1
            assert ours.get(eqn, set()) == opinions[eqn.outputs[0]].edges, str(eqn.op)
    assert alike >= 1


def same_dims(subject, opinion):
    placement = subject.describer.propagated.placements[subject.describer.flat.numbers[opinion.var]]
    return tuple(tuple(map(str, axes)) for axes in placement.dims) == opinion.dims


def test_the_module_has_origins_and_edges(planned):
    text = mlir_text(planned.report().subject)
    assert "sdy.sharding_origins = {data = " in text or "sdy.sharding_origins = {model = " in text
    steps = {row.step for row in single_spreads(planned.report().subject) if row.eqn is not None and row.eqn.op.seed is None}
    assert {int(n) for n in re.findall(r"step-(\d+)", text)} <= steps and "#sdy.propagation_edges<[{step-" in text


def shardys_name(planned, seed, var):
    """`self`, `input: 0`, or `constraint_0` of a value in the middle."""
    program = planned.plan.program
    if seed in program.inputs:
        return "self" if seed is var else f"input: {program.inputs.index(seed)}"
    return "constraint_0"


def test_the_module_has_every_placement(planned):
    text = mlir_text(planned.report().subject)
    assert 'sdy.mesh @mesh = <["data"=4, "model"=2]>' in text
    made = sum(len(eqn.outputs) for eqn in planned.plan.program.eqns if eqn.op.seed is None)
    assert text.count("#sdy.sharding_per_value") >= made - 2  # ops of several values hold them together


def test_results_may_be_arguments_and_come_twice():
    plan = mj.jit(lambda x, y: (x, x + y, y, x + y)).trace(struct((8, 4), "data"), free(8, 4)).plan()
    assert mlir_text(plan.report().subject).count("return") == 1


def test_the_command_writes_mlir(tmp_path, monkeypatch):
    (tmp_path / "one_function.py").write_text("def double(x):\n    return x * 2.0\n")
    monkeypatch.chdir(tmp_path)
    arguments = ["--mesh", "data=4", "--arg", "f32[8,4]=P('data')", "--export", "mlir", "double.mlir", "one_function.py:double"]
    assert main(["inspect", *arguments]) == 0
    assert '[{"data"}, {}]' in (tmp_path / "double.mlir").read_text()
