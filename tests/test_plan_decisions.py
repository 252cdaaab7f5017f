"""Decisions: what planning chose stands in `Plan.decisions`, with its reason, its price and what else there was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import meshjit.numpy as mnp
from meshjit import debug, lax
from meshjit.core.decision import Decision, Rival, parse_decisions, print_decisions
from meshjit.core.plan import PlanCost, Trial
from meshjit.plan.make import Annotations, make_plan
from meshjit.plan.verdict import of_trial
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh
from tests.tools.loops import momentum
from tests.tools.wire import traced

X4 = AbstractMesh((4,), ("x",))
GRID = AbstractMesh((4, 2), ("data", "model"))


def decided(fun: Callable[..., Any], types: list[str], inputs: list[Any], outputs: list[Any], mesh: Any = X4) -> list[Decision]:
    plan = make_plan(traced(fun, types), mesh, Annotations(inputs, outputs))
    assert tuple(parse_decisions(print_decisions(plan.decisions))) == plan.decisions
    return list(plan.decisions)


def only(decisions: list[Decision], kind: str) -> Decision:
    (decision,) = [d for d in decisions if d.kind == kind]
    return decision


def test_a_placement_names_the_annotation_that_it_comes_from() -> None:
    decisions = decided(lambda x, w: mnp.tanh(x @ w), ["f32[64, 8]", "f32[8, 16]"], [P("x"), None], [None])
    place = next(d for d in decisions if d.kind == "place" and d.subject == "%2 (f32[64, 16])")
    assert place.choice == "[x, -]" and place.source.startswith("test_plan_decisions.py:")
    assert place.because[0].startswith("x on dim 0: the annotation of %a0, an input, by way of dot_general at test_plan_decisions.py:")


def test_a_sum_of_partial_sums_is_delayed_and_reduced_once() -> None:
    def fun(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a @ b + c @ d

    types = ["f32[64, 64]"] * 4
    decisions = decided(fun, types, [P(None, "x"), P("x"), P(None, "x"), P("x")], [P()])
    assert only(decisions, "delay").choice == "on a partial sum, [-, -] partial sum(x)"
    kept, moved = (d for d in decisions if d.kind == "reduce")
    assert kept.choice == "reduced after it" and kept.rivals[0].text == "reduced before it"
    assert kept.microseconds is not None and (kept.rivals[0].microseconds or 0) > kept.microseconds
    assert moved.choice == "[-, -] partial sum(x) to [-, -], all_reduce over x, 16,384 bytes"


def test_what_reads_a_value_may_have_no_results() -> None:
    def fun(x: Any) -> Any:
        debug.print("{}", x)
        return x * 2

    moved = only(decided(fun, ["f32[64, 8]"], [P("x")], [P("x")]), "move")
    assert moved.choice == "[x, -] to [-, -], all_gather over x, 512 bytes" and moved.because == ("debug_callback needs it [-, -]",)


def test_a_sum_may_be_read_by_what_has_no_results() -> None:
    def fun(xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            debug.print("{}", x.sum())
            return total + x, None

        return lax.scan(body, mnp.zeros(64), xs)[0]

    reduced = only(decided(fun, ["f32[10, 64]"], [P(None, "x")], [P("x")]), "reduce")
    assert reduced.because == ("debug_callback needs it []",)


def test_a_carry_collects_sums_and_what_does_not_change_is_brought_before_the_loop() -> None:
    def fun(w: Any, xs: Any) -> Any:
        return lax.scan(lambda total, x: (total + x.T @ (x @ w), None), mnp.zeros_like(w), xs)[0]

    decisions = decided(fun, ["f32[64, 32]", "f32[10, 256, 64]"], [P("x"), P(None, "x")], [P()])
    assert only(decisions, "accumulate").choice == "[-, -] partial sum(x)"
    assert only(decisions, "accumulate").rivals[0].text == "reduced in every iteration"
    assert only(decisions, "accumulate").source.startswith("test_plan_decisions.py:")
    hoist = only(decisions, "hoist")
    assert hoist.source == only(decisions, "accumulate").source
    assert hoist.choice == "enters the loop as [-, -]" and hoist.rivals[0].text == "[x, -]"


def test_a_refused_block_says_why_and_one_that_is_kept_what_it_saves() -> None:
    def roll(u: Any) -> Any:
        return u + mnp.roll(u, 1, 0)

    kept = decided(lambda u: lax.fori_loop(0, 8, lambda i, v: roll(v), u), ["f32[64, 8]"], [P("x")], [P("x")])
    trial = only(kept, "try")
    assert trial.subject == "exchange borders once for 8 iterations of a loop of 8" and trial.choice == "kept"
    assert trial.because == ("the plan takes less time",) and not any(d.kind == "block" for d in kept)
    assert sum(d.kind == "exchange" for d in kept) == 1
    refused = decided(lambda u: lax.fori_loop(0, 8, lambda i, v: roll(v) / v.sum(), u), ["f32[64, 8]"], [P("x")], [P("x")])
    assert only(refused, "block").because == ("dim 0 of f32[64,8] has to be whole",)


def roll(u: Any) -> Any:
    return u + mnp.roll(u, 1, 0)


@pytest.mark.parametrize(
    "fun, types, spec, reason",
    [
        (lambda u: lax.while_loop(lambda v: v[0, 0] < 10, roll, u), ["f32[64, 8]"], P("x"),
         "nobody knows before how often it runs"),
        (lambda u: lax.fori_loop(0, 8, lambda i, v: lax.fori_loop(0, 2, lambda j, w: w * 2, roll(v)), u), ["f32[64, 8]"], P("x"),
         "the body holds scan"),
        (lambda u: lax.fori_loop(0, 8, lambda i, v: mnp.roll(v, 17, 0), u), ["f32[64, 8]"], P("x"),
         "an iteration needs more than the shards next to a device's own have"),
        (lambda u: lax.fori_loop(0, 8, lambda i, v: mnp.roll(v, 9, 0), u), ["f32[64, 8]"], P("x"),
         "two iterations need more than the shards next to a device's own have"),
        (lambda u: lax.fori_loop(0, 8, lambda i, v: roll(v), u), ["f32[64, 100000]"], P("x"), "the plan is not clearly faster"),
    ],
)  # fmt: skip
def test_a_loop_that_exchanges_borders_every_time_says_why(fun: Any, types: list[str], spec: P, reason: str) -> None:
    block = only(decided(fun, types, [spec], [spec]), "block")
    assert block.choice == "borders are exchanged in every iteration" and block.because == (reason,)
    assert (block.microseconds is None) == (block.rivals == ()) == (reason != "the plan is not clearly faster")


def test_a_loop_without_borders_is_not_asked_about_blocks() -> None:
    decisions = decided(lambda u: lax.fori_loop(0, 8, lambda i, v: v * 2, u), ["f32[64, 8]"], [P("x")], [P("x")])
    assert not any(d.kind in ("block", "accumulate") for d in decisions)


def test_a_carry_that_is_read_or_costs_less_when_it_is_reduced_every_time_says_so() -> None:
    types, specs = ["f32[64, 32]", "f32[10, 256, 64]"], [P(), P(None, "x")]
    accumulate = only(decided(momentum, types, specs, [P(), P()]), "accumulate")
    assert (accumulate.choice, accumulate.because) == ("reduced in every iteration", ("the sum is read in the loop, too",))

    def rows(xs: Any, v: Any) -> Any:  # each iteration adds a number to one row of many
        return lax.scan(lambda total, x: (total + mnp.pad((x @ v)[None], ((0, 4095), (0, 0))), None), mnp.zeros((4096, 64)), xs)[0]

    accumulate = only(decided(rows, ["f32[2, 64, 64]", "f32[64]"], [P(None, None, "x"), P("x")], [P()]), "accumulate")
    assert accumulate.choice == "reduced in every iteration"


def test_a_plan_that_fits_says_so() -> None:
    before, less = PlanCost(1e-3, 0.0, 0.0, 200.0), PlanCost(5e-4, 0.0, 0.0, 50.0)
    assert of_trial(Trial("again", "", "", before, less, True), 100.0) == "the plan takes less time"
    short = Trial("again", "", "", before, less, True, is_short=True)
    assert of_trial(short, 100.0) == "the plan takes less time, and the peak holds 150 bytes fewer, for memory is short"
    assert of_trial(Trial("again", "", "", less, before, False, fits=False), 100.0).startswith("the peak would hold 100 bytes more")
    assert of_trial(dataclasses.replace(short, is_accepted=False, beaten_by="y"), 100.0) == "another one does better: y"


def test_what_is_delayed_made_again_or_computed_has_its_price_or_its_rival() -> None:
    def fun(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a @ b + c @ d

    decisions = decided(fun, ["f32[64, 64]"] * 4, [P(None, "x"), P("x"), P(None, "x"), P("x")], [P()])
    assert only(decisions, "delay").rivals[0].text == "reduced before it"

    compute = only(decided(lambda x, w: x @ w, ["f32[64, 64]"] * 2, [P("x"), P("x")], [P("x")]), "compute")
    assert compute.choice == "a over x"
    assert compute.because == ("the rule is a c, c b -> a b | sum c", "a is not in operand 1: devices along x read the same of it")


def test_what_is_computed_elsewhere_once_its_readers_are_known_names_both_prices() -> None:
    """An operand that is less to move than the result, and two that are less to gather than a sum to reduce."""

    def widened(x: Any, w: Any) -> Any:
        return x @ w.astype(mnp.float32)

    def lone(x: Any, w: Any, u: Any, b: Any) -> Any:
        z = mnp.tanh(x)
        return z @ u, z @ w + b

    types = ["f32[4096, 64]", "f32[64, 64]", "f32[64, 512]", "f32[4096, 64]"]
    for fun, arguments, inputs, outputs, subject, reason in (
        (widened, ["f32[1024, 256]", "bf16[256, 256]"], [P("x"), P("x")], [P("x")], "convert", "less to move than its result"),
        (lone, types, [P(None, "x"), P("x"), P(None, "x"), P()], [P(None, "x"), P()], "dot_general", "its sum to reduce"),
    ):  # fmt: skip
        decisions = decided(fun, arguments, inputs, outputs)
        (decision,) = [d for d in decisions if d.kind == "compute" and reason in d.because[0]]
        assert subject in decision.subject and decision.choice == "all of it on every device"
        (rival,) = decision.rivals
        assert rival.text == "as planned before its readers were known"
        assert decision.microseconds is not None and rival.microseconds is not None and decision.microseconds < rival.microseconds
        assert not [d for d in decisions if d.kind in ("delay", "reduce")]


def test_conflicts_and_the_alternatives_that_were_tried() -> None:
    """Heads of the query are sharded over the axis that shards the cache along its sequence: the query is moved."""

    def attend(x: Any, wq: Any, cache: Any) -> Any:
        q = mnp.einsum("bd,dhk->bhk", x, wq)
        scores = mnp.einsum("bhk,bsk->bhs", q, cache)
        return mnp.einsum("bhs,bsk->bhk", mnp.exp(scores - scores.max(-1, keepdims=True)), cache)

    types = ["f32[8, 256]", "f32[256, 8, 32]", "f32[8, 512, 32]"]
    specs = [P("data"), P(None, "model"), P("data", "model")]
    decisions = decided(attend, types, specs, [P("data", "model")], GRID)
    assert {d.choice for d in decisions if d.kind == "conflict"} == {"keeps model on dim 2; model on dim 1 is lost"}
    trial = next(d for d in decisions if d.kind == "try")
    assert trial.subject == "shard dim 1 of 2 values of shape [8, 8, 512] over model, not dim 2 over model"
    assert trial.choice == "rejected" and trial.rivals[0].text == "the plan with it"
    assert trial.because == ("it sends 65,536 bytes a device where 2,112 suffice, and does not halve the time",)
    moved = [d.subject for d in decisions if d.kind == "move"]
    assert moved == ["%3 (f32[8, 8, 32])"]  # the query, and not the cache


def test_annotations_that_spread_in_another_order_name_the_line_where_they_meet() -> None:
    decisions = decided(lambda x, w: mnp.tanh(x @ w) @ w.T, ["f32[64, 256]", "f32[256, 1024]"], [P("x"), P("x")], [None])
    trials = [d for d in decisions if d.kind == "try"]
    assert [d.subject for d in trials] == [
        "shard dim 0 of a value of shape [64, 256] over x, not dim 1 over x",
        "let the annotations of the largest values spread first",
    ]
    assert all(d.source.startswith("test_plan_decisions.py:") for d in trials)


@pytest.mark.parametrize("line", ["dance %1: x", "place %1: [x]\n  becuase of", "place"])
def test_what_is_no_decision_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no decision|no reason"):
        parse_decisions(line)


def test_text_of_a_decision() -> None:
    decision = Decision("reduce", "%9 (f32[64, 16])", "all_reduce", ("it is needed",), 161.2, (Rival("later", 322.4),), "a.py:3 f")
    text = "reduce %9 (f32[64, 16]): all_reduce  # a.py:3 f\n  because it is needed\n  costs 161.2 us\n  not later: 322.4 us"
    assert str(decision) == text and parse_decisions(text) == [decision]
