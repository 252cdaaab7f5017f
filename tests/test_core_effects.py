"""Effects: every pass leaves equations alone that do more than compute, also in loops, branches and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import meshjit.ops  # noqa: F401  the parser looks ops up by name
from meshjit.core.effects import Effect, effect_of, is_pure
from meshjit.core.op import REGISTRY, Absent, Op
from meshjit.core.parser import parse_program
from meshjit.core.plan import rematerializable
from meshjit.core.program import Program
from meshjit.core.rules import rule_of
from meshjit.core.verify import verify
from meshjit.ops.base.families import elementwise_rule
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.simulate.devices import simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.batch import batch
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce
from meshjit.transform.jvp import jvp, linearize
from meshjit.transform.pair_permutes import needed_between
from meshjit.transform.pipeline import simplify
from meshjit.transform.transpose import vjp
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P

LOG: list[str] = []


def _told(x: Any, label: str) -> Any:
    LOG.append(label)
    return x


def _effect_op(name: str, effect: Effect) -> Op:
    """The identity, which tells its label whenever it is done. Its tangent passes by without telling."""

    def batched(operands: Any, dims: Any, params: Any) -> Any:
        return [op(operands[0], **params)], [dims[0]]

    op = Op(
        name=name, type_rule=lambda ins, params: ins, factor_rule=elementwise_rule, evaluate=_told, samples=lambda: [],
        emit=lambda e, operands, ins, outs, params: operands, batch=batched,
        jvp=lambda primals, tangents, outs, params: tangents, transpose=Absent("not linear"), effects=effect,
    )  # fmt: skip
    return op


@pytest.fixture(autouse=True)
def ops() -> Iterator[None]:
    LOG.clear()
    for name, effect in (("tell", Effect.IO), ("write", Effect.IO | Effect.ORDERED), ("show", Effect.DEBUG)):
        _effect_op(name, effect)
    yield
    for name in ("tell", "write", "show"):
        del REGISTRY[name]


def program(*lines: str, outputs: str = "%x") -> Program:
    body = "\n".join(f"  {line}" for line in lines)
    return verify(parse_program(f"program main(%x: f32[4]) -> (f32[4]) {{\n{body}\n  return {outputs}\n}}"))


def nested(op: str) -> str:
    """A Program whose one equation runs `tell` twice in a scan, a while loop, a branch, a call or a checkpoint."""
    inner = "%v: f32[4]) -> (f32[4]) {\n%a: f32[4] = tell(%v) {label='a'}\n%b: f32[4] = tell(%v) {label='a'}\nreturn %v }"
    if op == "scan":
        return f"%r: f32[4] = scan(%x) {{length=1, reverse=False, unroll=1, num_consts=0, num_carry=1, body=program step({inner}}}"
    if op == "while":  # carries a count, too, and stops at 1
        cond = "cond=program more(%n: i32[], %v: f32[4]) -> (bool[]) { %o: i32[] = constant() {value=array(i32[], (1,))}\n"
        cond += "%m: bool[] = compare(%n, %o) {direction='LT'}\nreturn %m }"
        body = inner.replace("return %v }", "%o: i32[] = constant() {value=array(i32[], (1,))}\nreturn %o, %v }")
        body = "body=program step(%n: i32[], " + body.replace("-> (f32[4])", "-> (i32[], f32[4])")
        zero = "%i: i32[] = constant() {value=array(i32[], (0,))}"
        return f"{zero}\n%k: i32[], %r: f32[4] = while(%i, %x) {{cond_consts=0, body_consts=0, {cond}, {body}}}"
    if op == "case":
        return f"%i: i32[] = constant() {{value=array(i32[], (0,))}}\n%r: f32[4] = case(%i, %x) {{branches=(program b({inner},)}}"
    if op == "call":
        return f"%r: f32[4] = call(%x) {{body=program f({inner}}}"
    extra = "policy=('nothing_saveable',), prevent_cse=True, again=False"
    return f"%r: f32[4] = checkpoint(%x) {{body=program f({inner}, {extra}}}"


def told(program: Program) -> list[str]:
    """The labels, in the order in which running the Program tells them."""
    LOG.clear()
    evaluate(program, [np.ones(t.shape, t.dtype) for t in program.input_types])
    return list(LOG)


ORDER = ("%1: f32[4] = write(%x) {label='a'}", "%2: f32[4] = tell(%x) {label='b'}", "%3: f32[4] = write(%x) {label='a'}")


@pytest.mark.parametrize("change", [dce, cse, simplify])
def test_what_has_an_effect_is_neither_dropped_nor_merged_nor_reordered(change: Any) -> None:
    assert told(verify(change(program(*ORDER)))) == ["a", "b", "a"]


@pytest.mark.parametrize("op", ["scan", "while", "case", "call", "checkpoint"])
@pytest.mark.parametrize("change", [dce, cse, simplify])
def test_an_op_has_the_effects_of_what_it_runs(op: str, change: Any) -> None:
    before = program(nested(op))
    assert effect_of(before.eqns[-1]) is Effect.IO
    assert told(before) == told(verify(change(before))) == ["a", "a"]


def test_a_loop_without_effects_is_pure() -> None:
    text = nested("scan").replace("tell(%v) {label='a'}", "negate(%v)")
    assert is_pure(program(text).eqns[0])
    assert not dce(program(text)).eqns


def test_nothing_with_an_effect_is_made_again() -> None:
    pure, effect = (program("%1: f32[4] = iota() {dtype=dtype(f32), shape=(4,), dimension=0}", line) for line in (
        "%2: f32[4] = negate(%1)", "%2: f32[4] = tell(%1) {label='a'}"))  # fmt: skip
    for each, expected in ((pure, True), (effect, False)):
        first, second = each.eqns
        made = {first.outputs[0]: 0}
        assert (rematerializable(second, rule_of(second), made) is not None) == expected


def test_nothing_with_an_effect_is_done_early() -> None:
    lines = [
        "%1: f32[4] = collective_permute(%x) {pairs=((0, 1),)}", "%2: f32[4] = tell(%x) {label='a'}",
        "%3: f32[4] = collective_permute(%2) {pairs=((0, 1),)}",
    ]  # fmt: skip
    for text, expected in ((lines[1], False), ("%2: f32[4] = negate(%x)", True)):
        each = program(lines[0], text, lines[2])
        made = {v: i for i, eqn in enumerate(each.eqns) for v in eqn.outputs}
        assert (needed_between(each, each.eqns[0], each.eqns[2], made) is not None) == expected


def test_derivatives_tell_once() -> None:
    """In forward mode, in both parts of a linearization, and forth and back: an effect belongs to the values."""
    each = program("%1: f32[4] = tell(%x) {label='a'}", "%2: f32[4] = sine(%1)", outputs="%2")
    assert told(jvp(each, [True])[0]) == ["a"]
    parts, pullback = linearize(each, [True]), vjp(each, [True])
    assert told(parts.forward) == told(pullback.forward) == ["a"]
    assert told(parts.tangent) == told(pullback.backward) == []


def test_a_checkpoint_shows_again_and_tells_once() -> None:
    text = nested("checkpoint").replace("return %v }", "%c: f32[4] = sine(%b)\nreturn %c }")
    assert told(vjp(program(text, outputs="%r"), [True]).backward) == []
    assert told(vjp(program(text.replace("tell", "show"), outputs="%r"), [True]).backward) == ["a", "a"]


@pytest.mark.parametrize("op", ["scan", "call", "checkpoint"])
def test_derivatives_tell_once_in_regions(op: str) -> None:
    text = nested(op).replace("return %v }", "%c: f32[4] = sine(%b)\nreturn %c }")
    pullback = vjp(program(text, outputs="%r"), [True])
    assert told(pullback.forward) == ["a", "a"]
    assert told(pullback.backward) == []


def test_batches_leave_unordered_effects_to_the_op_and_refuse_ordered_ones() -> None:
    assert told(batch(program("%1: f32[4] = tell(%x) {label='a'}"), [0], 3, [0])) == ["a"]
    with pytest.raises(ValueError, match="vmap of write: it is ordered, and the members of a batch have no order"):
        batch(program("%1: f32[4] = write(%x) {label='a'}"), [0], 3, [0])


def test_members_that_take_different_branches_may_only_tell_of_it() -> None:
    text = nested("case").split("\n", 1)[1]
    one = verify(parse_program(f"program main(%x: f32[4], %i: i32[]) -> (f32[4]) {{\n{text}\n  return %r\n}}"))
    assert told(batch(one, [0, None], 3, [0])) == ["a", "a"]
    with pytest.raises(NotImplementedError, match="vmap of cond with tell: members go through the cond differently"):
        batch(one, [0, 0], 3, [0])
    one = verify(parse_program(f"program main(%x: f32[4], %i: i32[]) -> (f32[4]) {{\n{text}\n  return %r\n}}".replace("tell", "show")))
    assert told(batch(one, [0, 0], 3, [0])) == ["a", "a"]


def test_partitioned_programs_keep_effects_and_their_order() -> None:
    mesh, plan_of = AbstractMesh((2,), ("x",)), Annotations([P("x")], [P()])
    local = partition(make_plan(simplify(program(*ORDER, outputs="%1")), mesh, plan_of))
    LOG.clear()
    simulate(verify(local), mesh, [[np.zeros(2, np.float32)] * 2])
    assert LOG == ["a", "a", "b", "b", "a", "a"]  # on each of two devices
