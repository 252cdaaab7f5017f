"""What is computed again from a narrow root: which values of attention, that results and bytes stay, and for which machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import nn
from meshjit.core.program import Program
from meshjit.simulate.evaluate import evaluate
from meshjit.transform import keep_narrow as room
from meshjit.transform.keep_narrow import keep_narrow
from meshjit.transform.pipeline import simplify
from sharding import AbstractDevice, AbstractMesh, NamedSharding, P
from tests.tools.laws import normals, partitioned
from tests.tools.wire import traced

MESH = AbstractMesh((2, 2), ("x", "y"))
TPUS = AbstractMesh((2, 2), ("x", "y"), abstract_device=AbstractDevice("TPU v5 lite", None, "tpu"))
TYPES = ["bf16[3, 9, 4]"] * 3 + ["bf16[4, 4]"]
SPECS = [P("x", None, "y"), P("x", "y"), P("x"), P(None, "y")]


def softmax(scores: Any) -> Any:
    return nn.softmax(scores.astype(mnp.float32), axis=-1)


def causal(scores: Any) -> Any:
    return softmax(mnp.where(mnp.tril(mnp.ones(scores.shape[1:], bool)), scores.astype(mnp.float32) * 0.5, -1e9))


def biased(scores: Any) -> Any:
    return softmax(scores.astype(mnp.float32) + mnp.linspace(0, 1, scores.shape[-1], dtype=mnp.float32))


def loss(weigh: Callable[[Any], Any], q: Any, k: Any, v: Any, w: Any) -> Any:
    shares = weigh(mnp.einsum("btd,bsd->bts", q, k)).astype(v.dtype)
    return mnp.sum(mnp.tanh(mnp.einsum("bts,bsd->btd", shares, v) @ w).astype(mnp.float32))


def gradient(weigh: Callable[[Any], Any]) -> Program:
    return simplify(traced(mj.grad(lambda *args: loss(weigh, *args), argnums=(0, 1, 2, 3)), TYPES))


def barriers(program: Program) -> list[Sequence[str]]:
    return [[str(t) for t in eqn.input_types] for eqn in program.eqns if eqn.op.name == "optimization_barrier"]


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WORTH", 0)


@pytest.mark.parametrize("weigh", [softmax, causal, biased])
def test_scores_are_kept_and_not_what_is_made_of_them(weigh: Callable[[Any], Any], of_any_size: None) -> None:
    before = gradient(weigh)
    after = keep_narrow(before)
    (kept,) = barriers(after)
    assert kept.count("bf16[3,9,9]") == 1 and not any(t.startswith("f32[3,9,9]") for t in kept)
    arrays = [normals(np.random.default_rng(n), t) for n, t in enumerate(before.input_types)]
    for mine, its in zip(evaluate(before, arrays), evaluate(after, arrays), strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("weigh", [softmax, causal])
def test_devices_compute_the_same_and_send_as_much(weigh: Callable[[Any], Any], of_any_size: None) -> None:
    before = gradient(weigh)
    after = keep_narrow(before)
    arrays = [normals(np.random.default_rng(n), t) for n, t in enumerate(before.input_types)]
    (one, plan, _), (other, again, _) = (partitioned(p, MESH, SPECS, [None] * 4, arrays) for p in (before, after))
    for mine, its in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert plan.cost is not None and again.cost is not None and plan.cost.wire_bytes == again.cost.wire_bytes


def test_what_is_read_only_on_the_way_there_is_left_alone(of_any_size: None) -> None:
    for program in (
        simplify(traced(lambda *args: loss(softmax, *args), TYPES)),  # no backward pass
        gradient(lambda scores: scores.astype(mnp.float32) - mnp.mean(scores.astype(mnp.float32), -1, keepdims=True)),  # linear
        gradient(lambda scores: nn.softmax(scores, axis=-1)),  # as narrow as its root
        gradient(lambda scores: mnp.exp(scores.astype(mnp.float32))),  # no sum over others: fused with every reader
    ):
        assert keep_narrow(program) is program


def test_a_result_is_kept_all_the_same(of_any_size: None) -> None:
    def both(q: Any, k: Any, v: Any, w: Any) -> Any:
        terms = mnp.exp(mnp.einsum("btd,bsd->bts", q, k).astype(mnp.float32))
        shares = terms / mnp.sum(terms, -1, keepdims=True)
        return mnp.sum(mnp.einsum("bts,bsd->btd", shares.astype(v.dtype), v).astype(mnp.float32)), (terms, shares)

    program = simplify(traced(mj.grad(both, argnums=(0, 1, 2, 3), has_aux=True), TYPES))
    assert not barriers(keep_narrow(program))


def test_only_tpus_keep_scores_and_only_large_ones() -> None:
    def text(mesh: AbstractMesh, length: int) -> str:
        def types(*shape: int) -> Any:
            return mj.ShapeDtypeStruct(shape, mnp.bfloat16, sharding=NamedSharding(mesh, P()))

        f = mj.jit(mj.grad(lambda *args: loss(softmax, *args), argnums=(0, 1, 2, 3)))
        return f.lower(*[types(4, length, 4)] * 3, types(4, 4)).as_text()

    assert "optimization_barrier" in text(TPUS, 512)
    assert "optimization_barrier" not in text(TPUS, 64)
    assert "optimization_barrier" not in text(MESH, 512)


def test_layers_behind_a_checkpoint_are_computed_again_already(of_any_size: None) -> None:
    behind = mj.checkpoint(lambda *args: loss(softmax, *args))
    program = simplify(traced(mj.grad(behind, argnums=(0, 1, 2, 3)), TYPES))
    assert barriers(program) and keep_narrow(program) is program
