"""What planning decides about small programs, word for word: every kind of decision at least once, printed and parsed back.

Refresh the goldens with `pytest --update-goldens tests/test_golden_decisions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.decision import KINDS, Decision, parse_decisions, print_decisions
from meshjit.sharding import NamedSharding, PartitionSpec as P
from sharding.mesh import AbstractMesh
from tests.tools.loops import momentum

ROW = AbstractMesh((4,), ("x",))
GRID = AbstractMesh((4, 2), ("data", "model"))


@dataclass(frozen=True)
class Case:
    """A function and its arguments: (shape, spec), or shapes alone where it is planned automatically."""

    fun: Callable[..., Any]
    arguments: tuple[tuple[tuple[int, ...], P | None], ...]
    mesh: AbstractMesh = ROW
    automatic: bool = False


def accumulated(w: Any, xs: Any) -> Any:
    return lax.scan(lambda total, x: (total + x.T @ (x @ w), None), mnp.zeros_like(w), xs)[0]


def rolled(u: Any) -> Any:
    return u + mnp.roll(u, 1, 0)


def blocked(u: Any) -> Any:
    return lax.fori_loop(0, 8, lambda i, v: rolled(v), u)


def until(u: Any) -> Any:
    return lax.while_loop(lambda v: v[0, 0] < 10, rolled, u)


def decoded(x: Any, wq: Any, cache: Any) -> Any:
    """Heads of the query are sharded over the axis that shards the cache along its sequence."""
    q = mnp.einsum("bd,dhk->bhk", x, wq)
    scores = mnp.einsum("bhk,bsk->bhs", q, cache)
    return mnp.einsum("bhs,bsk->bhk", mnp.exp(scores - scores.max(-1, keepdims=True)), cache)


def masked(x: Any, y: Any) -> Any:
    """The places are those of a shard for x, and all for the minor dim of y."""
    places = mnp.arange(64.0) * 2
    return x + places, y * places


def perceptron(x: Any, up: Any, down: Any) -> Any:
    return mnp.tanh(x @ up) @ down


CASES = {
    "accumulated": Case(accumulated, (((64, 32), P("x")), ((10, 256, 64), P(None, "x")))),
    "momentum": Case(momentum, (((64, 32), P()), ((10, 256, 64), P(None, "x")))),
    "blocked": Case(blocked, (((64, 8), P("x")),)),
    "large": Case(blocked, (((64, 100000), P("x")),)),
    "until": Case(until, (((64, 8), P("x")),)),
    "decoded": Case(decoded, (((8, 256), P("data")), ((256, 8, 32), P(None, "model")), ((8, 512, 32), P("data", "model"))), GRID),
    "masked": Case(masked, (((64,), P("x")), ((8, 64), P("x")))),
    "automatic": Case(perceptron, (((512, 256), None), ((256, 1024), None), ((1024, 256), None)), GRID, True),
}


def decided(case: Case) -> tuple[Decision, ...]:
    shardings = [None if spec is None else NamedSharding(case.mesh, spec) for _, spec in case.arguments]
    types = [mj.ShapeDtypeStruct(s, np.float32, sharding=at) for (s, _), at in zip(case.arguments, shardings, strict=True)]
    fun = mj.auto(case.fun, mesh=case.mesh) if case.automatic else mj.jit(case.fun)
    return fun.trace(*types).plan().plan.decisions


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    decisions = decided(CASES[name])
    text = print_decisions(decisions)
    assert tuple(parse_decisions(text)) == decisions
    golden(f"decisions/{name}", re.sub(r"\.py:\d+", ".py", re.sub(r"in line \d+", "in a line", f"{text}\n")))


def test_every_kind_occurs() -> None:
    assert {d.kind for case in CASES.values() for d in decided(case)} == set(KINDS)
