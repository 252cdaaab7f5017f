"""Reports for other tools: each export is one that its reader takes, and holds what the report does."""

from __future__ import annotations

import json

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.inspect.shardy import mlir_text
from meshjit.runtime._jaxlib.shardy import module_text, parsed_module
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from tests.tools.formats import problem_of_model_explorer, problem_of_stacks, problem_of_trace

MESH = AbstractMesh((4, 2), ("data", "model"))


def struct(shape, *spec):
    return mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def loss(w1, w2, x):
    hidden = lax.scan(lambda c, w: (mnp.tanh(c @ w), None), x, w1)[0]
    hidden = lax.cond(hidden[0, 0] > 0, mnp.sin, mnp.cos, hidden)
    return mnp.mean((hidden @ w2) ** 2)


@pytest.fixture(scope="module", params=[loss, mj.value_and_grad(loss, (0, 1)), lambda w1, w2, x: x])
def report(request):
    arguments = struct((3, 512, 512), None, None, "model"), struct((512, 512), "model"), struct((64, 512), "data")
    return mj.jit(request.param, keep_unused=True).trace(*arguments).plan().report()


def test_trace_events_are_those_of_the_format(report):
    text = report.export("trace")
    assert problem_of_trace(text) is None
    spans = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert sum(event["dur"] for event in spans) == pytest.approx(1e6 * report.cost.seconds)
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in zip(spans, spans[1:], strict=False))


def test_loops_are_one_iteration_that_takes_as_long_as_all(report):
    lines = {span.place.line for span in report.timeline if span.trips == 3 and span.place is not None}
    assert len(lines) == (0 if report.cost.wire_bytes == 0 else 1)


def test_stacks_hold_all_bytes(report):
    text = report.export("stacks")
    assert problem_of_stacks(text) is None
    lines = text.splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == pytest.approx(report.cost.wire_bytes, abs=len(lines))
    assert all(line.count(";") == 2 for line in lines)


def test_model_explorer_takes_the_graphs(report):
    text = report.export("model-explorer")
    assert problem_of_model_explorer(text) is None
    graphs = json.loads(text)["graphs"]
    assert sum(len(node["subgraphIds"]) for graph in graphs for node in graph["nodes"]) == len(graphs) - 1


def test_mlir_is_read_again(report):
    text = mlir_text(report.subject)
    assert "sdy.sharding" in text and module_text(parsed_module(text)) == text


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (problem_of_trace, '{"traceEvents": [{"ph": "X"}], "displayTimeUnit": "ms"}'),
        (problem_of_trace, '{"traceEvents": [{"ph": "Q", "pid": 0}], "displayTimeUnit": "ms"}'),
        (problem_of_stacks, "a;b 3"),
        (problem_of_stacks, "a;;b 3\n"),
        (problem_of_model_explorer, '{"label": "f", "graphs": [{"id": "f", "nodes": [{"id": 3, "label": "x"}]}]}'),
        (problem_of_model_explorer, '{"label": "f", "graphs": [{"id": "f", "nodes": [], "more": 1}]}'),
    ],
)
def test_the_validators_refuse(check, text):
    assert check(text) is not None
