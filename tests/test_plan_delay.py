"""Where partial sums are reduced: as soon as they are made, unless something is gained by waiting."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.partition.partition import partition
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from meshjit.transform.pipeline import simplify
from tests.tools.wire import MESH, moved, traced

ROWS = {"f32[64, 16]": P("data", None), "f32[64, 8]": P("data", None)}


def order(fun: Callable[..., Any], arguments: dict[str, P | None], outputs: Sequence[P | None]) -> list[str]:
    """The names of the equations of the local program; also checks what it computes."""
    moved(fun, arguments, outputs)
    program = traced(fun, [text.split("#")[0].strip() for text in arguments])
    local = simplify(partition(make_plan(program, MESH, Annotations(list(arguments.values()), list(outputs)))))
    return [eqn.op.name for eqn in local.eqns if eqn.inputs]


def gradient(x: Any, y: Any) -> Any:
    return mnp.dot(x.T, y)


def test_a_sum_that_nothing_is_gained_by_delaying_is_reduced_at_once() -> None:
    """The multiplication is left to be fused with the subtraction."""
    names = order(lambda w, x, y: w - 0.1 * gradient(x, y), {"f32[16, 8]": P(), **ROWS}, [P()])
    assert names.index("all_reduce") == names.index("dot_general") + 1
    assert names.index("all_reduce") < names.index("multiply") < names.index("subtract")


def test_a_long_chain_is_undone_to_where_it_began() -> None:
    names = order(lambda x, y: mnp.tanh(-(0.5 * gradient(x, y)).T / 3), ROWS, [P()])
    assert names.index("all_reduce") == names.index("dot_general") + 1


def test_addends_meet_before_the_reduction_and_what_follows_comes_after() -> None:
    names = order(lambda x, y: 0.1 * (gradient(x, y) * 2 + gradient(x * x, y)), ROWS, [P()])
    assert names.count("all_reduce") == 1
    behind = names[names.index("all_reduce") + 1 :]
    assert names.index("add") < names.index("all_reduce") and behind.count("multiply") == 1


@pytest.mark.parametrize("place", [lambda x: mnp.roll(x, 1, axis=0), lambda x: mnp.cumsum(x, axis=1), lambda x: x[::-1]])
def test_sums_flow_through_ops_that_partition_themselves(place: Callable[[Any], Any]) -> None:
    """Wherever they are linear, and whether or not elements come from other shards meanwhile."""
    arguments = {"f32[64, 16]": P("data", "model"), "f32[64, 8]": P("data", None)}
    names = order(lambda x, y: place(gradient(x, y)) + place(gradient(x * x, y)), arguments, [P("model", None)])
    assert names.count("all_reduce") == 1 and names.index("add") < names.index("all_reduce")


def test_a_value_that_becomes_smaller_is_reduced_where_it_is_smallest_first() -> None:
    names = order(lambda x, y: mnp.exp(0.1 * mnp.sum(2 * gradient(x, y), axis=0)), ROWS, [P()])
    at = names.index("all_reduce")
    assert names[at - 1] == "reduce_sum" and names[at + 1] == "multiply"
    assert moved(lambda x, y: 0.1 * gradient(x, y)[:4], ROWS, [P()]) == ["1 all_reduce(data) 192"]


def test_a_sum_that_is_wanted_in_shards_waits_for_the_reduce_scatter() -> None:
    assert moved(lambda x, y: gradient(x, y) * 2, ROWS, [P("data")]) == ["1 reduce_scatter(data) 384"]


def test_a_carry_collects_what_is_scaled_on_the_way() -> None:
    def total(xs: Any, ys: Any) -> Any:
        return lax.scan(lambda c, xy: (c + 0.1 * gradient(*xy), None), mnp.zeros((16, 8)), (xs, ys))[0]

    arguments = {"f32[3, 64, 16]": P(None, "data", None), "f32[3, 64, 8]": P(None, "data", None)}
    assert moved(total, arguments, [P()]) == ["1 all_reduce(data) 768"]


def test_a_scaled_carry_that_collects_is_reduced_after_the_loop() -> None:
    def total(xs: Any, ys: Any) -> Any:
        return lax.scan(lambda c, xy: (0.9 * c + gradient(*xy), None), mnp.zeros((16, 8)), (xs, ys))[0]

    arguments = {"f32[3, 64, 16]": P(None, "data", None), "f32[3, 64, 8]": P(None, "data", None)}
    assert moved(total, arguments, [P()]) == ["1 all_reduce(data) 768"]


def test_a_sum_in_a_loop_that_does_not_collect_is_reduced_where_it_is_made() -> None:
    def steps(w: Any, xs: Any, ys: Any) -> Any:
        return lax.scan(lambda w, xy: (w * 2 - 0.1 * gradient(xy[0] @ w, xy[1]), None), w, (xs, ys))[0]

    arguments = {"f32[8, 8]": P(), "f32[3, 64, 8]": P(None, "data", None), "f32[3, 64, 8] #2": P(None, "data", None)}
    program = traced(steps, [text.split("#")[0].strip() for text in arguments])
    local = partition(make_plan(program, MESH, Annotations(list(arguments.values()), [P()])))
    body = next(eqn.params["body"] for eqn in local.eqns if "body" in eqn.params)
    names = [eqn.op.name for eqn in body.eqns if eqn.inputs]
    assert "multiply" in names[names.index("all_reduce") :]
    assert names[names.index("all_reduce") - 1] == "dot_general"


@pytest.mark.device
def test_xla_puts_reductions_of_one_group_together() -> None:
    """No pass of ours does, so that what is written down about it has to stay true."""
    mesh = Mesh(np.array(mj.devices()[:8]), ("x",))
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())

    def sums(x: Any) -> Any:
        return mnp.sum(x, axis=0), mnp.sum(x * x, axis=0), mnp.sum(x)

    lowered = mj.jit(sums, in_shardings=rows, out_shardings=whole).lower(np.ones((16, 6), np.float32))
    assert lowered.as_text("local").count("all_reduce(") == 3
    assert len(re.findall(r"all-reduce(?:-start)?\(", lowered.compile().as_text())) == 1


def test_a_sum_that_is_read_sharded_and_whole_is_reduced_once() -> None:
    """In the order of its readers it would be a reduce-scatter and an all-gather, which send as much."""

    def both(x: Any, y: Any) -> Any:
        total = gradient(x, y)
        return mnp.tanh(total), total

    names = order(both, ROWS, [P("data", None), P()])
    assert names.count("all_reduce") == 1 and not {"all_gather", "reduce_scatter"}.intersection(names)


def test_a_sum_in_a_loop_is_reduced_once_an_iteration() -> None:
    def body(w: Any, x: Any) -> Any:
        total = mnp.dot(x.T, x)
        return w + total, lax.with_sharding_constraint(mnp.tanh(total), NamedSharding(MESH, P("data", None)))

    arguments = {"f32[16, 16]": P(), "f32[3, 64, 16]": P(None, "data", None)}
    moved(lambda w, x: lax.scan(body, w, x), arguments, [P(), P(None, "data", None)])


def test_a_sum_of_every_layer_is_reduced_alike() -> None:
    """Layers stay copies of one another, and what is read behind the last of them is reduced as that needs it."""

    def layers(x: Any, y: Any) -> Any:
        totals = list[Any]()
        for _ in range(4):
            total = gradient(x, y)
            y = y + x @ lax.with_sharding_constraint(mnp.tanh(total), NamedSharding(MESH, P(None, "model"))) * 1e-3
            totals.append(total)
        return totals

    moved(layers, ROWS, [P()] * 4)
