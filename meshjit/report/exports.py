"""Reports for other tools: Chrome trace events (Perfetto), collapsed stacks (speedscope, flame graphs), Model Explorer's graphs.

Sources: the Trace Event Format ("ph": "X" with ts and dur in microseconds); Brendan Gregg's collapsed stacks, `a;b;c count`;
`graph_builder` of ai-edge-model-explorer (nodes with id, label, namespace, attrs, incomingEdges, outputsMetadata).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Var
from meshjit.report.subject import Subject
from meshjit.report.timeline import timeline
from meshjit.report.transfers import transfers
from meshjit.report.units import function_text


def chrome_trace(subject: Subject) -> str:
    """The predicted timeline: a track for computing, and one for each set of axes."""
    spans = timeline(subject)
    tracks = {name: i for i, name in enumerate(dict.fromkeys(span.track for span in spans))}
    names = [_named("thread_name", i, name) for name, i in tracks.items()]
    events = [
        {
            "ph": "X", "pid": 0, "tid": tracks[span.track], "ts": span.start * 1e6, "dur": span.seconds * 1e6,
            "name": span.title, "cat": span.track, "args": {"line": span.source},
        }
        for span in spans
    ]  # fmt: skip
    return json.dumps({"traceEvents": [_named("process_name", 0, subject.title), *names, *events], "displayTimeUnit": "ms"})


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 0, "tid": track, "name": what, "args": {"name": name}}


def collapsed_stacks(subject: Subject) -> str:
    """Bytes on the wire: `function;line;collective over axes bytes`, a line each."""
    counts = Counter[str]()
    for row in transfers(subject):
        if not row.wire_bytes:
            continue
        function = function_text(row.place) if row.place is not None else "results"
        counts[f"{function};{row.source or 'results'};{row.kind} over {row.axes}"] += round(row.wire_bytes)
    return "".join(f"{stack} {count}\n" for stack, count in counts.items())


def model_explorer(subject: Subject) -> str:
    """A graph per Program: nodes are equations, in the namespace of their function and line; those with bodies lead to theirs."""
    return json.dumps({"label": subject.title, "graphs": list(_graphs(subject, subject.plan, subject.title))})


def _graphs(subject: Subject, plan: Plan, id: str) -> Iterator[dict[str, Any]]:
    ids: dict[Var, tuple[str, int]] = {}
    nodes = [_node(subject, subject.names[v], "argument", "", (), (v,), ids, ()) for v in plan.program.inputs]
    below: list[tuple[Plan, str]] = []
    for number, (eqn, equation) in enumerate(zip(plan.program.eqns, plan.equations, strict=True)):
        bodies = [(body, f"{id}/{number}.{i} {eqn.op.name}") for i, body in enumerate(equation.bodies)]
        below += bodies
        names = [name for _, name in bodies]
        nodes.append(_node(subject, str(number), eqn.op.name, _namespace(eqn), eqn.inputs, eqn.outputs, ids, names))
    yield {"id": id, "nodes": nodes}
    for body, name in below:
        yield from _graphs(subject, body, name)


def _namespace(eqn: Eqn) -> str:
    if eqn.source is None:
        return ""
    note = f" ({eqn.source.note})" if eqn.source.note else ""
    return f"{function_text(eqn.source)}{note}/{eqn.source.file.rsplit('/', 1)[-1]}:{eqn.source.line}"


def _node(
    subject: Subject, id: str, label: str, namespace: str, inputs: Sequence[Var], outputs: Sequence[Var],
    ids: dict[Var, tuple[str, int]], graphs: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """Notes in `ids` which output of which node each value is."""
    edges = [
        {"sourceNodeId": ids[v][0], "sourceNodeOutputId": str(ids[v][1]), "targetNodeInputId": str(i)}
        for i, v in enumerate(inputs)
    ]
    ids.update({v: (id, i) for i, v in enumerate(outputs)})
    metadata = [
        {"id": str(i), "attrs": [{"key": "type", "value": subject.type_text(v)}, {"key": "name", "value": subject.names[v]}]}
        for i, v in enumerate(outputs)
    ]
    return {
        "id": id, "label": label, "namespace": namespace, "subgraphIds": list(graphs), "incomingEdges": edges,
        "outputsMetadata": metadata,
    }  # fmt: skip


EXPORTS = {"trace": chrome_trace, "stacks": collapsed_stacks, "model-explorer": model_explorer}
