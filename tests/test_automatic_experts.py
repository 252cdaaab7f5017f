"""The automatic planner finds, unprompted, the plans that experts write by hand; each against the bytes of its closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.core.decision import parse_decisions, print_decisions
from meshjit.core.plan import Plan
from meshjit.core.types import DTYPES
from meshjit.sharding import AUTO, AbstractMesh, PartitionSpec as P
from sharding.mesh import AbstractDevice

N = 8
H100 = AbstractDevice("NVIDIA H100", None, "gpu")
MESH = AbstractMesh((N,), ("x",), abstract_device=H100)


def of(*shape: int, dtype: Any = np.float32) -> Any:
    return mj.ShapeDtypeStruct(shape, dtype)


def planned(fun: Any, *args: Any, mesh: AbstractMesh = MESH, **options: Any) -> Plan:
    plan = mj.auto(fun, mesh=mesh, **options).trace(*args).plan().plan
    assert plan.optimum is not None and plan.optimum.is_optimal
    return plan


def inputs(plan: Plan) -> list[str]:
    return [str(p) for p in plan.inputs]


def kinds(plan: Plan) -> list[str]:
    return [each.kind for each in plan.collectives]


def wire(plan: Plan) -> float:
    assert plan.cost is not None
    return plan.cost.wire_bytes


def mlp(weights: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        y = x
        for w in weights:
            y = nn.relu(mnp.dot(y, w))
        return mnp.mean(y * y)

    return [w - 0.1 * g for w, g in zip(weights, mj.grad(loss)(weights), strict=True)]


def test_data_parallel_for_a_small_model_and_a_large_batch() -> None:
    """One all-reduce of every gradient, of 4 * 256 * 256 bytes."""
    plan = planned(mlp, [of(256, 256)] * 3, of(65536, 256))
    assert inputs(plan) == ["[-, -]"] * 3 + ["[x, -]"]
    assert kinds(plan) == ["all_reduce"] * 3
    assert wire(plan) == 3 * 2 * (4 * 256 * 256) * (N - 1) / N


TWO = AbstractMesh((2, 4), ("x", "y"), abstract_device=H100)
SQUARE = AbstractMesh((8, 8), ("x", "y"), abstract_device=H100)
BF16 = DTYPES["bf16"]


@pytest.mark.parametrize(
    ("mesh", "width", "rows", "dtype"),
    [(MESH, 512, 131072, BF16), (TWO, 256, 65536, np.float32), (SQUARE, 256, 524288, np.float32)],
    ids=["bf16", "2x4", "8x8"],
)
def test_data_parallel_over_any_mesh(mesh: AbstractMesh, width: int, rows: int, dtype: Any) -> None:
    """The batch over all axes, one all-reduce of every gradient over all of them."""
    plan = planned(mlp, [of(width, width, dtype=dtype)] * 3, of(rows, width, dtype=dtype), mesh=mesh)
    axes, count = "*".join(mesh.axis_names), mesh.device_count
    assert inputs(plan) == ["[-, -]"] * 3 + [f"[{axes}, -]"] and kinds(plan) == ["all_reduce"] * 3
    assert wire(plan) == 3 * 2 * np.dtype(dtype).itemsize * width**2 * (count - 1) / count


def test_shards_of_parameters_that_are_larger_than_activations() -> None:
    """ZeRO-3 (arXiv 1910.02054): each weight is gathered once and kept, each gradient is scattered; where the memory is too short to
    keep them, some are gathered once more for the way back."""
    weights, x = [of(4096, 4096)] * 8, of(8192, 4096)
    each = 4 * 4096 * 4096 * (N - 1) / N
    plan = planned(mlp, weights, x)
    assert inputs(plan) == ["[x, -]"] * 9
    assert sorted(kinds(plan)) == ["all_gather"] * 8 + ["reduce_scatter"] * 8 and wire(plan) == 16 * each
    assert plan.cost is not None and plan.cost.peak_bytes > 7e8
    tight = mj.auto(mlp, mesh=MESH, memory=7e8).trace(weights, x).plan().plan
    assert tight.cost is not None and tight.cost.peak_bytes <= 7e8 and inputs(tight) == inputs(plan)
    again = wire(tight) / each - 16
    assert again == round(again) and 1 <= again <= 7


def test_column_then_row_for_a_wide_pair() -> None:
    """Megatron (arXiv 1909.08053): one all-reduce of the activations of a pair, forward; none backward, x has no gradient."""
    plan = planned(mlp, [of(8192, 32768), of(32768, 8192)], of(64, 8192))
    assert inputs(plan) == ["[-, x]", "[x, -]", "[-, -]"]
    assert kinds(plan) == ["all_reduce"]
    assert wire(plan) == 2 * (4 * 64 * 8192) * (N - 1) / N


@pytest.mark.parametrize(("mesh", "dtype"), [(MESH, BF16), (TWO, np.float32)], ids=["bf16", "2x4"])
def test_column_then_row_over_any_mesh(mesh: AbstractMesh, dtype: Any) -> None:
    plan = planned(mlp, [of(8192, 32768, dtype=dtype), of(32768, 8192, dtype=dtype)], of(64, 8192, dtype=dtype), mesh=mesh)
    axes = "*".join(mesh.axis_names)
    assert inputs(plan) == [f"[-, {axes}]", f"[{axes}, -]", "[-, -]"] and kinds(plan) == ["all_reduce"]
    assert wire(plan) == 2 * (np.dtype(dtype).itemsize * 64 * 8192) * (N - 1) / N


def normalized(x: Any) -> Any:
    centred = x - mnp.mean(x, -1, keepdims=True)
    return centred / mnp.sqrt(mnp.mean(centred**2, -1, keepdims=True) + 1e-5)


def block(weights: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        return mnp.mean((x + mnp.dot(nn.gelu(mnp.dot(normalized(x), weights[0])), weights[1])) ** 2)

    return [w - g for w, g in zip(weights, mj.grad(loss)(weights), strict=True)]


def test_sequence_parallel_beside_tensor_parallel() -> None:
    """Korthikanti et al. (arXiv 2205.05198): the all-reduce behind the pair is a reduce-scatter to shards of the sequence, where the
    residual and the loss are, and a gather of the cotangent back."""
    plan = planned(block, [of(4096, 16384), of(16384, 4096)], of(1, 2048, 4096))
    assert inputs(plan)[:2] == ["[-, x]", "[x, -]"]
    assert kinds(plan) == ["reduce_scatter", "all_gather"]
    assert wire(plan) == 2 * (4 * 2048 * 4096) * (N - 1) / N


def test_sequence_parallel_alone_where_tokens_outnumber_features() -> None:
    plan = planned(
        lambda x, v, w: x + mnp.dot(nn.gelu(mnp.dot(normalized(x), v)), w), of(1, 16384, 512), of(512, 2048), of(2048, 512)
    )
    assert inputs(plan) == ["[-, x, -]", "[-, -]", "[-, -]"]
    assert wire(plan) == 0


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = mnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    return mnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores, -1), v)


def test_context_parallel_for_a_long_sequence_of_one_head() -> None:
    """Queries stay; keys and values, given in shards of the sequence, are gathered once each."""
    q = of(1, 8192, 1, 64)
    plan = planned(attention, q, q, q, in_shardings=(AUTO, P(None, "x"), P(None, "x")))
    assert inputs(plan) == ["[-, x, -, -]"] * 3
    assert kinds(plan) == ["all_gather"] * 2
    assert wire(plan) == 2 * (4 * 8192 * 64) * (N - 1) / N


def test_spatial_sharding_of_one_large_image() -> None:
    """One row of the image to each neighbour."""

    def layer(x: Any, w: Any) -> Any:
        return nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))

    plan = planned(layer, of(1, 4096, 4096, 16), of(3, 3, 16, 16))
    assert inputs(plan) == ["[-, x, -, -]", "[-, -, -, -]"]
    assert kinds(plan) == ["collective_permute"] * 2
    assert wire(plan) == 2 * (4 * 4096 * 16)


def test_vocabulary_parallel_embedding_and_loss() -> None:
    """The table in shards of the vocabulary: an all-reduce of the activations forward and one backward; besides, the loss sums up
    a few numbers per token: the maximum, the sum of exponentials, and the logit of the label."""

    def step(table: Any, tokens: Any, labels: Any) -> Any:
        def loss(table: Any) -> Any:
            logits = mnp.einsum("btd,vd->btv", table[tokens], table)
            return -mnp.mean(mnp.take_along_axis(nn.log_softmax(logits, -1), labels[..., None], -1))

        return table - 0.1 * mj.grad(loss)(table)

    tokens = of(4, 64, dtype=np.int32)
    plan = planned(step, of(131072, 512), tokens, tokens)
    assert inputs(plan)[0] == "[x, -]" and str(plan.outputs[0]) == "[x, -]"
    assert set(kinds(plan)) == {"all_reduce"}
    activations, tokens_bytes = 4 * 4 * 64 * 512, 4 * 4 * 64
    assert wire(plan) == (2 * activations + 3 * tokens_bytes) * 2 * (N - 1) / N


def test_expert_parallel_for_a_mixture() -> None:
    """GShard (arXiv 2006.16668): tokens go to the experts and come back by all-to-alls, dispatch and combine, and their gradients."""

    def step(experts: Any, x: Any, combine: Any) -> Any:
        def loss(experts: Any, x: Any) -> Any:
            h = nn.relu(mnp.einsum("egcm,emh->egch", mnp.einsum("gsec,gsm->egcm", combine, x), experts[0]))
            return mnp.mean(mnp.einsum("gsec,egcm->gsm", combine, mnp.einsum("egch,ehm->egcm", h, experts[1])) ** 2)

        gradients, back = mj.grad(loss, (0, 1))(experts, x)
        return [w - 0.1 * g for w, g in zip(experts, gradients, strict=True)], back

    experts, tokens, slots = [of(8, 1024, 4096), of(8, 4096, 1024)], of(8, 1024, 1024), of(8, 1024, 8, 160)
    plan = planned(step, experts, tokens, slots, in_shardings=(AUTO, P("x"), P("x")))
    assert inputs(plan)[:2] == ["[x, -, -]"] * 2
    assert kinds(plan) == ["all_to_all"] * 4
    dispatched = 4 * 8 * 160 * 1024  # bytes of (expert, capacity, features) of one group
    assert wire(plan) == 4 * dispatched * (N - 1) / N


@pytest.mark.parametrize("mesh", [MESH, TWO], ids=["8", "2x4"])
def test_a_fourier_transform_hands_over_its_dims(mesh: AbstractMesh) -> None:
    """Rows, an all-to-all, columns, and an all-to-all back: the result comes as the argument went in."""
    plan = planned(mnp.fft.fft2, of(4096, 4096, dtype=np.complex64), mesh=mesh)
    assert inputs(plan) == [f"[{'*'.join(mesh.axis_names)}, -]"]
    assert kinds(plan) == ["all_to_all"] * 2
    assert wire(plan) == 2 * (8 * 4096 * 4096 / N) * (N - 1) / N


def test_a_stencil_exchanges_borders() -> None:
    """Ten steps with a border of ten places per side at once, instead of a message per step."""

    def heat(u: Any) -> Any:
        def body(u: Any, _: Any) -> Any:
            around = mnp.roll(u, 1, 0) + mnp.roll(u, -1, 0) + mnp.roll(u, 1, 1) + mnp.roll(u, -1, 1)
            return u + 0.1 * (around - 4 * u), None

        return lax.scan(body, u, None, length=10)[0]

    plan = mj.auto(heat, mesh=MESH).trace(of(8192, 8192)).plan().plan  # in blocks of iterations, of which bounds say nothing
    assert kinds(plan) == ["collective_permute"] * 2
    assert wire(plan) == 2 * 10 * (4 * 8192)


def life(board: Any) -> Any:
    def step(_: Any, board: Any) -> Any:
        near = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        count = sum(mnp.roll(board, place, (0, 1)) for place in near)
        return ((count == 3) | ((board == 1) & (count == 2))).astype(mnp.int32)

    return lax.fori_loop(0, 10, step, board)


def heat(u: Any, k: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        return u + k * (mnp.roll(u, 1, 0) + mnp.roll(u, -1, 0) + mnp.roll(u, 1, 1) + mnp.roll(u, -1, 1) - 4 * u)

    return lax.fori_loop(0, 20, step, u)


@pytest.mark.parametrize("shape", [(128, 67), (512, 512)])
@pytest.mark.parametrize("fun", [life, heat], ids=["life", "heat"])
def test_loops_in_blocks_are_spread_in_the_best_of_all_ways(fun: Any, shape: tuple[int, int], tmp_path: Any) -> None:
    """One way was tried, which depended on the order of the axes; a pin of another was faster by up to 42 %."""
    arguments = [of(*shape, dtype=np.int32)] if fun is life else [of(*shape), of()]
    seconds = list[float]()
    for sizes in ((2, 4), (4, 2)):
        mesh = AbstractMesh(sizes, ("x", "y"))
        traced = mj.auto(fun, mesh=mesh).trace(*arguments)
        plan, name = traced.plan().plan, "board" if fun is life else "u"
        assert plan.cost is not None
        seconds.append(plan.cost.seconds)
        for spec in (P("x"), P("y"), P(("x", "y")), P("x", "y"), P("y", "x"), P(None, ("x", "y"))):
            pinned = traced.plan(pins={name: spec}).plan.cost
            assert pinned is not None and pinned.seconds * (1 + 1e-9) >= plan.cost.seconds, spec
        plan.save(tmp_path / "plan.json")
        again = mj.auto(fun, mesh=mesh, plan=tmp_path / "plan.json").trace(*arguments).plan().plan
        assert again.cost == plan.cost and again.inputs == plan.inputs
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-9)


@pytest.mark.parametrize("rows", [2048, 8192])
def test_tensor_parallel_over_two_axes(rows: int) -> None:
    """Weights over both axes, activations gathered along one and summed along the other: no device holds a whole row or column."""
    mesh = AbstractMesh((4, 2), ("x", "y"), abstract_device=H100)
    plan = planned(mlp, [of(4096, 8192), of(8192, 4096)], of(rows, 4096), mesh=mesh)
    assert inputs(plan)[:2] == ["[-, x*y]", "[x, y]"]
    assert sorted(kinds(plan)) == ["all_gather", "all_gather", "reduce_scatter", "reduce_scatter"]
    hidden, out = 4 * rows * 8192, 4 * rows * 4096  # bytes, whole
    along_y, along_x = hidden / 4 * 1 / 2 * 2, out / 2 * 3 / 4 * 2  # gather and scatter over y of a hidden, over x of a result
    assert wire(plan) == along_y + along_x


def sentences(plan: Plan) -> list[str]:
    return [str(decision) for decision in plan.decisions if decision.kind == "group"]


def rotated(state: Any, angles: Any) -> Any:
    """A rotation of every qubit of a register, whose state has a dim of two for each."""
    for qubit in range(state.ndim):
        c, s = (f(angles[qubit]).astype(np.complex64) for f in (mnp.cos, mnp.sin))
        gate = mnp.stack([mnp.stack([c, -1j * s]), mnp.stack([-1j * s, c])])
        state = mnp.moveaxis(mnp.tensordot(gate, state, axes=((1,), (qubit,))), 0, qubit)
    return state


@pytest.mark.parametrize(("qubits", "axes"), [(20, 4), (30, 6)])
def test_a_register_exchanges_each_qubit_that_is_divided_once(qubits: int, axes: int) -> None:
    """A device sends what it holds for each of them. There are 30 ** 6 ways to spread six axes over 30 dims: they are not gone
    through."""
    mesh = AbstractMesh((2,) * axes, tuple("abcdef"[:axes]))
    arguments = of(*(2,) * qubits, dtype=np.complex64), of(qubits)
    plan = mj.auto(rotated, mesh=mesh).trace(*arguments).plan().plan
    assert wire(plan) == axes * 8 * 2**qubits / 2**axes


def turned(state: Any, angles: Any) -> Any:
    """The same of a state that is one vector."""
    for qubit in range(angles.size):
        pairs = state.reshape(2**qubit, 2, -1)
        c, s, (a, b) = mnp.cos(angles[qubit]), mnp.sin(angles[qubit]), (pairs[:, 0], pairs[:, 1])
        state = mnp.stack([c * a - s * b, s * a + c * b], 1).reshape(-1)
    return state


V5P = AbstractDevice("TPU v5p", None, "tpu")


@pytest.mark.parametrize("shape", [(8,), (4, 2)])
def test_a_register_that_is_one_vector_exchanges_halves_of_shards(shape: tuple[int, ...], tmp_path: Any) -> None:
    """Over parts of axes: each of three qubits is brought to where its two halves meet, and no other."""
    qubits, mesh = 26, AbstractMesh(shape, ("x", "y")[: len(shape)], abstract_device=V5P)
    arguments = of(2**qubits), of(qubits)
    plan = mj.auto(turned, mesh=mesh).trace(*arguments).plan().plan
    shard = 4 * 2**qubits / mesh.size
    assert wire(plan) == 3 * shard and plan.cost is not None and plan.cost.peak_bytes < 4.01 * shard
    assert plan.optimum is not None and not plan.optimum.is_proved
    plan.save(tmp_path / "plan.json")
    again = mj.auto(turned, mesh=mesh, plan=tmp_path / "plan.json").trace(*arguments).plan().plan
    assert again.cost == plan.cost and again.equations == plan.equations


def test_dims_that_are_split_alike_are_a_sentence() -> None:
    """What splitting saves and sends, with lines; all that is sent belongs to some group."""
    plan = planned(mlp, [of(256, 256)] * 3, of(65536, 256))
    line = mlp.__code__.co_firstlineno
    (text,) = sentences(plan)
    assert text.splitlines() == [
        "group rows of x and 24 other values: split over x in 8, in"
        f" lines {line + 4} to {line + 5}  # test_automatic_experts.py:{line + 4} mlp.<locals>.loss",
        "  because saves 446.1 us of work",
        f"  because sends 3 times all_reduce over x, 262,144 bytes at line {line + 7}",
        "  costs 33.06 us",
    ]
    wide = sentences(planned(mlp, [of(8192, 32768), of(32768, 8192)], of(64, 8192)))
    assert wide[0].startswith("group columns of weights_0, rows of weights_1 and 15 other values: split over x in 8, in lines ")


def scanned(weights: Any, x: Any) -> Any:
    return lax.scan(lambda y, w: (nn.relu(mnp.dot(y, w)), None), x, weights)[0]


@pytest.mark.parametrize("mesh", [MESH, AbstractMesh((4, 2), ("x", "y"), abstract_device=H100)], ids=str)
@pytest.mark.parametrize(
    ("fun", "arguments"),
    [
        (mlp, ([of(4096, 8192), of(8192, 4096)], of(2048, 4096))),
        (block, ([of(4096, 16384), of(16384, 4096)], of(1, 2048, 4096))),
        (scanned, (of(6, 4096, 4096), of(64, 4096))),
        (mnp.fft.fft2, (of(4096, 4096, dtype=np.complex64),)),
        (lambda x: mnp.sum(x) + mnp.max(mnp.roll(x, 1, 0)), (of(32768, 32768),)),
    ],
    ids=["pair", "block", "scan", "fft", "roll"],
)
def test_groups_account_for_all_that_is_sent(fun: Any, arguments: Any, mesh: AbstractMesh) -> None:
    plan = mj.auto(fun, mesh=mesh).trace(*arguments).plan().plan
    assert plan.target is not None
    sent = sum(each.seconds(mesh, plan.target.topology) for each in plan.collectives)
    told = [decision for decision in plan.decisions if decision.kind == "group"]
    assert sum(decision.microseconds or 0 for decision in told) == pytest.approx(1e6 * sent, rel=2e-3)
    assert told and parse_decisions(print_decisions(told)) == told
