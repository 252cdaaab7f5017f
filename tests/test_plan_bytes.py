"""Every mechanism that saves bytes on the wire, on the smallest program that shows it: kinds, counts and bytes, pinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.partition.partition import partition
from meshjit.plan.accumulate import accumulators
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import Machine
from meshjit.plan.delay import Delays
from meshjit.plan.draft import first_draft
from meshjit.plan.make import Annotations, make_plan
from meshjit.plan.proposals import spread_again
from meshjit.sharding import NamedSharding, PartitionSpec as P
from meshjit.simulate.devices import gather, scatter, simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh
from sharding.placement import Placement
from tests.tools.fuzz import drawn_by
from tests.tools.laws import check_law
from tests.tools.wire import MESH, moved, traced

CUBE = AbstractMesh((2, 2, 2), ("x", "y", "z"))

# -- reduce-scatter, also along minor dims where the machine only likes the first


def test_contraction_into_shards_along_a_minor_dim_is_one_reduce_scatter() -> None:
    arguments = {"f32[64, 128]": P(None, "data"), "f32[128, 256]": P("data", None)}
    for target in (target_of(MESH), target_of(MESH, ("tpu",))):
        assert moved(mnp.dot, arguments, [P(None, "data")], target=target) == ["1 reduce_scatter(data) 49152"]
        assert moved(mnp.dot, arguments, [P("data", None)], target=target) == ["1 reduce_scatter(data) 49152"]


def test_gather_along_a_minor_dim() -> None:
    for target in (target_of(MESH), target_of(MESH, ("tpu",))):
        assert moved(mnp.tanh, {"f32[6, 8, 4]": P(None, "data")}, [P()], target=target) == ["1 all_gather(data) 576"]


def test_minor_dims_that_do_not_divide() -> None:
    arguments = {"f32[64, 128]": P(None, "data"), "f32[128, 250]": P("data", None)}
    assert moved(mnp.dot, arguments, [P(None, "data")]) == ["1 reduce_scatter(data) 48384"]
    assert moved(mnp.tanh, {"f32[6, 7, 4]": P(None, "data")}, [P()]) == ["1 all_gather(data) 576"]


def test_scalar_products_of_grids_in_pencils_and_cubes_move_no_grid() -> None:
    """`vdot` makes vectors of grids, of which no shard of a pencil is a block: sums of each device's part are added up instead."""
    for mesh, spec in ((MESH, P("data", "model")), (MESH, P(None, "model", "data")), (CUBE, P("x", "y", "z"))):
        arguments: dict[str, P | None] = {"f32[16, 8, 12]": spec, "f32[16, 8, 12] #2": spec}
        (sent,) = moved(mnp.vdot, arguments, [P()], mesh)
        assert sent.startswith("1 all_reduce"), sent


def test_the_place_of_the_largest_element_of_a_grid_moves_no_grid() -> None:
    argument: dict[str, P | None] = {"f32[64, 64, 128]": P("data", "model")}
    assert sum(int(row.split()[-1]) for row in moved(mnp.argmax, argument, [P()])) < 64 * 64 * 128


@pytest.mark.parametrize("extent", [2**20, 2**20 - 3])
def test_a_ring_that_is_read_from_a_computed_place_goes_round_by_powers_of_two(extent: int) -> None:
    """Five shards where all others are 15; uneven ones are gathered."""
    devices, ring = AbstractMesh((16,), ("x",)), {f"f32[{extent}]": P("x"), "i32[]": None}
    shard = -(-extent // 16) * 4
    even = extent % 16 == 0
    assert moved(lambda x, n: mnp.roll(x, 5 * n), ring, [P("x")], devices, target_of(devices, ("tpu",))) == [
        f"5 collective_permute(pairs) {5 * shard}" if even else f"1 all_gather(x) {15 * shard}"
    ]


@pytest.mark.parametrize("extent", [2**30, 2**31 + 1024])
def test_places_in_long_rings_are_counted_in_numbers_that_hold_twice_their_extent(extent: int) -> None:
    """A shard's first place and the shift were added in int32, which 2**30 and 2**30 exceed."""
    placed = NamedSharding(AbstractMesh((4,), ("x",)), P("x"))
    types = mj.ShapeDtypeStruct((extent,), np.float32), mj.ShapeDtypeStruct((), np.int32)
    for fun in (mnp.roll, mj.grad(lambda x, n: (mnp.roll(x, n) * x).sum())):
        local = mj.jit(fun, in_shardings=(placed, None), out_shardings=placed).lower(*types).lowering.local
        (place,) = {eqn.inputs[0].dtype for eqn in local.eqns if eqn.op.name == "remainder" and eqn.inputs[0].dtype != np.int32} or {None}
        assert place == np.int64


def test_a_grid_that_is_mirrored_in_two_dims_goes_to_its_place_at_once() -> None:
    assert moved(mnp.flip, {"f32[16, 64]": P("data", "model")}, [P("data", "model")]) == ["1 collective_permute(pairs) 512"]


def test_diagonals_of_pencils_are_summed_not_brought_together() -> None:
    rows = moved(mnp.diagonal, {"f32[128, 96]": P("data", "model")}, [P()])
    assert sum(int(row.split()[-1]) for row in rows) < 2 * 96 * 4, rows


# -- conflicts settled by cost


def test_what_several_contractions_read_is_gathered_once_for_all() -> None:
    """For one of them it is cheaper to gather the weight and to exchange the result; for three, to gather what they share."""
    tpu = target_of(MESH, ("tpu",))
    weights = {f"f32[64, 64] #{i}": P(None, "model") for i in range(3)}
    arguments: dict[str, P | None] = {"f32[32, 512, 64]": P("data", "model"), **weights}
    result = P("data", None, "model")

    def several(x: Any, *weights: Any) -> Any:
        return tuple([mnp.dot(x, w) for w in weights])

    assert moved(several, arguments, [result] * 3, target=tpu) == ["1 all_gather(model) 524288"]
    alone: dict[str, P | None] = dict([*arguments.items()][:2])
    assert moved(several, alone, [result], target=tpu) == ["1 all_to_all(model) 262144", "1 all_gather(model) 8192"]


def fsdp_layers(table: Any, tokens: Any, up: Any, down: Any) -> Any:
    x = table[tokens]
    for i in range(3):
        x = x + mnp.dot(mnp.tanh(mnp.dot(x, up[i])), down[i])
    return x


FSDP = {
    "f32[64, 64]": P(None, "data"), "i32[4096]": P("data"), "f32[3, 64, 256]": P(None, "data", "model"),
    "f32[3, 256, 64]": P(None, "model", "data"),
}  # fmt: skip


def test_of_what_takes_as_long_the_one_that_sends_less_is_chosen() -> None:
    """The vectors of a product may meet whole, after two gathers, or along `model`, after one permute and a sum of one number."""
    mesh = AbstractMesh((2, 4), ("data", "model"))

    def rayleigh(matrix: Any, vector: Any) -> Any:
        return mnp.vdot(vector, matrix @ vector)

    arguments = {"f32[256, 256]": P("data", "model"), "f32[256]": P("model")}
    sent = ["2 all_reduce(model) 774", "1 collective_permute(pairs) 256"]
    assert moved(rayleigh, arguments, [P()], mesh) == sent


def test_the_batch_keeps_an_axis_that_the_parameters_want_too() -> None:
    """Weights are gathered where they are used; no activation is reduced over `data`."""
    for target in (target_of(MESH), target_of(MESH, ("tpu",))):
        rows = moved(fsdp_layers, FSDP, [None], target=target)
        assert rows == [
            "3 all_reduce(model) 786432", "6 all_gather(data) 147456", "1 all_gather(data) 12288",
        ]  # fmt: skip


def test_settling_is_deterministic_and_says_what_lost() -> None:
    program = traced(fsdp_layers, list(FSDP))
    plans = [make_plan(program, MESH, Annotations(list(FSDP.values()), [None])) for _ in range(2)]
    first, second = ([str(p) for p in plan.placements.values()] for plan in plans)
    assert first == second and plans[0].cost == plans[1].cost
    looked_up = next(eqn.outputs[0] for eqn in program.eqns if eqn.op.name == "gather")
    assert str(plans[0].placements[looked_up]) == "[data, -]"
    numbers = {v: i for i, v in enumerate(program.vars())}
    lost = [c for c in plans[0].conflicts if c.value == numbers[looked_up]]
    assert (1, ("data",), 0) in [(c.dim, c.lost, c.offered_by) for c in lost]
    origin = plans[0].origins[looked_up, 0, "data"]
    assert origin.seed == numbers[program.inputs[1]]  # from the tokens, as if they had been first


# -- partial sums reduced once


def test_addends_that_are_wanted_in_shards_are_added_before_one_reduce_scatter() -> None:
    def three(x: Any, y: Any, z: Any, q: Any, k: Any, v: Any) -> Any:
        return mnp.dot(x, q) + mnp.dot(y, k) + mnp.dot(z, v)

    arguments = {f"f32[64, 128] #{i}": P("data", "model") for i in range(3)}
    arguments |= {f"f32[128, 32] #{i}": P("model", None) for i in range(3)}
    assert moved(three, arguments, [P(("data", "model"), None)]) == ["1 reduce_scatter(model) 1024"]
    assert moved(three, arguments, [P("data", None)]) == ["1 all_reduce(model) 2048"]


@pytest.mark.parametrize("dims, collects", [((("model",),), True), (((),), True), ((("data",),), False)])
def test_an_axis_that_shards_a_carry_cannot_hold_its_addends(dims: Any, collects: bool) -> None:
    def total(start: Any, xs: Any, v: Any) -> Any:
        return lax.scan(lambda carry, x: (carry + mnp.dot(x, v), None), start, xs)[0]

    program = traced(total, ["f32[8]", "f32[3, 8, 16]", "f32[16]"])
    scan = next(eqn for eqn in program.eqns if eqn.op.regions is not None)
    (region,) = scan.op.regions(scan.params)
    (i, _), body = region.carried[0], region.program
    placements = {v: Placement.replicated(v.rank) for v in body.vars()} | {body.inputs[i]: Placement(dims)}
    addend = next(eqn for eqn in body.eqns if eqn.op.name == "dot_general").outputs[0]
    delays = Delays(body, Machine(MESH, target_of(MESH)), {addend: Placement(((),), (("data", "sum"),))})
    assert accumulators(region, delays, placements) == ({i: Placement(dims, (("data", "sum"),))} if collects else {})


def test_a_turned_conflict_may_shard_a_carry_that_would_have_collected() -> None:
    check_law(*drawn_by(9100211))  # nested scans of a gather; planning once failed here


def test_what_is_made_again_fits_uneven_shards_of_merged_dims() -> None:
    check_law(*drawn_by(5879))  # (6 5) of 30 over 8: dims of 6 can be cut so, the merged one cannot


def test_what_waits_at_one_barrier_may_be_sharded_over_the_same_axis() -> None:
    def step(w: Any, v: Any, x: Any) -> Any:
        w, v, x = lax.optimization_barrier((w, v, x))
        return (x @ w) @ v

    specs = {"f32[16, 32]": P(None, "model"), "f32[32, 16]": P("model"), "f32[8, 16]": P("data")}
    assert moved(step, specs, [P("data")]) == ["1 all_reduce(model) 128"]


# -- outputs that nobody placed


def test_a_free_output_is_handed_over_as_it_is_computed() -> None:
    """Propagation gives the transform `data` alone; it is computed over both axes, and gathering it would be for nothing."""
    argument: dict[str, P | None] = {"c64[256, 256]": P("data", "model")}
    exchanged = ["1 all_to_all(data, model) 57344", "1 all_to_all(model) 32768"]
    assert moved(mnp.fft.fft2, argument, [None]) == exchanged
    assert "1 all_gather(model)" in str(moved(mnp.fft.fft2, argument, [P(None, "data")]))


def test_a_free_output_that_may_be_the_next_input_keeps_the_placement_of_the_input() -> None:
    argument: dict[str, P | None] = {"c64[256, 256]": P(None, "data")}
    step = lambda x: mnp.fft.fft2(x) * x  # noqa: E731
    assert moved(step, argument, [None]) == moved(step, argument, [P(None, "data")])


def test_a_free_output_lies_as_what_the_user_constrained_before_it() -> None:
    def step(x: Any) -> Any:
        return lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P("model"))) + 1

    argument: dict[str, P | None] = {"f32[256, 256]": P("data", "model")}
    assert moved(step, argument, [None]) == moved(step, argument, [P("model")])


# -- what is gathered once


def test_a_sort_whose_result_is_read_whole_leaves_it_whole() -> None:
    """Keys and values are gathered to be sorted; neither they nor what follows from them are gathered again."""

    def buckets(keys: Any, values: Any) -> Any:
        keys, values = lax.sort((keys, values), num_keys=1)
        starts = mnp.searchsorted(keys, mnp.arange(8))
        return mnp.zeros((8, 64)).at[keys, mnp.arange(128) - starts[keys]].set(values, mode="drop")

    arguments = {"i32[128]": P("data"), "f32[128]": P("data")}
    assert moved(buckets, arguments, [P()]) == ["2 all_gather(data) 768"]


def test_a_sort_whose_result_is_read_in_shards_leaves_it_in_shards() -> None:
    arguments = {"i32[4096]": P("data"), "f32[4096]": P("data")}
    kept = [P("data"), P("data")]
    assert moved(lambda k, v: lax.sort((k * 3, v), num_keys=1), arguments, kept) == ["2 all_gather(data) 24576"]


# -- what does not change in a loop, moved before it or not


def test_a_table_is_not_gathered_before_a_loop_that_looks_up_few_rows() -> None:
    """One gather starts fewer messages than a sum in every iteration, and takes less than half their time in this loop alone, but
    not in all of the program."""

    def decoded(table: Any, weight: Any, ids: Any) -> Any:
        def step(ids: Any, _: Any) -> tuple[Any, Any]:
            rows = mnp.tanh(table[ids] @ weight) @ weight.T
            return (ids + 1) % 64, rows

        return lax.scan(step, ids, None, length=8)[1]

    arguments = {"f32[64, 32]": P("model"), "f32[32, 32]": P(None, "model"), "i32[4]": P("data")}
    result = [P(None, "data")]
    assert moved(decoded, arguments, result) == ["16 all_reduce(model) 2048"]


def test_a_turned_conflict_is_planned_without_what_it_gathers_before_a_loop() -> None:
    """The carry is better over `data`, as the product leaves it: rejected with the matrix gathered for it, taken without."""

    def lanczos(matrix: Any, first: Any) -> Any:
        def step(basis: Any, k: Any) -> tuple[Any, Any]:
            w = matrix @ basis[k]
            w = w - basis.T @ (basis @ w)
            return basis.at[k + 1].set(w), mnp.vdot(w, w)

        return lax.scan(step, mnp.zeros((21, 1024)).at[0].set(first), mnp.arange(20))[1]

    arguments = {"f32[1024, 1024]": P("data", "model"), "f32[1024]": P("model")}
    sent = moved(lanczos, arguments, [P()])
    assert sent[:2] == ["20 all_gather(data:(1)2) 20480", "20 all_reduce(model) 20480"]
    assert sum([int(text.rsplit(" ", 1)[1]) for text in sent]) == 65104


def rotated(state: Any, angles: Any) -> Any:
    """Three rounds of rotations of every qubit of a register, whose state has a dim of two for each."""
    for round in angles:
        for qubit in range(state.ndim):
            c, s = mnp.cos(round[qubit]), mnp.sin(round[qubit])
            gate = mnp.stack([mnp.stack([c, -s]), mnp.stack([s, c])])
            state = mnp.moveaxis(mnp.tensordot(gate, state, axes=((1,), (qubit,))), 0, qubit)
    return state


@pytest.mark.parametrize(("platform", "shards", "held"), [("cpu", 13, 6), ("tpu", 6.5, 4)])
def test_axes_of_dims_that_are_summed_go_on_to_others(platform: str, shards: float, held: float) -> None:
    """JAX sends 14 shards, and from the third qubit on every device computes the whole state."""
    qubits, mesh = 24, CUBE
    types = mj.ShapeDtypeStruct((2,) * qubits, np.float32), mj.ShapeDtypeStruct((3, qubits), np.float32)
    placed = NamedSharding(mesh, P("x", "y", "z"))
    step = mj.jit(rotated, in_shardings=(placed, NamedSharding(mesh, P())), out_shardings=placed)
    plan = step.trace(*types).plan(lowering_platforms=[platform]).plan
    assert plan.cost is not None
    shard = 4 * 2**qubits / mesh.size
    assert (plan.cost.wire_bytes / shard, plan.cost.peak_bytes / shard) == pytest.approx((shards, held), abs=0.01)
    (shared,) = [trial for trial in plan.trials if trial.kind == "shared"]
    assert shared.is_accepted and "over the axes that they would lose" in shared.text and shared.source


def test_they_do_in_what_was_planned_before() -> None:
    """The rules of equations of a draft that is known are not asked for again, and the proposal took those asked for as all."""
    program, assigner = traced(rotated, ["f32[2, 2, 2, 2, 2, 2, 2, 2]", "f32[6, 8]"]), Assigner(Machine(CUBE, target_of(CUBE)))
    annotations = Annotations([P("x", "y", "z"), None], [P("x", "y", "z")])
    (first,), (again,) = (spread_again.propose(first_draft(program, annotations, assigner)) for _ in range(2))
    assert first.key == again.key and first.text.startswith("shard further dims of 22 values")


def test_what_they_go_on_to_computes_the_same() -> None:
    """Of few elements the other plan is cheaper, so it is not chosen."""
    program = traced(rotated, ["f32[2, 2, 2, 2, 2]", "f32[2, 5]"])
    machine = Machine(CUBE, target_of(CUBE))
    draft = first_draft(program, Annotations([P("x", "y", "z"), None], [P("x", "y", "z")]), Assigner(machine))
    (proposal,) = spread_again.propose(draft)
    plan = proposal.apply(draft, None).plan
    arrays = [np.random.default_rng(0).random(t.shape, np.float32) for t in program.input_types]
    shards = [scatter(a, p, CUBE) for a, p in zip(arrays, plan.inputs, strict=True)]
    (got,) = simulate(simplify(partition(plan)), CUBE, shards)
    (want,) = evaluate(program, arrays)
    np.testing.assert_allclose(gather(got, plan.outputs[0], want.shape, CUBE), want, rtol=1e-5)


@pytest.mark.parametrize(("start", "rows"), [(2, 2), (7, 3), (12, 2)])
def test_a_few_rows_go_to_the_shards_that_they_are_on(start: int, rows: int) -> None:
    """Two rows over eight devices lie on two of them. The other six got the rows behind them, in a permute each."""

    def mirrored(u: Any) -> Any:
        return u.at[:rows].set(u[start : start + rows][::-1])

    lines = moved(mirrored, {"f32[64, 4]": P("x")}, [P("x")], AbstractMesh((8,), ("x",)))
    permutes = sum(int(line.split()[0]) for line in lines if "collective_permute" in line)
    assert permutes <= rows, lines
