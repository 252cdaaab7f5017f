"""Reports: rows, reasons, pins and suggestions of a plan, held to what is known of two matrix products on a mesh of 4 × 2."""

from __future__ import annotations

import json
import logging
import re

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.api.call import Automatic
from meshjit.core.printer import names_of
from meshjit.core.types import short_name
from meshjit.plan.automatic.limits import Limits
from meshjit.report.names import UnknownName
from meshjit.report.optimum import optimum_of, optimum_text
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from sharding.spec import ShardingError

MESH = AbstractMesh((4, 2), ("data", "model"))


def struct(shape, *spec, dtype=np.float32):
    return mj.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)) if spec else None)


def hidden(params, x):
    return mnp.tanh(x @ params["w1"])


def loss(params, x, y):
    out = hidden(params, x) @ params["w2"]
    return mnp.mean((out - y) ** 2)


def step(params, x, y):
    value, slopes = mj.value_and_grad(loss)(params, x, y)
    return mj.tree.map(lambda p, g: p - 0.1 * g, params, slopes), value


def report_arguments():
    params = {"w1": struct((512, 2048), None, "model"), "w2": struct((2048, 512), "model", None)}
    return params, struct((1024, 512), "data"), struct((1024, 512), "data")  # fewer would be gathered


@pytest.fixture(scope="module")
def report():
    return mj.jit(step).trace(*report_arguments()).plan().report()


def test_transfers_are_those_of_a_megatron_pair(report):
    rows = [(row.kind, row.axes, row.group, row.times, row.source.split()[1]) for row in report.transfers]
    assert rows == [
        ("all_reduce", "data", 4, 1, "hidden"),
        ("all_reduce", "data", 4, 1, "loss"),
        ("all_reduce", "model", 2, 1, "loss"),
        ("all_reduce", "data", 4, 1, "loss"),
    ]
    assert report.transfers[0].wire_bytes == 2 * 3 / 4 * 512 * 1024 * 4
    assert "unreduced over data" in report.transfers[0].why and "needs it" in report.transfers[0].why


def test_totals_are_those_of_the_plan(report):
    for by in ("axis", "line", "function", "kind"):
        assert sum(total.wire_bytes for total in report.totals(by)) == pytest.approx(report.cost.wire_bytes)
        assert sum(total.seconds for total in report.totals(by)) == pytest.approx(report.cost.move_seconds)


def test_program_has_a_row_for_every_line(report):
    rows = [row for row in report.program if row.kind == "line"]
    assert sum(row.equations for row in rows) == len(report.subject.plan.program.eqns)
    assert [row.title for row in report.program if row.kind == "argument"] == ["params['w1']", "params['w2']", "x", "y"]
    assert next(row for row in report.program if row.title == "x").local_bytes == 256 * 512 * 4


def test_memory_says_what_is_held_at_the_peak(report):
    memory = report.memory
    assert memory.arguments == 2 * 512 * 1024 * 4 + 2 * 256 * 512 * 4
    assert sum(row.bytes for row in memory.held) == memory.peak == report.cost.peak_bytes and memory.inside == 0
    assert memory.fits and "params['w1']" in {row.value for row in memory.held}


def test_memory_says_what_would_lower_it(report):
    (saving,) = [row for row in report.savings if row.how == "donate"]
    assert saving.what == "params" and saving.bytes == 2 * 512 * 1024 * 4
    donated = mj.jit(step, donate_argnums=0).trace(*report_arguments()).plan().report()
    assert not [row for row in donated.savings if row.how == "donate"]


def test_checkpoints_are_named_where_they_would_save():
    def block(x, w):
        return mnp.tanh(mnp.sin(x @ w) * mnp.cos(x @ w)) * 2.0 + x

    def deep(ws, x):
        for w in ws:
            x = block(x, w)
        return mnp.sum(x)

    ws = [struct((256, 256), None, None) for _ in range(6)]
    plain = mj.jit(mj.grad(deep)).trace(ws, struct((4096, 256), "data")).plan().report()
    (saving,) = [row for row in plain.savings if row.how == "checkpoint"]
    assert saving.what.endswith("block") and 0 < saving.bytes < plain.memory.peak and "checkpoint" in str(plain)


def test_why_goes_from_the_annotation_to_the_value(report):
    (answer,) = report.why("hidden").data[:1]
    assert answer.placement == 'P("data", "model")'
    assert [cause.origin for cause in answer.causes] == [
        "the annotation of x, an input: P(\"data\", None)", "the annotation of params['w1'], an input: P(None, \"model\")",
    ]  # fmt: skip
    assert [step.op for step in answer.causes[1].steps][:2] == ["dot_general", "tanh"]


@pytest.mark.parametrize("name", ["params['w1']", "params.w1", "params[\"w1\"]"])
def test_values_have_their_users_names(report, name):
    (answer,) = report.why(name).data
    assert answer.placement == 'P(None, "model")' and "the annotation, an input: P" in answer.causes[0].origin


def test_unknown_values_name_the_nearest(report):
    with pytest.raises(UnknownName, match=r"has no value 'params.w3'\n  nearest: params\['w2'\], params\['w1'\]"):
        report.why("params.w3")


def test_why_not_is_the_plan_with_that_pin(report):
    comparison = report.why_not("x", P()).data
    assert not comparison.is_better and comparison.changed == 1
    pinned = report.why_not("params['w1']", P(None, ("model", "data"))).data
    assert pinned.is_better and pinned.costs[1].wire_bytes < pinned.costs[0].wire_bytes
    assert "planning would prefer it" in str(report.why_not("params['w1']", P(None, ("model", "data"))))


def test_why_not_of_a_value_is_what_a_constraint_gives():
    def constrained(x, w):
        return lax.with_sharding_constraint(x @ w, NamedSharding(MESH, P("data", "model"))) * 2.0

    def free(x, w):
        return (x @ w) * 2.0

    arguments = struct((64, 512), "data"), struct((512, 256), None, None)
    plain = mj.jit(free).trace(*arguments).plan().report()
    pinned = mj.jit(constrained).trace(*arguments).plan().report()
    product = next(v for v in plain.subject.makers if plain.subject.makers[v].op.name == "dot_general")
    cost = plain.why_not(plain.subject.names[product], P("data", "model")).data.costs[1]
    assert cost == pinned.cost


def test_a_spec_that_cannot_be_says_why(report):
    with pytest.raises(ShardingError, match="y"):
        report.why_not("y", P("rows"))


def test_conflicts_say_what_the_other_choice_costs():
    rival = mj.jit(lambda a, b: a + b).trace(struct((64, 64), "data"), struct((64, 64), "model")).plan().report()
    (answer,) = rival.why("result").data
    (loss,) = answer.losses
    assert loss.text.startswith('model on dim 0, for b is P("model", None) and a is P("data", None), which meet in add at')
    assert loss.cost is not None and "lost:" in str(rival.why("result"))


def test_removals_are_planned_and_remove(report):
    first = report.transfers[0]
    best = report.removals(first)[0]
    assert best.removes and best.cost.wire_bytes < report.cost.wire_bytes
    again = report.why_not(best.value, best.spec).data
    assert again.costs[1] == best.cost


def test_suggestions_are_better_and_best_first(report):
    suggestions = report.suggest().data
    times = [row.then.seconds for row in suggestions.rows]
    assert times == sorted(times) and all(t < report.cost.seconds for t in times) and suggestions.tried >= len(times) > 0


def test_nothing_better_says_so():
    plain = mj.jit(lambda x: x * 2.0).trace(struct((64, 8), "data")).plan().report()
    assert str(plain.suggest()).endswith("there is no further annotation to plan")
    assert "nothing is sent" in str(plain)


def test_what_is_no_spec_is_said(report):
    same = mj.NamedSharding(report.subject.plan.mesh, P())
    assert str(report.why_not("x", same)) == str(report.why_not("x", P()))
    with pytest.raises(TypeError, match=r"why_not\('x'\): 'data' is no spec\n  fix: a PartitionSpec, such as P\('x', None\)"):
        report.why_not("x", "data")


def test_equal_layers_stand_once():
    def deep(layers, x):
        for w in layers:
            x = mnp.tanh(x @ w) + mnp.sin(x) * mnp.cos(x) - mnp.exp(-x * x)
        return x

    layers = [struct((64, 64), None, "model") for _ in range(12)]
    folded = mj.jit(deep).trace(layers, struct((32, 64), "data")).plan().report()
    assert [(row.title, row.times) for row in folded.program if row.kind == "argument"] == [("layers[*]", 12), ("x", 1)]
    assert max(row.times for row in folded.program if row.kind == "layers") >= 10
    assert len(folded.why("layers[*]").data) == 1 and folded.why("layers[*]").data[0].copies == 12


def test_loops_are_indented_and_counted():
    def scanned(ws, x):
        return lax.scan(lambda c, w: (mnp.tanh(c @ w), None), x, ws)[0]

    loop = mj.jit(scanned).trace(struct((6, 64, 64), None, None, "model"), struct((32, 64), "data")).plan().report()
    head = next(row for row in loop.program if row.kind == "loop")
    assert head.times == 6
    assert {row.times for row in loop.transfers if row.kind != "slice"} == {6}


def test_expensive_things_are_named():
    gathered = mj.jit(lambda x: mnp.sort(x)).trace(struct((1 << 16,), "data"))
    assert any(note.kind in ("whole", "remade") for note in gathered.plan().report().notes)
    uneven = mj.jit(lambda x: x * 2.0).trace(struct((5, 3), "data")).plan().report()
    assert [note.text for note in uneven.notes][:1] == ["x f32[5@data, 3]: 38 % of its shards is padding"]


def test_reports_as_json_and_text(report):
    data = json.loads(report.to_json())
    assert data["mesh"] == {"data": 4, "model": 2} and len(data["collectives"]) == 4
    assert all(len(line) <= 100 for line in str(report).splitlines())
    assert json.loads(report.why("x").to_json())[0]["placement"] == 'P("data", None)'


def test_empty_arrays_and_scalars():
    nothing = mj.jit(lambda x, s: x * s).trace(struct((0, 4), "data"), struct(())).plan().report()
    assert nothing.cost.wire_bytes == 0 and str(nothing) and nothing.why("s").data[0].placement == "P()"


def test_one_line_per_plan_in_the_log(caplog):
    with mj.config.using(log="plan"), caplog.at_level(logging.WARNING, "meshjit"):
        mj.jit(lambda x: x + 1.0)(np.zeros(4, np.float32))
        mj.jit(lambda x: x + 2.0).lower(np.zeros(4, np.float32)).compile()
        mesh = mj.make_mesh((4,), ("x",), devices=mj.devices()[:4])
        x = mj.device_put(np.zeros((4, 8), np.float32), NamedSharding(mesh, P("x")))
        mj.jit(lambda x: x.sum(0))(x)
    lines = [record.message for record in caplog.records if "equations on 1 devices" in record.message]
    assert len(lines) == 2 and all("0 B sent" in line for line in lines)
    (spread,) = [record.message for record in caplog.records if "equations on 4 devices" in record.message]
    assert re.search(r"largest: all_reduce over x, .* at test_report.py:\d+ .*; not searched, at most [\d.,]+ times the opt", spread)


def test_how_far_from_the_optimum(report):
    """Of a plan by annotations what the work alone says, which holds for the best plan, too."""
    assert re.fullmatch(r"not searched, at most [\d.]+ % from the optimum", optimum_text(report.subject))
    even = mj.jit(mnp.tanh).trace(struct((512, 512), "data", "model")).plan().report()
    assert optimum_text(even.subject) == "not searched, optimal"
    best = mj.jit(step).trace(*report_arguments()).plan().traced.automatically(Automatic(Limits(), (MESH,))).plan
    bound = optimum_of(report.subject).bound
    assert best.optimum is not None and bound <= best.optimum.seconds <= report.cost.seconds


def test_names_are_those_of_the_text(report):
    def scanned(ws, x):
        return lax.scan(lambda c, w: (lax.cond(c.sum() > 0, mnp.tanh, mnp.sin, c @ w), None), x, ws)[0]

    nested = mj.jit(mj.grad(lambda ws, x: scanned(ws, x).sum())).trace(struct((6, 64, 64), None, None, "model"), struct((32, 64), "data"))
    for plan in (report.subject.plan, nested.plan().plan):
        text = str(plan)
        names = names_of(plan.program)
        assert all(re.search(rf"{re.escape(name)}: ", text) for name in names.values()) and len(set(names.values())) == len(names)
        for eqn in plan.program.eqns:
            assert f"{', '.join(f'{names[v]}: ' + report_type(plan, v) for v in eqn.outputs)} = {eqn.op.name}(" in text


def report_type(plan, var):
    return f"{short_name(var.dtype)}[{plan.placements[var].annotate(var.shape)}]"
