"""Propagation: named programs as goldens, conflicts, priorities, ties, and independence of the order of nodes."""

from __future__ import annotations

import dataclasses
import random
import re
import time

import pytest
from hypothesis import given, strategies as st

from sharding import (
    AbstractMesh,
    FactorRule,
    Graph,
    Node,
    Placement,
    Propagated,
    Seed,
    ShardingError,
    explain,
    propagate,
)
from sharding.axes import first_overlap

MESH = AbstractMesh((4, 2), ("data", "model"))


class Flow:
    """A graph under construction; values go by number, and `seed` takes a placement's text with ? for an open dim."""

    def __init__(self) -> None:
        self.graph = Graph([], [])

    def value(self, *shape: int, seed: str | None = None, priority: int = 0) -> int:
        self.graph.shapes.append(shape)
        index = len(self.graph.shapes) - 1
        if seed is not None:
            self.seed(index, seed, priority)
        return index

    def seed(self, value: int, text: str, priority: int = 0) -> None:
        placement = Placement.parse(text.replace("?", "-"))
        dims = tuple("?" in part for part in text.split(","))
        self.graph.seeds[value] = Seed(placement, dims[: placement.rank], priority)

    def op(self, rule: str, *operands: int, shape: tuple[int, ...], label: str = "") -> int:
        result = self.value(*shape)
        sized = FactorRule.parse(rule).with_sizes([self.graph.shapes[v] for v in operands], [shape])
        self.graph.nodes.append(Node(sized, operands, (result,), label))
        return result

    def run(self, mesh: AbstractMesh = MESH) -> Propagated:
        return propagate(self.graph, mesh)

    def placed(self, *values: int, mesh: AbstractMesh = MESH) -> list[str]:
        placements = self.run(mesh).placements
        return [str(placements[v]) for v in values]


def matmul(flow: Flow, x: int, w: int, label: str = "dot") -> int:
    (b, _), (_, n) = flow.graph.shapes[x], flow.graph.shapes[w]
    return flow.op("b k, k n -> b n | sum k", x, w, shape=(b, n), label=label)


def like(flow: Flow, *operands: int, label: str = "add") -> int:
    dims = " ".join("abcdef"[: len(flow.graph.shapes[operands[0]])])
    rule = f"{', '.join([dims] * len(operands))} -> {dims}"
    return flow.op(rule, *operands, shape=flow.graph.shapes[operands[0]], label=label)


# --- named programs ---------------------------------------------------------------------------------------------------


def mlp(batch_seed: str | None, w1_seed: str, w2_seed: str) -> tuple[Flow, dict[str, int]]:
    flow = Flow()
    v = {"x": flow.value(32, 16, seed=batch_seed)}
    v["w1"], v["b1"] = flow.value(16, 64, seed=w1_seed), flow.value(64)
    v["w2"] = flow.value(64, 16, seed=w2_seed)
    v["h"] = matmul(flow, v["x"], v["w1"], "dot1")
    v["bias"] = flow.op("f -> b f", v["b1"], shape=(32, 64), label="broadcast")
    v["a"] = like(flow, like(flow, v["h"], v["bias"]), label="relu")
    v["y"] = matmul(flow, v["a"], v["w2"], "dot2")
    v["out"] = like(flow, v["x"], v["y"], label="residual")
    return flow, v


def test_megatron_mlp() -> None:
    flow, v = mlp("[data, -]", "[-, model]", "[model, -]")
    result = flow.run()
    assert {name: str(result.placements[i]) for name, i in v.items()} == {
        "x": "[data, -]",
        "w1": "[-, model]",
        "b1": "[model]",
        "w2": "[model, -]",
        "h": "[data, model]",
        "bias": "[data, model]",
        "a": "[data, model]",
        "y": "[data, -]",
        "out": "[data, -]",
    }
    assert result.conflicts == []
    assert [(r.dim, r.axis, r.seed, r.labels) for r in explain(result, v["a"])] == [
        (0, "data", v["x"], ("dot1", "add", "relu")),
        (1, "model", v["w1"], ("dot1", "add", "relu")),
    ]
    assert [(r.seed, r.labels) for r in explain(result, v["b1"])] == [(v["w1"], ("dot1", "add", "broadcast"))]
    assert [(r.seed, r.nodes) for r in explain(result, v["x"])] == [(v["x"], ())]


def test_fully_sharded_weights_leave_the_batch_alone() -> None:
    flow, v = mlp("[data, -]", "[data, model]", "[model, data]")
    result = flow.run()
    assert [str(result.placements[v[n]]) for n in ("h", "a", "y", "out")] == ["[data, model]"] * 2 + ["[data, -]"] * 2
    lost = [(c.node, c.factor, c.value, c.kept, c.lost, c.offered_by) for c in result.conflicts]
    assert lost == [(4, "n", v["y"], ("data",), ("data",), v["w2"])]  # x is closed; y has given `data` to its rows


def test_hints_travel_backwards() -> None:
    flow, v = mlp(None, "[-, ?]", "[?, -]")
    flow.seed(v["out"], "[data, -]")
    flow.seed(v["a"], "[?, model]")
    assert flow.placed(v["x"], v["w1"], v["w2"], v["h"]) == ["[data, -]", "[-, model]", "[model, -]", "[data, model]"]


def test_attention() -> None:
    flow = Flow()
    x = flow.value(8, 16, 32, seed="[data, -, -]")
    wq = flow.value(32, 4, 8, seed="[-, model, -]")
    q, k, v = (flow.op("b t d, d h e -> b t h e | sum d", x, wq, shape=(8, 16, 4, 8)) for _ in range(3))
    scores = flow.op("b t h e, b s h e -> b h t s | sum e", q, k, shape=(8, 4, 16, 16))
    top = flow.op("b h t s -> b h t | max s", scores, shape=(8, 4, 16))
    weights = flow.op("b h t s, b h t -> b h t s", scores, top, shape=(8, 4, 16, 16))
    mixed = flow.op("b h t s, b s h e -> b t h e | sum s", weights, v, shape=(8, 16, 4, 8))
    merged = flow.op("b t h e -> b t (h e)", mixed, shape=(8, 16, 32))
    wo = flow.value(32, 32)
    out = flow.op("b t f, f d -> b t d | sum f", merged, wo, shape=(8, 16, 32))
    assert flow.placed(q, scores, top, mixed, merged, wo, out) == [
        "[data, -, model, -]",
        "[data, model, -, -]",
        "[data, model, -]",
        "[data, -, model, -]",
        "[data, -, model]",
        "[model, -]",
        "[data, -, -]",
    ]


# --- reshapes and sub-axes --------------------------------------------------------------------------------------------


def split(seed: str, whole: int, *parts: int, mesh: AbstractMesh = MESH) -> str:
    flow = Flow()
    x = flow.value(whole, seed=seed)
    y = flow.op("(a b) -> a b", x, shape=parts)
    return flow.placed(y, mesh=mesh)[0]


def merge(seed: str, *parts: int) -> str:
    flow = Flow()
    x = flow.value(*parts, seed=seed)
    y = flow.op("a b -> (a b)", x, shape=(parts[0] * parts[1],))
    return flow.placed(y)[0]


def test_reshapes() -> None:
    assert split("[data]", 32, 4, 8) == "[data, -]"
    assert split("[data*model]", 32, 4, 8) == "[data, model]"
    assert split("[data]", 32, 2, 16) == "[data:(1)2, data:(2)2]"
    assert split("[data]", 30, 3, 10) == "[-, -]"  # 4 shards do not cut 3 rows evenly
    assert merge("[data, -]", 4, 8) == "[data]"
    assert merge("[data, model]", 4, 8) == "[data*model]"
    assert merge("[-, model]", 4, 8) == "[model]"  # handed to the major dim
    assert merge("[model, data]", 4, 8) == "[model*data]"  # 2 of 4 rows: data cuts these first, then columns


def test_there_and_back_over_sub_axes() -> None:
    flow = Flow()
    x = flow.value(32, seed="[data]")
    y = flow.op("(a b) -> a b", x, shape=(2, 16))
    z = flow.op("a b -> (a b)", like(flow, y), shape=(32,))
    w = flow.op("(a b) -> a b", z, shape=(4, 8))
    assert flow.placed(y, z, w) == ["[data:(1)2, data:(2)2]", "[data]", "[data, -]"]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_small_factors_are_not_sharded() -> None:
    flow = Flow()
    x = flow.value(8, 1, 3, seed="[?, data, ?]")  # someone shards an extent of 1; nobody follows
    y = like(flow, x)
    z = flow.op("a 1 c, a b c -> a b c", x, flow.value(8, 6, 3), shape=(8, 6, 3))
    flow.seed(z, "[-, -, ?]")
    u = flow.value(3, 4, seed="[?, data]")
    v = flow.op("a b -> b a", u, shape=(4, 3))
    t = flow.op("b a -> (a b)", flow.value(4, 3, seed="[-, data]"), shape=(12,))  # 3 of 4 shards: no cut of a merged dim
    assert flow.placed(y, v, t) == ["[-, -, -]", "[data, -]", "[-]"]


def test_who_spreads_a_factor_thinly_is_followed() -> None:
    flow = Flow()
    u = flow.value(3, 6, seed="[data, -]")
    v = like(flow, u)
    w = flow.op("a b, b c -> a c | sum b", v, flow.value(6, 5), shape=(3, 5))
    z = flow.value(2, 6)  # of another extent: 2 over 4 was nobody's wish
    flow.graph.nodes.append(Node(FactorRule.parse("a b -> a b | permute a"), (v,), (z,)))
    assert flow.placed(v, w, z) == ["[data, -]", "[data, -]", "[-, -]"]
    late = Flow()
    a = late.value(3)
    late.seed(like(late, a), "[data]")
    assert late.placed(a) == ["[data]"]


def test_closed_dims_never_change_and_open_ones_do() -> None:
    flow = Flow()
    x = flow.value(8, 8, seed="[data, -]")
    closed, open_ = flow.value(8, 8, seed="[-, -]"), flow.value(8, 8, seed="[?, model]")
    y = like(flow, x, closed)
    z = like(flow, y, open_)
    assert flow.placed(closed, open_, y, z) == ["[-, -]", "[data, model]", "[data, model]", "[data, model]"]


def test_a_longer_prefix_is_followed_and_a_fork_is_not() -> None:
    flow = Flow()
    a, b = flow.value(16, seed="[data]"), flow.value(16, seed="[data*model]")
    assert flow.placed(like(flow, a, b)) == ["[data*model]"]
    flow = Flow()
    a, b = flow.value(16, seed="[data]"), flow.value(16, seed="[model]")
    c = like(flow, a, b)
    result = flow.run()
    assert str(result.placements[c]) == "[data]"
    assert [(k.node, k.factor, k.value, k.kept, k.lost, k.offered_by) for k in result.conflicts] == [
        (0, "a", b, ("model",), ("data",), a)
    ]


def test_replicate_and_permute_factors() -> None:
    flow = Flow()
    x = flow.value(8, 8, seed="[data, model]")
    y = flow.op("b n -> b n | replicate n", x, shape=(8, 8))
    z = flow.op("b n -> b n | permute n", x, shape=(8, 8))
    assert flow.placed(y, z) == ["[data, -]", "[data, model]"]


def test_partial_axes_block() -> None:
    flow = Flow()
    x = flow.value(8, 8, seed="[?, -] partial sum(data)")
    y = flow.value(8, 8, seed="[data, -]")
    like(flow, x, y)
    assert flow.placed(x) == ["[-, -] partial sum(data)"]


# --- contests ---------------------------------------------------------------------------------------------------------


def outer(rows: int, columns: int) -> tuple[Flow, int]:
    flow = Flow()
    a, b = flow.value(rows, 4, seed="[data, -]"), flow.value(4, columns, seed="[-, data]")
    return flow, matmul(flow, a, b)


def test_a_contested_axis_goes_where_most_elements_are() -> None:
    for rows, columns, expected in ((64, 16, "[data, -]"), (16, 64, "[-, data]"), (16, 16, "[data, -]")):
        flow, c = outer(rows, columns)
        assert flow.placed(c) == [expected]


def test_a_conflict_says_what_lost_and_can_be_turned() -> None:
    flow, c = outer(64, 16)
    (conflict,) = flow.run().conflicts
    assert (conflict.factor, conflict.values, conflict.dim) == ("n", (c, 1), 1)
    assert (conflict.kept, conflict.lost) == (("data",), ("data",))
    turned = Placement.replicated(2).with_dim(conflict.dim, conflict.lost)
    flow.graph.seeds[c] = Seed(turned, (True, False))
    assert flow.placed(c) == ["[-, data]"]


def test_broadcasts_come_after_all_else() -> None:
    flow = Flow()
    scale = flow.value(16, seed="[data]")
    wide = flow.op("d -> b d", scale, shape=(8, 16))
    x = flow.value(8, 16, seed="[data, -]")
    assert flow.placed(like(flow, wide, x)) == ["[data, -]"]


def test_user_priorities_come_first() -> None:
    for first, expected in ((0, "[data, -]"), (1, "[-, data]")):
        flow = Flow()
        a = flow.value(16, 16, seed="[data, -]", priority=first)
        b = flow.value(16, 16, seed="[-, data]", priority=1 - first)
        assert flow.placed(like(flow, a, b)) == [expected]


def test_of_equal_priorities_lower_ranks_come_first() -> None:
    for first, later, expected in ((0, 1, "[data, -]"), (1, 0, "[-, data]"), (2, 1, "[-, data]")):
        flow = Flow()
        a = flow.value(16, 16, seed="[data, -]")
        b = flow.value(16, 16, seed="[-, data]")
        for value, rank in ((a, first), (b, later)):
            flow.graph.seeds[value] = dataclasses.replace(flow.graph.seeds[value], rank=rank)
        assert flow.placed(like(flow, a, b)) == [expected]


def test_priorities_come_before_ranks() -> None:
    flow = Flow()
    a = flow.value(16, 16, seed="[data, -]")
    b = flow.value(16, 16, seed="[-, data]", priority=1)
    flow.graph.seeds[a] = dataclasses.replace(flow.graph.seeds[a], rank=9)
    assert flow.placed(like(flow, a, b)) == ["[data, -]"]


# --- ties -------------------------------------------------------------------------------------------------------------


def test_tied_values_share_a_placement() -> None:
    flow = Flow()
    init, carry, body, out = (flow.value(8, 8) for _ in range(4))
    w = flow.value(8, 8, seed="[-, model]")
    step = matmul(flow, carry, w)
    flow.graph.nodes.append(Node(FactorRule.elementwise(2, 1), (step,), (body,)))
    flow.seed(init, "[data, ?]")
    flow.graph.ties.append((init, carry, body, out))
    result = flow.run()
    assert {str(result.placements[v]) for v in (init, carry, body, out)} == {"[data, model]"}
    assert [r.seed for r in explain(result, out)] == [init, w]


def test_tied_seeds_that_differ_are_a_conflict() -> None:
    flow = Flow()
    a, b, c = flow.value(8, seed="[data]"), flow.value(8, seed="[model]"), flow.value(8, seed="[?]")
    flow.graph.ties.append((a, b, c))
    result = flow.run()
    assert [str(p) for p in result.placements] == ["[data]"] * 3
    assert [(k.node, k.value, k.kept, k.lost) for k in result.conflicts] == [(-1, b, ("data",), ("model",))]


def test_errors() -> None:
    flow = Flow()
    flow.graph.ties.append((flow.value(8), flow.value(9)))
    with pytest.raises(ShardingError, match=r"tied values 0 and 1 differ in shape: \(8,\) and \(9,\)"):
        flow.run()
    flow = Flow()
    flow.value(8, seed="[data, -]")
    with pytest.raises(ShardingError, match="the seed of value 0 is .* of 2 dims, its shape"):
        flow.run()
    flow = Flow()
    flow.graph.nodes.append(Node(FactorRule.elementwise(2, 1), (flow.value(8),), (flow.value(8),), "tanh"))
    with pytest.raises(ShardingError, match=r"node tanh: the rule's operands have ranks \[2\], its values \[1\]"):
        flow.run()


# --- laws -------------------------------------------------------------------------------------------------------------

RULES = ["a b, a b -> a b", "a b -> b a", "a k, k b -> a b | sum k", "a b -> a | sum b", "a b -> a b | permute b"]
SEEDS = ["[data, -]", "[-, model]", "[data, ?]", "[?, model]", "[-, -]", "[model, data]", "[data*model, -]"]


def random_flow(draw: random.Random, seeds: list[str]) -> Flow:
    flow = Flow()
    matrices = [flow.value(16, 16) for _ in range(3)]
    for _ in range(draw.randint(3, 12)):
        rule = draw.choice(RULES)
        count = rule.partition("->")[0].count(",") + 1
        shape = (16,) if rule.startswith("a b -> a |") else (16, 16)
        result = flow.op(rule, *draw.choices(matrices, k=count), shape=shape)
        if len(shape) == 2:
            matrices.append(result)
    for value in draw.sample(matrices, min(len(matrices), 3)):
        flow.seed(value, draw.choice(seeds))
    return flow


@given(st.integers(0, 10**6))
def test_results_are_legal_and_seeds_hold(number: int) -> None:
    flow = random_flow(random.Random(number), SEEDS)
    result = flow.run()
    for value, placement in enumerate(result.placements):
        assert first_overlap(placement.axes()) is None
        assert all(placement.shards(d, MESH) <= n for d, n in enumerate(flow.graph.shapes[value]))
        for reason in explain(result, value):
            assert reason.seed in flow.graph.seeds
            assert all(value in (*n.operands, *n.results) for n in [flow.graph.nodes[i] for i in reason.nodes[-1:]])
    for value, seed in flow.graph.seeds.items():
        for dim, axes in enumerate(seed.placement.dims):
            got = result.placements[value].dims[dim]
            assert got[: len(axes)] == axes and (seed.is_open(dim) or got == axes)


@given(st.integers(0, 10**6))
def test_without_conflicts_the_order_of_nodes_does_not_matter(number: int) -> None:
    draw = random.Random(number)
    flow = random_flow(draw, ["[data, -]", "[data, ?]", "[-, model]", "[?, model]", "[data, model]"])
    result = flow.run()
    nodes = draw.sample(flow.graph.nodes, len(flow.graph.nodes))
    other = propagate(dataclasses.replace(flow.graph, nodes=nodes), MESH)
    if not result.conflicts:
        assert result.placements == other.placements and not other.conflicts


def test_ten_thousand_nodes_take_seconds() -> None:
    flow = Flow()
    x = flow.value(32, 16, seed="[data, -]")
    for _ in range(2500):
        w1, w2 = flow.value(16, 64, seed="[-, model]"), flow.value(64, 16, seed="[model, -]")
        x = like(flow, x, matmul(flow, like(flow, matmul(flow, x, w1)), w2))
    start = time.process_time()
    result = flow.run()
    assert time.process_time() - start < 20
    assert str(result.placements[x]) == "[data, -]" and not result.conflicts
    assert len(explain(result, x)[0].nodes) == 2500  # by the residual path, the shortest


# --- a second opinion -------------------------------------------------------------------------------------------------


def shardy_results(body: str, arguments: list[tuple[tuple[int, ...], str | None]]) -> list[str]:
    """The placements that Shardy's propagation gives the results of `body`'s ops, in order; "-" everywhere if none."""
    from jaxlib.mlir import ir, passmanager  # a second opinion only: the package itself never imports jaxlib
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import sdy, stablehlo

    def argument(i: int, shape: tuple[int, ...], seed: str | None) -> str:
        text = f"%{i}: tensor<{'x'.join(map(str, shape))}xf32>"
        if seed is None:
            return text
        dims = ", ".join("{" + ", ".join(f'"{a}"' for a in axes) + "}" for axes in Placement.parse(seed).dims)
        return f"{text} {{sdy.sharding = #sdy.sharding<@mesh, [{dims}]>}}"

    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    sdy.register_dialect(context)
    header = ", ".join(argument(i, shape, seed) for i, (shape, seed) in enumerate(arguments))
    lines = body.strip().splitlines()
    kind = lines[-1].rsplit("->")[-1].rsplit(" : ")[-1].strip()
    last = lines[-1].split("=")[0].strip()
    source = f"""module {{ sdy.mesh @mesh = <["data"=4, "model"=2]>
      func.func public @main({header}) -> {kind} {{ {body}
        return {last} : {kind} }} }}"""
    with context:
        module = ir.Module.parse(source)
        passmanager.PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(module.operation)
        text = str(module)
    found: list[str] = []
    for line in text.splitlines():
        if " = stablehlo." in line:
            match = re.search(r"sdy\.sharding_per_value<\[<@mesh, \[(.*?)\]>\]>", line)
            dims = re.findall(r"\{([^}]*)\}", match[1]) if match else []
            parts = ["*".join(re.findall(r'"(\w+)"(?::\((\d+)\)(\d+))?', dim) and _refs(dim)) or "-" for dim in dims]
            found.append(f"[{', '.join(parts)}]")
    return found


def _refs(dim: str) -> list[str]:
    return [f"{n}:({p}){s}" if p else n for n, p, s in re.findall(r'"(\w+)"(?::\((\d+)\)(\d+))?', dim)]


def test_shardy_agrees_on_an_mlp() -> None:
    flow, v = mlp("[data, -]", "[-, model]", "[model, -]")
    body = """
        %4 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<32x16xf32>, tensor<16x64xf32>) -> tensor<32x64xf32>
        %5 = stablehlo.broadcast_in_dim %2, dims = [1] : (tensor<64xf32>) -> tensor<32x64xf32>
        %6 = stablehlo.add %4, %5 : tensor<32x64xf32>
        %7 = stablehlo.tanh %6 : tensor<32x64xf32>
        %8 = stablehlo.dot_general %7, %3, contracting_dims = [1] x [0] : (tensor<32x64xf32>, tensor<64x16xf32>) -> tensor<32x16xf32>
        %9 = stablehlo.add %0, %8 : tensor<32x16xf32>
    """  # noqa: E501
    arguments = [((32, 16), "[data, -]"), ((16, 64), "[-, model]"), ((64,), None), ((64, 16), "[model, -]")]
    ours = [flow.run().placements[v["h"] + i] for i in range(6)]
    assert shardy_results(body, arguments) == [str(p) for p in ours]


def test_shardy_agrees_on_reshapes_and_transposes() -> None:
    body = """
        %1 = stablehlo.reshape %0 : (tensor<32x6xf32>) -> tensor<2x16x6xf32>
        %2 = stablehlo.transpose %1, dims = [2, 0, 1] : (tensor<2x16x6xf32>) -> tensor<6x2x16xf32>
        %3 = stablehlo.reshape %2 : (tensor<6x2x16xf32>) -> tensor<6x32xf32>
    """
    flow = Flow()
    x = flow.value(32, 6, seed="[data, model]")
    y = flow.op("(a b) c -> a b c", x, shape=(2, 16, 6))
    z = flow.op("a b c -> c a b", y, shape=(6, 2, 16))
    w = flow.op("c a b -> c (a b)", z, shape=(6, 32))
    assert shardy_results(body, [((32, 6), "[data, model]")]) == flow.placed(y, z, w)
