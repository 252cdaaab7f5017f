"""Gradients of parts of one array (gates in one matrix, layers in one stack): reduced once after a loop, not in each iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.plan.make import Annotations, make_plan
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh
from tests.tools.fuzz import fails
from tests.tools.fuzz_parts import parts_case
from tests.tools.wire import moved, traced

X8 = AbstractMesh((8,), ("x",))
ROWS, TIMES = P("x"), P(None, "x")
Loss = Callable[..., Any]


def recurrent(cell: Callable[..., Any], states: int = 1) -> Loss:
    """Of weights and a sequence: the sum of what `cell(state, x, *weights)` makes of it."""

    def loss(*arguments: Any) -> Any:
        *weights, xs = arguments
        start = (mnp.zeros(xs.shape[1:]),) * states
        return lax.scan(lambda state, x: (cell(state, x, *weights), None), start, xs)[0][0].sum() * 0.125

    return loss


def lstm(state: Any, gates: Any) -> Any:
    (_, c), (i, f, g, o) = state, gates
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * mnp.tanh(g)
    return nn.sigmoid(o) * mnp.tanh(c), c


def split_gates(state: Any, x: Any, w: Any, b: Any) -> Any:
    inputs = mnp.concatenate([state[0], x], axis=1)
    return lstm(state, [inputs @ part + bias for part, bias in zip(mnp.split(w, 4, axis=1), mnp.split(b, 4), strict=True)])


def columns(state: Any, x: Any, w: Any, u: Any) -> Any:
    d = x.shape[1]
    return lstm(state, [state[0] @ w[:, i * d : i * d + d] + x @ u[:, i * d : i * d + d] for i in range(4)])


def gru(state: Any, x: Any, w: Any, u: Any, b: Any) -> Any:
    (h,) = state
    z, r = (nn.sigmoid(h @ w[i] + x @ u[i] + b[i]) for i in range(2))
    return (z * h + (1 - z) * mnp.tanh((r * h) @ w[2] + x @ u[2] + b[2]),)


def layers(state: Any, x: Any, w: Any) -> Any:
    return (mnp.tanh(mnp.tanh(state[0] @ w[0] + x) @ w[1]),)


def alike(state: Any, x: Any, w: Any) -> Any:
    """All parts have the same gradient, which is one sum with several uses."""
    return (mnp.tanh(sum(state[0] @ w[i] for i in range(4)) + x),)


def dynamic(state: Any, x: Any, w: Any) -> Any:
    return (mnp.tanh(state[0] @ lax.dynamic_index_in_dim(w, 1, keepdims=False) + x),)


def indexed(state: Any, x: Any, w: Any) -> Any:
    return (lax.fori_loop(0, w.shape[0], lambda i, h: mnp.tanh(h @ w[i] + x), state[0]),)


def rows_of(state: Any, x: Any, w: Any) -> Any:
    return (mnp.tanh(state[0] @ w[: x.shape[1]] + x),)


def nested(state: Any, x: Any, w: Any) -> Any:
    inner = lax.scan(lambda h, y: (mnp.tanh(h @ w[0] + y @ w[1]), None), state[0], mnp.stack([x, 2 * x]))
    return (inner[0],)


CELLS: dict[str, tuple[Loss, tuple[str, ...], int]] = {  # loss, types of the weights, elements of their gradients
    "gates split off one matrix, and biases": (recurrent(split_gates, 2), ("f32[16, 32]", "f32[32]"), 16 * 32 + 32),
    "gates as columns": (recurrent(columns, 2), ("f32[8, 32]", "f32[8, 32] #2"), 2 * 8 * 32),
    "gates in a stack, and biases": (recurrent(gru), ("f32[3, 8, 8]", "f32[3, 8, 8] #2", "f32[3, 8]"), 2 * 3 * 64 + 24),
    "stacked layers": (recurrent(layers), ("f32[2, 8, 8]",), 2 * 64),
    "several parts with one gradient": (recurrent(alike), ("f32[4, 8, 8]",), 4 * 64),
    "a dynamic slice": (recurrent(dynamic), ("f32[3, 8, 8]",), 64),
    "a loop over layers": (recurrent(indexed), ("f32[3, 8, 8]",), 3 * 64),
    "half of the rows": (recurrent(rows_of), ("f32[16, 8]",), 8 * 8),
    "a loop in the loop": (recurrent(nested), ("f32[2, 8, 8]",), 2 * 64),
    "checkpointed": (recurrent(mj.checkpoint(layers)), ("f32[2, 8, 8]",), 2 * 64),
}


@pytest.mark.parametrize("name", CELLS)
def test_gradients_of_parts_are_reduced_after_the_loop(name: str) -> None:
    loss, types, elements = CELLS[name]
    gradient = mj.grad(loss, tuple(range(len(types))))
    arguments: dict[str, P | None] = {**dict.fromkeys(types, P()), "f32[12, 16, 8]": TIMES}
    rows = [row.split() for row in moved(gradient, arguments, [P()] * len(types), X8)]
    assert {kind for _, kind, _ in rows} == {"all_reduce(x)"}
    assert sum(int(sent) for _, _, sent in rows) == 2 * 7 / 8 * 4 * elements


@pytest.mark.parametrize("batch", [16, 13])
@pytest.mark.parametrize("name", ["gates as columns", "gates in a stack, and biases", "a loop in the loop", "checkpointed"])
def test_on_two_axes(name: str, batch: int) -> None:
    """Along `model` weights are sharded: slices lie at other places than what they are cut from."""
    loss, types, _ = CELLS[name]
    gradient = mj.grad(loss, tuple(range(len(types))))
    specs: dict[str, P | None] = {t: P(*[None] * t.count(","), "model") for t in types}
    rows = [row.split() for row in moved(gradient, {**specs, f"f32[5, {batch}, 8]": P(None, "data")}, [*specs.values()])]
    reductions = [int(count) for count, kind, _ in rows if kind.endswith("(data)")]
    assert reductions and sum(reductions) <= len(types)


GATES = {
    "gates split off one matrix, and biases": [
        "2 all_reduce(data) 1632", "5 all_gather(model) 640", "5 all_gather(model) 640", "5 reduce_scatter(model) 640",
        "1 collective_permute(pairs) 544", "1 collective_permute(pairs) 544",
        "5 collective_permute(pairs) 320", "5 collective_permute(pairs) 320",
    ],
    "gates as columns": [
        "2 all_reduce(data) 1536", "1 collective_permute(pairs) 512", "1 collective_permute(pairs) 512",
        "5 all_gather(model) 320", "5 all_gather(model) 320", "5 reduce_scatter(model) 320",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", GATES)
def test_gates_that_are_cut_along_a_sharded_dim_move_once(name: str) -> None:
    """Weights before the loop, their gradients after it; only activations are sent in each of the five steps."""
    loss, types, _ = CELLS[name]
    specs: dict[str, P | None] = {t: P(*[None] * t.count(","), "model") for t in types}
    rows = moved(mj.grad(loss, (0, 1)), {**specs, "f32[5, 16, 8]": P(None, "data")}, [*specs.values()])
    assert sorted(rows) == sorted(GATES[name])


@pytest.mark.parametrize("name", [*GATES, "gates in a stack, and biases", "half of the rows", "a loop in the loop"])
@pytest.mark.parametrize("mesh", [AbstractMesh((3,), ("model",)), AbstractMesh((2, 3), ("data", "model"))])
def test_parts_along_a_sharded_dim_of_uneven_extent(name: str, mesh: AbstractMesh) -> None:
    """`moved` compares with one device: losses and gradients."""
    loss, types, _ = CELLS[name]
    data = "data" if "data" in mesh.axis_names else None
    for dim in (0, -1):
        specs: dict[str, P | None] = {t: P("model") if dim == 0 else P(*[None] * t.count(","), "model") for t in types}
        moved(mj.value_and_grad(loss, tuple(range(len(types)))), {**specs, "f32[4, 5, 8]": P(None, data)}, [None] * (1 + len(types)), mesh)


def while_loop(w: Any, x: Any) -> Any:
    """Parts in the body, and in the condition."""

    def goes_on(state: Any) -> Any:
        return (state[1] < 5) & (mnp.sum(w[:, 6:9]) < 1e9)

    return lax.while_loop(goes_on, lambda state: (mnp.tanh(state[0] @ w[:, :6] + state[0] @ w[:, 6:]), state[1] + 1), (x, 0))[0]


def forward(w: Any, x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda _, h: mnp.tanh(h @ w[:, :6]) * (h @ w[:, 6:]), x)


@pytest.mark.parametrize("fun", [forward, while_loop])
def test_parts_of_what_does_not_change_move_before_the_loop(fun: Callable[..., Any]) -> None:
    mesh = AbstractMesh((4,), ("model",))
    program = traced(fun, ["f32[6, 12]", "f32[16, 6]"])
    plan = make_plan(program, mesh, Annotations([P(None, "model"), P()], [P()]))
    permutes = [each.trips for each in plan.collectives if each.kind == "collective_permute"]
    assert permutes and set(permutes) == {1}
    moved(fun, {"f32[6, 12]": P(None, "model"), "f32[16, 6]": P()}, [P()], mesh)


def microbatches(body: Callable[[Any, Any], Any], loop: str) -> Callable[..., Any]:
    def total(w: Any, xs: Any) -> Any:
        if loop == "scan":
            return lax.scan(lambda total, x: (total + body(w, x), None), mnp.zeros(w.shape), xs)[0]
        return lax.fori_loop(0, xs.shape[0], lambda i, total: total + body(w, xs[i]) / 4, mnp.zeros(w.shape))

    return total


@pytest.mark.parametrize("loop", ["scan", "fori_loop"])
@pytest.mark.parametrize("inner", ["plain", "recurrent"])
def test_gradients_of_parts_are_collected_over_microbatches(loop: str, inner: str) -> None:
    losses = {"plain": lambda w, x: mnp.tanh(x @ w[0]) @ w[1], "recurrent": lambda w, x: recurrent(layers)(w, x[None])}
    gradient = mj.grad(lambda w, x: mnp.sum(losses[inner](w, x)))
    arguments: dict[str, P | None] = {"f32[2, 8, 8]": P(), "f32[4, 16, 8]": TIMES}
    assert moved(microbatches(gradient, loop), arguments, [P()], X8) == [f"1 all_reduce(x) {2 * 7 * 2 * 64 * 4 // 8}"]


def test_gradients_of_parts_that_make_up_the_whole_are_one_reduction() -> None:
    def loss(w: Any, x: Any) -> Any:
        for i in range(4):
            x = mnp.tanh(x @ w[i])
        return x.sum()

    arguments: dict[str, P | None] = {"f32[4, 8, 8]": P(), "f32[16, 8]": ROWS}
    assert moved(mj.grad(loss), arguments, [P()], X8) == ["1 all_reduce(x) 1792"]


@pytest.mark.parametrize("trips", [2, 12])
def test_the_gradient_of_a_small_part_of_a_large_array_is_small(trips: int) -> None:
    gradient = mj.grad(recurrent(rows_of))
    arguments: dict[str, P | None] = {"f32[64, 8]": P(), f"f32[{trips}, 16, 8]": TIMES}
    assert moved(gradient, arguments, [P()], X8) == [f"1 all_reduce(x) {2 * 7 * 64 * 4 // 8}"]


@pytest.mark.parametrize("trips", [2, 12])
def test_what_is_enlarged_in_the_loop_is_reduced_where_it_is_small(trips: int) -> None:
    """In every iteration, unless there are so many that together they send more."""

    def total(xs: Any) -> Any:
        return lax.scan(lambda total, x: (total + mnp.pad(x.T @ x, ((0, 56), (0, 0))), None), mnp.zeros((64, 8)), xs)[0]

    once, inside = f"1 all_reduce(x) {2 * 7 * 64 * 8 * 4 // 8}", f"2 all_reduce(x) {2 * 2 * 7 * 64 * 4 // 8}"
    assert moved(total, {f"f32[{trips}, 16, 8]": TIMES}, [P()], X8) == [once if trips > 8 else inside]


def test_parts_that_update_the_whole_are_reduced_before_they_are_enlarged() -> None:
    def steps(w: Any, xs: Any) -> Any:
        gradient = mj.grad(lambda w, x: mnp.sum(mnp.tanh(x @ w[0]) @ w[1]))
        return lax.scan(lambda w, x: (w - 0.125 * gradient(w, x), None), w, xs)[0]

    arguments: dict[str, P | None] = {"f32[8, 8, 8]": P(), "f32[3, 16, 8]": TIMES}
    assert moved(steps, arguments, [P()], X8) == [f"3 all_reduce(x) {3 * 2 * 2 * 7 * 64 * 4 // 8}"]


def test_one_gradient_of_several_parts_is_reduced_once_where_it_is_small() -> None:
    gradient = mj.grad(lambda w, x: mnp.sum(sum(mnp.tanh(x) @ w[i] for i in range(4))))
    arguments: dict[str, P | None] = {"f32[4, 8, 8]": P(), "f32[16, 8]": ROWS}
    (row,) = moved(gradient, arguments, [P()], X8)
    assert row.startswith("1 all_reduce(x)") and int(row.split()[-1]) <= 2 * 7 * 64 * 4 // 8


def test_many_small_parts_of_a_large_array() -> None:
    """As many as a recursion would not bear."""

    def parts(x: Any) -> Any:
        gradient = x.T @ x
        return mnp.tanh(sum(mnp.pad(gradient, ((i, 599 - i), (0, 15))) for i in range(1, 600)))

    program = traced(parts, ["f32[8, 1]"])
    plan = make_plan(program, X8, Annotations([ROWS], [P()]))
    assert [str(each) for each in plan.collectives] == ["all_reduce over x, 4 bytes"]


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_drawn_loops_over_parts(first: int) -> None:
    for seed in range(first, first + 20):
        case = parts_case(seed)
        error = fails(*case)
        assert error is None, f"parts_case({seed}): {error}"


def of_branches(weights: Any, xs: Any) -> Any:
    """A step takes one of two layers, each with a weight of its own; `flags` are the same on all devices."""
    first, second, flags = weights

    def cell(h: Any, step: Any) -> Any:
        x, flag = step
        return lax.cond(flag > 0, lambda h: mnp.tanh(h @ first + x), lambda h: mnp.tanh(h @ second - x), h), None

    return lax.scan(cell, mnp.zeros(xs.shape[1:]), (xs, flags))[0].sum() * 0.125


def of_parts_in_branches(weights: Any, xs: Any) -> Any:
    """Each layer is a part of one array."""
    w, _, flags = weights

    def cell(h: Any, step: Any) -> Any:
        x, flag = step
        return lax.switch(flag, [lambda h, i=i: mnp.tanh(h @ w[i] + x) for i in range(3)], h), None

    return lax.scan(cell, mnp.zeros(xs.shape[1:]), (xs, flags))[0].sum() * 0.125


@pytest.mark.parametrize("batch", [16, 13])
@pytest.mark.parametrize(
    ("loss", "types", "elements"),
    [(of_branches, ("f32[8, 8]", "f32[8, 8] #2"), 2 * 64), (of_parts_in_branches, ("f32[3, 8, 8]", "f32[1, 8]"), 3 * 64)],
)
def test_sums_that_branches_make_are_reduced_after_the_loop(loss: Loss, types: tuple[str, str], elements: int, batch: int) -> None:
    def gradient(first: Any, second: Any, flags: Any, xs: Any) -> Any:
        return mj.grad(lambda pair: loss((*pair, flags), xs))((first, second))

    specs: dict[str, P | None] = {**dict.fromkeys(types, P()), "i32[6]": P(), f"f32[6, {batch}, 8]": TIMES}
    rows = [row.split() for row in moved(gradient, specs, [P(), P()], X8)]
    assert {(count, kind) for count, kind, _ in rows} <= {("1", "all_reduce(x)"), ("2", "all_reduce(x)")}
    assert sum(int(sent) for _, _, sent in rows) == 2 * 7 * elements * 4 // 8


def test_a_sum_of_one_branch_that_a_loop_reads_is_reduced_in_it() -> None:
    """The momentum is read in every iteration: whoever reduces after the loop has nothing to read."""

    def steps(w: Any, flags: Any, xs: Any) -> Any:
        def step(state: Any, inputs: Any) -> Any:
            (w, speed), (x, flag) = state, inputs
            speed = speed + lax.cond(flag > 0, lambda: x.T @ mnp.tanh(x @ w), lambda: mnp.zeros(w.shape))
            return (w - speed * 0.125, speed), None

        return lax.scan(step, (w, mnp.zeros(w.shape)), (xs, flags))[0][0]

    specs: dict[str, P | None] = {"f32[8, 8]": P(), "i32[4]": P(), "f32[4, 16, 8]": TIMES}
    plan = make_plan(traced(steps, [t for t in specs]), X8, Annotations(list(specs.values()), [P()]))
    assert [each.trips for each in plan.collectives] == [2]  # of four iterations a half, as far as anybody knows
    moved(steps, specs, [P()], X8)
