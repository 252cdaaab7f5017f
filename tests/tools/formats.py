"""Validators of the formats that reports are exported to, after their readers; None says that a text is right, else what is wrong.

Model Explorer: the fields of `graph_builder.py` of ai-edge-model-explorer 0.1.34, and the shapes of JSON that its page takes
(`{label, graphs}`). Trace events: the Trace Event Format, as ui.perfetto.dev and speedscope 1.25 import it. Collapsed stacks:
Brendan Gregg's, with the pattern by which speedscope knows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

KEY_VALUE = {"key": str, "value": str}
METADATA = {"id": str, "attrs": [KEY_VALUE]}
EDGE = {"sourceNodeId": str, "sourceNodeOutputId": str, "targetNodeInputId": str}
NODE = {
    "id": str, "label": str, "namespace": str, "subgraphIds": [str], "attrs": [KEY_VALUE], "incomingEdges": [EDGE],
    "outputsMetadata": [METADATA], "inputsMetadata": [METADATA],
}  # fmt: skip
REQUIRED = {"id", "label", "graphs", "nodes", "key", "value", "sourceNodeId"}
COLLECTION = {"label": str, "graphs": [{"id": str, "nodes": [NODE]}]}


def problem_of_model_explorer(text: str) -> str | None:
    collection = json.loads(text)
    wrong = _mismatch(collection, COLLECTION, "")
    if wrong is not None:
        return wrong
    graphs = {graph["id"]: graph for graph in collection["graphs"]}
    if len(graphs) != len(collection["graphs"]):
        return "two graphs have one id"
    for graph in collection["graphs"]:
        nodes = {node["id"]: node for node in graph["nodes"]}
        if len(nodes) != len(graph["nodes"]):
            return f"two nodes of {graph['id']} have one id"
        for node in graph["nodes"]:
            unknown = [edge["sourceNodeId"] for edge in node.get("incomingEdges", []) if edge["sourceNodeId"] not in nodes]
            missing = [each for each in node.get("subgraphIds", []) if each not in graphs]
            if unknown or missing:
                return f"node {node['id']} of {graph['id']} names {unknown or missing}, which is not there"
    return None


def _mismatch(value: Any, schema: Any, path: str) -> str | None:
    if isinstance(schema, list):
        if not isinstance(value, list):
            return f"{path} is no list"
        return next((wrong for i, each in enumerate(value) if (wrong := _mismatch(each, schema[0], f"{path}[{i}]"))), None)
    if not isinstance(schema, Mapping):
        return None if isinstance(value, schema) else f"{path} is {value!r}"
    if not isinstance(value, dict):
        return f"{path} is no object"
    if value.keys() - schema.keys() or (schema.keys() & REQUIRED) - value.keys():
        return f"{path} has {sorted(value)}, may have {sorted(schema)}"
    return next((wrong for name, each in value.items() if (wrong := _mismatch(each, schema[name], f"{path}.{name}"))), None)


PHASES = {"X": {"name", "pid", "tid", "ts", "dur"}, "M": {"name", "pid", "args"}}
NAMES = {"process_name", "thread_name", "process_sort_index", "thread_sort_index"}


def problem_of_trace(text: str) -> str | None:
    trace = json.loads(text)
    if not isinstance(trace.get("traceEvents"), list) or trace.get("displayTimeUnit") not in ("ms", "ns"):
        return "no list of traceEvents, or no displayTimeUnit"
    named = {event["tid"] for event in trace["traceEvents"] if event.get("name") == "thread_name"}
    for event in trace["traceEvents"]:
        if event.get("ph") not in PHASES or PHASES[event["ph"]] - event.keys():
            return f"{event} is of no known kind, or lacks some of {PHASES}"
        if event["ph"] == "M" and (event["name"] not in NAMES or not event["args"]):
            return f"{event} names nothing"
        if event["ph"] == "X" and not (_is_time(event["ts"]) and _is_time(event["dur"]) and event["tid"] in named):
            return f"{event} has no times of microseconds, or no named track"
        if not isinstance(event["pid"], int) or not isinstance(event.get("args", {}), dict):
            return f"{event} has a pid that is no number, or args that are no object"
    return None


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and value >= 0


def problem_of_stacks(text: str) -> str | None:
    lines = text.split("\n")
    if lines.pop() != "":
        return "the last line does not end"
    for line in lines:
        match = re.fullmatch(r"(.*) (\d+)", line)
        if match is None or not all(match[1].split(";")):
            return f"{line!r} is no stack with a count"
    return None
