"""Names in reports: what users call values, and that whatever a report says can be asked for again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from examples.language_model import arguments, step
from meshjit import lax
from meshjit.report.labels import Labels
from meshjit.report.names import UnknownName
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P

MESH = AbstractMesh((4, 2), ("data", "model"))


def struct(shape, *spec):
    return mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def attention(x, w):
    scores = mnp.exp(x @ w) / 2.0
    scores += 1.0
    low, high = mnp.sin(scores), mnp.cos(scores)
    if low.ndim == 2:
        return low * high
    return low


def layers(ws, x):
    return lax.scan(lambda c, w: (attention(c, w), None), x, ws)[0]


def loss(params, x):
    out = layers(params["ws"], x)
    return mnp.mean(out * out)


@pytest.fixture(scope="module")
def report():
    params = {"ws": struct((6, 64, 64), None, None, "model")}
    return mj.jit(mj.grad(loss)).trace(params, struct((32, 64), "data")).plan().report()


def test_values_are_called_by_variables_functions_and_steps_towards_them(report):
    labels = {report.subject.labels[v] for v in report.subject.names}
    assert {"params['ws']", "x", "params['ws'][i]", "scores", "exponential in scores", "attention()", "(low, high)"} <= labels
    assert {"x (carry)", "scores (backward)"} <= labels
    assert not any(label.startswith("%") for label in labels if "(" in label)


def test_what_a_function_makes_of_an_argument_is_called_by_both():
    """`cast()` alone did not say which weight was gathered."""

    def cast(tree):
        return mj.tree.map(lambda w: w.astype(mnp.bfloat16), tree)

    def f(params, x):
        params = cast(params)
        return (x @ params["up"]) @ params["down"]

    params = {"up": struct((64, 64), "data", "model"), "down": struct((64, 64), "data", "model")}
    x = mj.ShapeDtypeStruct((32, 64), mnp.bfloat16, sharding=NamedSharding(MESH, P("data")))
    report = mj.jit(f).trace(params, x).plan().report()
    labels = {*report.subject.labels.values(), *(report.subject.labels[v] for v in report.subject.names)}
    assert {"cast(params['up'])", "cast(params['down'])"} <= labels and "cast()" not in labels
    assert report.why("cast(params['down'])").data
    assert any("cast(params['down'])" in line for line in report.view("collectives", 120, 1.0))


def test_what_a_report_says_can_be_asked_for(report):
    subject = report.subject
    said = [row.value for row in (*report.transfers, *report.memory.held)] + [row.value for row in report.program if row.value]
    for name in {*said, *subject.labels.values()}:
        values = {subject.names[v] for v in subject.names if subject.labels[v] == name}
        assert not values or report.why(name).data, name
    assert {answer.source.split(":")[0] for answer in report.why("scores").data} == {"test_report_labels.py"}


def test_texts_have_no_numbers_for_values(report):
    for view in ("program", "collectives", "memory", "propagation"):
        assert not [line for line in report.view(view, 80, 1.0) if "%" in line.replace(" %", "")], view


def test_lines_that_make_nothing_name_the_nearest(report):
    line = attention.__code__.co_firstlineno
    with pytest.raises(UnknownName, match=rf"nearest: test_report_labels.py:{line + 1}, test_report_labels.py:{line + 2}, "):
        report.why(f"test_report_labels.py:{line}")
    with pytest.raises(UnknownName, match=r"nearest: scores"):
        report.why("score")


def test_code_that_cannot_be_read_is_called_by_its_functions():
    namespace: dict[str, Any] = {"mnp": mnp}
    exec(compile("def f(x):\n    y = mnp.sin(x)\n    return y @ y.T\n", "<nowhere>", "exec"), namespace)
    subject = mj.jit(namespace["f"]).trace(struct((8, 8), "data")).plan().report().subject
    assert isinstance(subject.labels, Labels)
    assert all(
        label == "x" or "f()" in label or label.startswith("%") for label in map(subject.labels.__getitem__, subject.names)
    )


def test_what_ifs_begin_with_what_was_planned_first():
    """Memory is short, so that layers are computed again; with the batch over all devices they need not be."""
    mesh = AbstractMesh((4, 4), ("data", "model"))
    with mj.set_mesh(mesh):
        state, tokens = arguments()
    tokens = mj.ShapeDtypeStruct((160, *tokens.shape[1:]), tokens.dtype, sharding=tokens.sharding)
    everywhere = mj.ShapeDtypeStruct(tokens.shape, tokens.dtype, sharding=NamedSharding(mesh, P(("data", "model"), None)))
    planned, written = (
        mj.jit(step).trace(state, each).plan(lowering_platforms=("tpu",), topology="v5e:4x4") for each in (tokens, everywhere)
    )
    text = "\n".join(written.report().lines(("program", "collectives", "memory", "propagation")))
    assert not [line for line in text.splitlines() if len(line) > 80]
    assert any(trial.kind == "compute" and trial.is_accepted for trial in planned.plan.trials)
    then = planned.report().why_not("tokens", everywhere.sharding.spec).data.costs[1]
    assert then == written.report().cost and then.work_seconds == written.plan.cost.work_seconds
