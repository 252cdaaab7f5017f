"""What planning and partitioning make of well known models, as texts: a change of behaviour is a diff one can read.

Every golden holds the annotated Program, the local Program, the collectives with their bytes, and the planner's decisions. Refresh them with
`pytest --update-goldens tests/test_golden_programs.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import nn, tree
from meshjit.core.decision import parse_decisions, print_decisions
from meshjit.core.parser import parse_annotated, parse_program
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.inspect.collectives import collective_rows
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.trace import Argument, trace_to_program
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh

MESH = AbstractMesh((4, 2), ("data", "model"))


@dataclass(frozen=True)
class Model:
    """A function, its arguments as name → (type, spec), the specs of its results (None: free) and the mesh."""

    fun: Callable[..., Any]
    arguments: dict[str, tuple[str, P | None]]
    outputs: tuple[P | None, ...]
    mesh: AbstractMesh = MESH


def matmul_chain(x: Any, up: Any, down: Any) -> Any:
    return mnp.dot(mnp.dot(x, up), down)


def mlp(x: Any, up: Any, bias: Any, down: Any) -> Any:
    return mnp.dot(mnp.tanh(mnp.dot(x, up) + bias), down)


def mlp_loss(up: Any, bias: Any, down: Any, x: Any, y: Any) -> Any:
    return mnp.mean((mlp(x, up, bias, down) - y) ** 2)


def mlp_gradient(up: Any, bias: Any, down: Any, x: Any, y: Any) -> Any:
    return mj.grad(mlp_loss, argnums=(0, 1, 2))(up, bias, down, x, y)


def attention(x: Any, qkv: Any, out: Any) -> Any:
    q, k, v = (mnp.einsum("btd,dhk->bhtk", x, qkv[i]) for i in range(3))
    weights = nn.softmax(mnp.einsum("bhtk,bhsk->bhts", q, k) * 0.5, axis=-1)
    return mnp.einsum("bhtk,hkd->btd", mnp.einsum("bhts,bhsk->bhtk", weights, v), out)


def cross_entropy(table: Any, tokens: Any, targets: Any) -> Any:
    logits = mnp.dot(table[tokens], table.T)
    picked = mnp.take_along_axis(nn.log_softmax(logits), targets[..., None], axis=-1)
    return -mnp.mean(picked)


def centred(x: Any) -> Any:
    return x - mnp.mean(x, axis=0)


def split_rows(x: Any) -> Any:
    return mnp.reshape(mnp.tanh(mnp.reshape(x, (2, 16, 6))), (2, 4, 4, 6))


MODELS = {
    "matmul_chain": Model(
        matmul_chain,
        {"x": ("f32[16, 8]", P("data", None)), "up": ("f32[8, 32]", P(None, "model")), "down": ("f32[32, 8]", P("model", None))},
        (P("data", None),),
    ),
    "mlp": Model(
        mlp,
        {
            "x": ("f32[16, 8]", P("data", None)), "up": ("f32[8, 32]", P(None, "model")), "bias": ("f32[32]", None),
            "down": ("f32[32, 8]", P("model", None)),
        },
        (None,),
    ),
    "mlp_gradient": Model(
        mlp_gradient,
        {
            "up": ("f32[8, 32]", P(None, "model")), "bias": ("f32[32]", P("model")), "down": ("f32[32, 8]", P("model", None)),
            "x": ("f32[16, 8]", P("data", None)), "y": ("f32[16, 8]", P("data", None)),
        },
        (P(None, "model"), P("model"), P("model", None)),
    ),
    "attention": Model(
        attention,
        {
            "x": ("f32[8, 6, 16]", P("data", None, None)), "qkv": ("f32[3, 16, 4, 4]", P(None, None, "model", None)),
            "out": ("f32[4, 4, 16]", P("model", None, None)),
        },
        (None,),
    ),
    "cross_entropy": Model(
        cross_entropy,
        {
            "table": ("f32[50, 8]", P("model", None)), "tokens": ("i32[8, 6]", P("data", None)),
            "targets": ("i32[8, 6]", P("data", None)),
        },
        (P(),),
    ),
    "uneven": Model(centred, {"x": ("f32[10, 3]", P("x", None))}, (P("x", None),), AbstractMesh((4,), ("x",))),
    "sub_axes": Model(split_rows, {"x": ("f32[32, 6]", P("x", None))}, (None,), AbstractMesh((8,), ("x",))),
}  # fmt: skip


def traced(model: Model) -> Program:
    arguments = [Argument(TensorType.parse(type), False, name) for name, (type, _) in model.arguments.items()]
    in_tree = tree.structure((tuple(range(len(arguments))), {}))
    found = trace_to_program(model.fun, arguments, in_tree)
    assert not found.captured
    return simplify(found.program)


def drawn(generator: np.random.Generator, type: TensorType) -> np.ndarray[Any, Any]:
    """Values, or places in a table of 50 rows."""
    if type.dtype.kind == "i":
        return generator.integers(0, 50, type.shape).astype(type.dtype)
    return generator.normal(size=type.shape, scale=0.5).astype(type.dtype)


def planned(model: Model) -> tuple[Any, Program]:
    """The plan and the local program, as `runtime.lowering.lower` makes them."""
    specs = [spec for _, spec in model.arguments.values()]
    plan = make_plan(traced(model), model.mesh, Annotations(specs, list(model.outputs)))
    return plan, verify(simplify(partition(plan)))


def described(plan: Any, local: Program) -> str:
    rows = collective_rows(local, plan.mesh)
    table = [f"{row.count} {row.kind}({row.axes}), {row.bytes} bytes from each device" for row in rows]
    decisions = [replace(d, source="") for d in plan.decisions]
    texts = [print_program(plan.program, plan.placements, sources=False), print_program(local, sources=False)]
    return "\n\n".join([*texts, "\n".join(table), without_lines(print_decisions(decisions))]) + "\n"


def without_lines(text: str) -> str:
    """Where a line of this file stands is not part of a golden."""
    return re.sub(r" at test_golden_programs\.py:\d+ [\w.<>]+", "", text)


@pytest.mark.parametrize("name", MODELS)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(name, described(*planned(MODELS[name])))


@pytest.mark.parametrize("name", MODELS)
def test_local_program_computes_the_same(name: str) -> None:
    plan, local = planned(MODELS[name])
    generator = np.random.default_rng(0)
    arrays = [drawn(generator, t) for t in plan.program.input_types]
    shards = [scatter(a, p, plan.mesh) for a, p in zip(arrays, plan.inputs, strict=True)]
    with np.errstate(all="ignore"):
        results = simulate(local, plan.mesh, shards)
    for got, placement, want in zip(results, plan.outputs, evaluate(plan.program, arrays), strict=True):
        np.testing.assert_allclose(gather(got, placement, want.shape, plan.mesh), want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_texts_parse_back(name: str) -> None:
    plan, local = planned(MODELS[name])
    for program in (plan.program, local):
        text = print_program(program)
        assert print_program(parse_program(text)) == text
    text = print_program(plan.program, plan.placements)
    program, placements = parse_annotated(text)
    assert print_program(program, placements) == text


@pytest.mark.parametrize("name", MODELS)
def test_decisions_parse_back(name: str) -> None:
    plan, _ = planned(MODELS[name])
    assert tuple(parse_decisions(print_decisions(plan.decisions))) == plan.decisions
    assert {d.subject.split(" ")[0] for d in plan.decisions if d.kind == "place"} >= {f"%{n}" for n in MODELS[name].arguments}
