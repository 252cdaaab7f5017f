"""Checkpoint policies as JAX documents them: what is kept, which primitives they are asked about, print_saved_residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.ad_checkpoint import Offloadable, Recompute, Saveable, checkpoint_name, print_saved_residuals
from meshjit.autodiff.checkpoint import saved_residuals

pytestmark = pytest.mark.device

W1, W2, X = np.ones((5, 4), np.float32), np.ones((6, 5), np.float32), np.ones(4, np.float32)
POLICIES = mj.checkpoint_policies


def loss(w1: Any, w2: Any, x: Any) -> Any:
    x = mnp.sin(checkpoint_name(w1 @ x, "first"))
    x = checkpoint_name(mnp.sin(w2 @ x), "second")
    return mnp.sin(x).sum()


def kept(policy: Any, fun: Any = loss, *args: Any) -> list[str]:
    """What is kept besides the arguments, without the lines."""
    residuals = saved_residuals(mj.checkpoint(fun, policy=policy), *(args or (W1, W2, X)))
    texts = [f"{type.str_short(short_dtypes=True)} {origin}" for type, origin in residuals if not origin.startswith("from the argument")]
    return [text.split(" from ")[0] for text in texts]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, []),
        (POLICIES.nothing_saveable, []),
        (POLICIES.dots_saveable, ["f32[5] output of dot_general", "f32[6] output of dot_general"]),
        (POLICIES.checkpoint_dots_with_no_batch_dims, ["f32[5] output of dot_general", "f32[6] output of dot_general"]),
        (POLICIES.save_only_these_names("first"), ["f32[5] named 'first'"]),
        (POLICIES.save_any_names_but_these("first"), ["f32[6] named 'second'"]),
        (lambda prim, *avals, **params: prim.name == "sin", ["f32[5] output of sin", "f32[6] output of sin"]),
        (lambda prim, *avals, **params: prim is lax.cos_p and avals[0].shape == (5,), ["f32[5] output of cos"]),
        (lambda prim, *_, **params: params.get("name") == "second", ["f32[6] named 'second'"]),
        (lambda prim, *_, **params: Saveable if str(prim) == "name" else Recompute, ["f32[5] named 'first'", "f32[6] named 'second'"]),
        (
            POLICIES.save_from_both_policies(POLICIES.dots_saveable, POLICIES.save_only_these_names("second")),
            ["f32[5] output of dot_general", "f32[6] output of dot_general", "f32[6] named 'second'"],
        ),
        (
            POLICIES.save_and_offload_only_these_names(
                names_which_can_be_saved=["first"], names_which_can_be_offloaded=["second"], offload_src="device", offload_dst="pinned_host"
            ),
            ["f32[5] named 'first'", "f32<host>[6] named 'second'"],
        ),
        (
            POLICIES.offload_dot_with_no_batch_dims("device", "pinned_host"),
            ["f32<host>[5] output of dot_general", "f32<host>[6] output of dot_general"],
        ),
    ],
)  # fmt: skip
def test_what_a_policy_keeps(policy: Any, expected: list[str]) -> None:
    assert kept(policy) == expected
    for result, right in zip(mj.grad(mj.checkpoint(loss, policy=policy), (0, 1, 2))(W1, W2, X), mj.grad(loss, (0, 1, 2))(W1, W2, X), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)


def test_policies_answer_themselves() -> None:
    dims = {"dimension_numbers": (((1,), (0,)), ((), ()))}
    batched = {"dimension_numbers": (((2,), (1,)), ((0,), (0,)))}
    assert POLICIES.dots_saveable(lax.dot_general_p, **batched) and POLICIES.dots_saveable(lax.conv_general_dilated_p)
    assert not POLICIES.dots_with_no_batch_dims_saveable(lax.dot_general_p, **batched)
    assert POLICIES.dots_with_no_batch_dims_saveable(lax.dot_general_p, **dims)
    assert POLICIES.offload_dot_with_no_batch_dims("a", "b")(lax.dot_general_p, **dims) == Offloadable("a", "b")
    assert POLICIES.everything_saveable(lax.sin_p) and not POLICIES.nothing_saveable(lax.sin_p)
    assert repr(POLICIES.save_only_these_names("h")) == "save_only_these_names('h')"
    with pytest.raises(ValueError, match="should be a boolean"):
        POLICIES.save_from_both_policies(lambda *a, **k: Saveable, POLICIES.dots_saveable)(lax.sin_p)
    with pytest.raises(ValueError, match="should not intersect"):
        POLICIES.save_and_offload_only_these_names(
            names_which_can_be_saved=["h"], names_which_can_be_offloaded=["h"], offload_src="a", offload_dst="b"
        )


def test_which_primitives_a_policy_is_asked_about() -> None:
    asked: dict[str, Any] = {}

    def policy(prim: Any, *avals: Any, **params: Any) -> bool:
        asked[prim.name] = (avals, params)
        return False

    def fun(x: Any) -> Any:
        return (mnp.exp(-x) * lax.integer_pow(x, 3) / mnp.maximum(x, 1.0)).astype(mnp.float16).sum()

    mj.grad(mj.checkpoint(fun, policy=policy))(X)
    assert {"exp", "neg", "mul", "div", "max", "convert_element_type", "reduce_sum", "integer_pow"} <= set(asked)
    assert str(asked["exp"][0][0]) == "f32[4]"


def test_print_saved_residuals(capsys: pytest.CaptureFixture[str]) -> None:
    print_saved_residuals(mj.checkpoint(loss, policy=POLICIES.save_only_these_names("second")), W1, W2, x=X)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["f32[5,4] from the argument w1", "f32[6,5] from the argument w2", "f32[4] from the argument x"]
    assert lines[3].startswith("f32[6] named 'second' from ") and lines[3].endswith(" (loss)") and len(lines) == 4
    print_saved_residuals(lambda x: mnp.sin(x) * W2[0, 0], 1.0)
    assert "f32[] output of cos from " in capsys.readouterr().out


def test_static_arguments_by_name() -> None:
    def fun(x: Any, *, train: bool, scale: Any = 2.0) -> Any:
        return mnp.sin(x) * scale if train else x

    f = mj.checkpoint(fun, static_argnames="train", prevent_cse=(True, False))
    np.testing.assert_allclose(mj.grad(lambda x: f(x, train=True))(1.0), 2 * np.cos(1), rtol=1e-6)
    np.testing.assert_allclose(mj.jit(mj.grad(lambda x: f(x, train=False)))(1.0), 1.0)

    def positional(x: Any, mode: str) -> Any:
        return mnp.sin(x) if mode == "train" else x

    g = mj.checkpoint(positional, static_argnames=("mode",))
    np.testing.assert_allclose(mj.grad(g)(1.0, "train"), np.cos(1), rtol=1e-6)
    np.testing.assert_allclose(mj.grad(lambda x: g(x, mode="test"))(1.0), 1.0)


def test_what_is_no_policy() -> None:
    with pytest.raises(TypeError, match="policy must be one of meshjit.checkpoint_policies, got 'dots'"):
        mj.checkpoint(loss, policy="dots")  # pyright: ignore[reportArgumentType]


def test_trees_of_numbers_have_names() -> None:
    named = checkpoint_name({"a": 1.0, "b": (mnp.ones(2), 3)}, "here")
    assert named["a"].weak_type and named["a"] == 1.0 and named["b"][1].dtype == np.int32


@pytest.mark.parametrize("answer", ["x", None, 1])
def test_a_policy_answers_yes_or_no(answer: Any) -> None:
    with pytest.raises(TypeError, match="the policy lambda answered"):
        mj.grad(mj.checkpoint(loss, policy=lambda prim, *_, **params: answer))(W1, W2, X)


def test_static_arguments_are_there() -> None:
    double = mj.checkpoint(lambda x, n: x * n, static_argnums=-1)
    assert double(2.0, 3) == 6.0
    with pytest.raises(ValueError, match="from -1 to 0 here, where 1 arguments were given by position; got 1"):
        mj.checkpoint(lambda x, n=2: x * n, static_argnums=1)(2.0)
