"""The Target: which one a mesh and platforms ask for, and that plans and texts differ where targets do."""

from __future__ import annotations

import dataclasses
import re
import types
import warnings
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, targets
from meshjit.cli.plan import overlap_text
from meshjit.config import config
from meshjit.runtime.targets import target_for
from meshjit.targets import target_of
from sharding import AbstractDevice, AbstractMesh, Mesh, NamedSharding, P

MESH = AbstractMesh((4,), ("x",))
PLATFORMS = ("cpu", "gpu", "tpu")
GPUS, TPUS = (
    AbstractMesh((4,), ("x",), abstract_device=AbstractDevice(kind, None, platform))
    for kind, platform in (("NVIDIA H100", "gpu"), ("TPU v5 lite", "tpu"))
)


def devices(platform: str, kind: str = "") -> Mesh:
    return Mesh([types.SimpleNamespace(id=i, process_index=0, platform=platform, device_kind=kind) for i in range(4)], ("x",))


def lowered(fun: Any, shape: tuple[int, ...], platform: str) -> Any:
    argument = mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P("x")))
    return mj.jit(fun).trace(argument).lower(lowering_platforms=(platform,))


def test_devices_and_platforms_name_the_target() -> None:
    assert target_of(MESH).platform == "cpu" and not target_for(MESH).may_call_kernels
    assert str(target_of(devices("cuda", "NVIDIA A100-SXM4-80GB"))) == "gpu a100"
    assert str(target_of(devices("tpu", "TPU v5"))) == "tpu v5p"
    assert str(target_of(devices("tpu", "TPU v6 lite"), ("tpu",))) == "tpu v6e"
    assert [str(target_of(devices("cpu", "cpu"), (p,))) for p in PLATFORMS] == ["cpu", "gpu h100", "tpu v5e"]
    assert target_for(devices("cpu")).may_call_kernels and target_for(MESH, ("cpu",)).may_call_kernels
    assert hash(target_for(MESH)) == hash(target_for(MESH)) and target_for(MESH) == target_for(MESH)


def test_of_several_platforms_the_first_is_planned_for_and_all_can_read_the_text() -> None:
    both = target_for(MESH, ("tpu", "cpu"))
    assert str(both) == "tpu v5e" and both.has_slow_gathers and not both.may_call_kernels
    assert both.loses_nan and both.needs_barrier_before_all_to_all and both.materializes_updates
    assert target_for(MESH, ("cpu", "gpu")).ends_at_sums_of_constants and not both.ends_at_sums_of_constants
    assert not target_for(MESH, ("tpu",)).loses_nan


def test_constants_are_hidden_from_sums_over_gpus() -> None:
    def f(x: Any) -> Any:
        return mj.shard_map(lambda x: x + mj.lax.psum(mnp.ones(1), "x"), mesh=MESH, in_specs=P("x"), out_specs=P("x"))(x)

    assert ["optimization_barrier" in lowered(f, (4,), platform).as_text() for platform in PLATFORMS] == [False, True, False]


@pytest.mark.parametrize(("platform", "kind", "instead"), [("tpu", "TPU v99", "tpu v5e"), ("cuda", "NVIDIA Titan V", "gpu h100")])
def test_an_unknown_kind_is_named_once(platform: str, kind: str, instead: str) -> None:
    targets._figures.cache_clear()
    with pytest.warns(UserWarning) as record:
        assert str(target_for(devices(platform, kind))) == instead
    gpus = "a100, a100-ethernet, h100, h100-ethernet, h200, h200-ethernet, b200, b200-ethernet"
    models = gpus if platform == "cuda" else "v4, v5e, v5p, v6e, tpu7x"
    assert [str(w.message) for w in record] == [
        f"meshjit has no figures for devices of kind {kind!r}: programs are planned as for {instead}\n"
        f'  fix: meshjit.config.update("device_model", …) with the nearest of {models},'
        " or a file that meshjit plan --calibrate --save writes; or MESHJIT_DEVICE_MODEL"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        target_for(devices(platform, kind))


@pytest.mark.parametrize(("platform", "instead"), [("rocm", "gpu h100"), ("metal", "cpu")])
def test_a_platform_without_figures_is_named(platform: str, instead: str) -> None:
    targets._figures.cache_clear()
    said = f"meshjit has no figures for devices of platform {platform!r}: programs are planned as for {instead}\n"
    with pytest.warns(UserWarning, match=re.escape(said)) as record:
        chip = AbstractDevice("a chip", 1, platform) if platform == "metal" else None
        mesh = AbstractMesh((4,), ("x",), abstract_device=chip)
        assert str(target_for(mesh, () if chip else (platform,))) == instead
    assert len(record) == 1
    with warnings.catch_warnings(), config.using(device_model="cpu" if platform == "metal" else "h100"):
        warnings.simplefilter("error")  # somebody says whose figures count
        targets._figures.cache_clear()
        target_for(mesh, () if chip else (platform,))


def test_an_option_says_whose_figures_count() -> None:
    with config.using(device_model="v5p"):
        assert str(target_for(devices("tpu", "TPU v99"))) == "tpu v5p"
        assert str(target_for(MESH, ("tpu",))) == "tpu v5p"
        assert str(target_for(MESH, ("gpu",))) == "gpu h100"
    with pytest.raises(ValueError, match="expected one of .*'a100', .*or a file that ends in .toml"):
        config.update("device_model", "abacus")


def test_an_abstract_device_names_the_target() -> None:
    chip = AbstractDevice("TPU v6 lite", 1, "tpu")
    mesh = AbstractMesh((4,), ("x",), abstract_device=chip)
    assert mesh != MESH and hash(mesh) == hash(AbstractMesh((4,), ("x",), abstract_device=chip))
    assert devices("tpu", "TPU v6 lite").abstract_mesh.abstract_device == dataclasses.replace(chip, num_cores=None)
    assert repr(mesh) == "AbstractMesh('x': 4, axis_types=(Auto,), device_kind=TPU v6 lite, num_cores=1, platform=tpu)"
    assert repr(mesh.abstract_device) == "AbstractDevice(device_kind=TPU v6 lite, num_cores=1, platform=tpu)"
    argument = mj.ShapeDtypeStruct((8192,), np.float32, sharding=NamedSharding(mesh, P("x")))
    traced = mj.jit(mnp.sort).trace(argument)
    assert str(traced.lower().plan.target) == "tpu v6e" and traced.lower().platforms == ("tpu",)
    assert str(traced.lower(lowering_platforms=("cpu",)).plan.target) == "cpu"
    with pytest.raises(ValueError, match="was lowered for tpu, its devices are of platform cpu"):
        traced.lower().compile(device_assignment=mj.devices()[:4])


# -- plans and texts


def test_lowering_for_a_platform_plans_for_it() -> None:
    """An all-to-all costs 6.3 times its bytes on CPU devices, so columns change places in other ways there."""
    mesh = AbstractMesh((4, 2), ("x", "y"))
    argument = mj.ShapeDtypeStruct((1024, 1024), np.float32, sharding=NamedSharding(mesh, P("x", None)))
    traced = mj.jit(lambda x: mnp.sort(x, 0)).trace(argument)
    plans = {p: traced.plan(lowering_platforms=(p,)) for p in PLATFORMS}
    assert [str(planned.plan.target) for planned in plans.values()] == ["cpu", "gpu h100", "tpu v5e"]
    counts = [planned.lower().as_text("local").count("all_to_all(") for planned in plans.values()]
    assert counts == [1, 2, 2]
    again = traced.plan().lower(lowering_platforms=("tpu",))
    assert again.plan.target == plans["tpu"].plan.target and again.platforms == ("tpu",)
    assert again.as_text() == plans["tpu"].lower().as_text() == traced.lower(lowering_platforms=("tpu",)).as_text()
    assert plans["tpu"].lower().platforms == ("tpu",)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_sending_overlaps_with_work_only_where_the_target_says_so(platform: str) -> None:
    """A weight that is gathered: beside the product before it, where there is one and the target overlaps gathers."""
    mesh = AbstractMesh((16,), ("x",))

    def planned(fun: Any, operands: int) -> Any:
        with mj.set_mesh(mesh):
            types = [mj.ShapeDtypeStruct((8192, 8192), np.float32, sharding=NamedSharding(mesh, P("x")))] * operands
            return mj.jit(fun).trace(*types).plan(lowering_platforms=(platform,)).plan

    def gathered(w: Any) -> Any:
        return mj.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))

    def beside(x: Any, w: Any) -> Any:
        w = gathered(w)
        return (x * x) @ w

    alone, after = planned(lambda x, w: x @ gathered(w), 2), planned(beside, 2)
    assert [each.kind for each in alone.collectives] == [each.kind for each in after.collectives] == ["all_gather"]
    assert alone.overlapped_seconds == alone.cost.seconds == alone.cost.work_seconds + alone.cost.move_seconds
    before = after.cost.work_seconds - alone.cost.work_seconds
    expected = 0.0 if platform == "cpu" else min(before, after.cost.move_seconds)
    assert after.overlapped_seconds == pytest.approx(after.cost.seconds - expected)
    text, ends = overlap_text(after), ("overlapped: ", " a step if sending runs beside work\n")
    assert text == "" if platform == "cpu" else text.startswith(ends[0]) and text.endswith(ends[1])


def test_a_sharded_sort_selects_its_elements_on_cpu_alone() -> None:
    texts = {p: lowered(lambda x: mnp.sort(x), (8192,), p).as_text() for p in PLATFORMS}
    assert [("popcnt" in text, "all_gather" in text) for text in texts.values()] == [(True, True), (False, True), (False, True)]


def test_what_is_particular_to_a_compiler_is_written_for_it_alone() -> None:
    def written(fun: Any, shape: tuple[int, ...], word: str) -> list[int]:
        return [lowered(fun, shape, p).as_text().count(word) for p in PLATFORMS]

    assert written(mnp.linalg.cholesky, (4, 3, 3), "lapack_") == [1, 0, 0]
    assert written(lambda x: mnp.sort(x, 0), (64, 64), "optimization_barrier") == [2, 0, 0]
    assert written(lambda x: mnp.max(x), (64,), "bitcast_convert") == [2, 0, 0]  # a NaN is lost among maxima
    bits = mj.ShapeDtypeStruct((64, 8), np.int32, sharding=NamedSharding(MESH, P("x")))
    reduced = mj.jit(lambda x: mj.lax.reduce_and(x, (0,))).trace(bits)
    texts = [reduced.lower(lowering_platforms=(p,)).as_text() for p in PLATFORMS]
    assert ["all_reduce" in text for text in texts] == [False, False, True]
    windows = [lowered(lambda x: mnp.cumsum(x, 1), (4, 1000), p).as_text().count("63x16xf32") > 0 for p in PLATFORMS]
    assert windows == [True, True, False]


def convolved(features: int, window: int, mesh: AbstractMesh = MESH, batch: int = 64) -> tuple[float, float]:
    """Predicted seconds of work of a convolution, and of the gradient of its kernel besides."""

    def forward(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    x, w, y = ((batch, 32, 32, 64), (window, window, 64, features), (batch, 32, 32, features))
    struct = [mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P())) for shape in (x, w, y)]
    back = mj.jit(lambda x, w, y: mj.vjp(lambda w: forward(x, w), w)[1](y)[0]).trace(*struct).plan().plan.cost
    ahead = mj.jit(forward).trace(*struct[:2]).plan().plan.cost
    assert back is not None and ahead is not None
    return ahead.work_seconds, back.work_seconds


def test_a_convolution_multiplies_at_every_place_of_its_window() -> None:
    """Forward and backward, 9 or 25 times as often as with a kernel of one place."""
    one, three, five = (convolved(64, window) for window in (1, 3, 5))
    flops = 2 * 64 * 32 * 32 * 64 * 64
    assert one[0] == pytest.approx(flops / target_of(MESH).topology.flops)
    for way, besides in enumerate((0.0, reordering(64, 64))):
        assert three[way] - besides == pytest.approx(9 * one[0], rel=0.01)
        assert five[way] - besides == pytest.approx(25 * one[0], rel=0.01)


def test_windows_of_few_features_are_copied_on_cpu_alone() -> None:
    """The gradient of a kernel has the batch as its features: 16 of them and 16 of the result are too few for YNNPACK."""
    (_, narrow), (_, wide), (_, gpu_narrow), (_, gpu_wide) = (
        convolved(features, 3, mesh, batch=16) for mesh in (MESH, GPUS) for features in (16, 17)
    )
    narrow, wide = (seconds - reordering(16, features) for seconds, features in ((narrow, 16), (wide, 17)))
    assert narrow / wide == pytest.approx((1 + 400 / (2 * 16 * 16)) * 16 / 17, rel=0.02)
    assert gpu_narrow / gpu_wide == pytest.approx((64 + 16) / (64 + 17), rel=0.02)  # images are read, whatever multiplies


def reordering(batch: int, features: int) -> float:
    """Seconds on a CPU to bring images of 64 features, and of so many, into another order."""
    target = target_of(MESH)
    return target.reordering * 4 * batch * 32 * 32 * (64 + features) / target.topology.memory_bandwidth


def test_what_a_kernels_gradient_reads_is_brought_into_another_order_on_cpu_alone() -> None:
    """Its features are the batch, which is major in memory; an image's own features are minor."""
    (ahead, back), (gpu_ahead, gpu_back) = (convolved(64, 3, mesh) for mesh in (MESH, GPUS))
    assert back - ahead == pytest.approx(reordering(64, 64), rel=0.01) and gpu_back == pytest.approx(gpu_ahead)


def test_features_fill_registers_on_tpus() -> None:
    """Images of 64 features take as long to read as those of 128, and longer than to multiply; of 256 twice as long."""
    few, many, most = (convolved(features, 1, TPUS, batch=16)[0] for features in (64, 128, 256))
    assert few == pytest.approx(many, rel=0.05)
    assert most / many == pytest.approx((128 + 256) / (128 + 128), rel=0.05)


def test_products_reorder_operands_whose_batches_are_not_major() -> None:
    """Heads behind places on CPUs and GPUs; of a device's own part."""

    def seconds(heads_first: bool, mesh: AbstractMesh, spec: P) -> float:
        text, shape = ("bhid,bhjd->bhij", (8, 8, 256, 64)) if heads_first else ("bihd,bjhd->bhij", (8, 256, 8, 64))
        types = [mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))] * 2
        cost = mj.jit(lambda q, k: mnp.einsum(text, q, k)).trace(*types).plan().plan.cost
        assert cost is not None
        return cost.work_seconds

    for mesh in (MESH, GPUS, TPUS):
        target = target_of(mesh)
        more = target.batch_reordering * 2 * 4 * 8 * 8 * 256 * 64 / target.topology.memory_bandwidth
        for spec, shards in ((P(), 1), (P("x"), 4)):
            assert seconds(False, mesh, spec) - seconds(True, mesh, spec) == pytest.approx(more / shards)


def test_a_product_of_few_rows_takes_as_long_as_reading_its_weights() -> None:
    """Nothing fuses operands of a product away; of many rows it is its multiplications that take the time."""
    for mesh in (MESH, GPUS, TPUS):
        topology, shape = target_of(mesh).topology, (4096, 4096)
        for rows in (1, 65536):
            types = [mj.ShapeDtypeStruct(s, np.float32, sharding=NamedSharding(mesh, P())) for s in ((rows, 4096), shape)]
            cost = mj.jit(mnp.dot).trace(*types).plan().plan.cost
            flops, nbytes = 2 * rows * 4096**2, 4 * (2 * rows * 4096 + 4096**2)
            seconds = nbytes / topology.memory_bandwidth if rows == 1 else flops / topology.flops_of.get("float32", topology.flops)
            assert cost is not None and cost.work_seconds == pytest.approx(seconds)


def test_images_or_their_features_fill_registers_on_tpus() -> None:
    """128 images of 16 features leave no lane empty, 16 images seven of eight, so they take as long to read."""
    many, few = (image_seconds(batch, 32, 8, 16) for batch in (128, 16))
    assert many == pytest.approx(few, rel=0.05)


def test_rows_of_few_images_are_cut_on_tpus() -> None:
    """Of less than eight; short rows are left whole, and other machines cut none."""
    few, many, short = (image_seconds(batch, 32, width, 64) / batch / width for batch, width in ((4, 32), (8, 32), (4, 8)))
    assert few > 4 * many and short == pytest.approx(many)
    on_gpu = [image_seconds(batch, 32, 32, 64, GPUS) / batch for batch in (4, 8)]
    assert on_gpu[0] == pytest.approx(on_gpu[1], rel=0.05)


def image_seconds(batch: int, height: int, width: int, features: int, mesh: AbstractMesh = TPUS) -> float:
    """Predicted for one convolution that gives as many features."""
    types = ((batch, height, width, features), (3, 3, features, features))
    struct = [mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P())) for shape in types]
    convolve = mj.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    cost = convolve.trace(*struct).plan().plan.cost
    assert cost is not None
    return cost.work_seconds


def test_a_gather_reads_rows_and_not_the_table() -> None:
    """TPUs fetch them one by one, of 64 elements as long as of 128; adding to rows of a table takes twice as long."""

    def seconds(fun: Any, table: int, width: int, mesh: AbstractMesh) -> float:
        types = ((np.float32, (table, width)), (np.int32, (4096,)), (np.float32, (4096, width)))
        struct = [mj.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P())) for dtype, shape in types]
        cost = mj.jit(fun).trace(*struct).plan().plan.cost
        assert cost is not None
        return cost.work_seconds

    def take(t: Any, i: Any, u: Any) -> Any:
        return t.at[i].get(mode="promise_in_bounds")

    for mesh in (MESH, GPUS, TPUS):
        assert seconds(take, 1 << 10, 64, mesh) == seconds(take, 1 << 20, 64, mesh)
    fetch = [seconds(take, 1024, width, TPUS) for width in (64, 128, 256)]
    assert fetch[0] == pytest.approx(fetch[1], rel=0.05) and fetch[2] == pytest.approx(2 * fetch[1], rel=0.05)
    add = seconds(lambda t, i, u: t.at[i].add(u, mode="promise_in_bounds"), 1024, 64, TPUS)
    assert 2 * fetch[0] < add < 3 * fetch[0]


def work_seconds(fun: Any, shape: tuple[int, ...], mesh: AbstractMesh = TPUS) -> float:
    """Predicted for a function of a float32 that every device has whole."""
    cost = mj.jit(fun).trace(mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P()))).plan().plan.cost
    assert cost is not None
    return cost.work_seconds


def totals(x: Any) -> Any:
    return mnp.cumsum(x, 0)


def test_running_totals_read_registers_as_two_dims_fill_them_on_tpus() -> None:
    """Whichever two leave fewest lanes and sublanes empty, of 128 times 8. What is fused, and other devices, read bytes."""
    shapes = ((4096, 7, 128), (28672, 128), (128, 28672), (3670016 // 4, 4), (3670016, 1))
    more = [work_seconds(totals, shape) - work_seconds(mnp.tanh, shape) for shape in shapes]
    assert [seconds / more[0] for seconds in more] == pytest.approx([1, 1, 1, 2, 8], rel=0.02)
    for fun, mesh in ((mnp.tanh, TPUS), (mnp.tanh, MESH), (totals, GPUS)):
        seconds = [work_seconds(fun, shape, mesh) for shape in shapes]
        assert seconds == pytest.approx([seconds[0]] * len(shapes), rel=0.02), mesh
    assert work_seconds(totals, (0, 4)) == 0.0


def test_running_totals_of_whole_columns_do_not_leave_lanes_empty() -> None:
    """One column a device sends nothing, and takes eight times as long."""
    totals = mj.auto(lambda x: mnp.cumsum(x, 0) / mnp.sum(mnp.abs(x), 0), mesh=TPUS)
    assert str(totals.trace(mj.ShapeDtypeStruct((1 << 20, 4), np.float32)).plan().plan.inputs[0]) == "[x, -]"


def test_a_roll_along_the_minor_dim_is_no_slice() -> None:
    """Of two ways to cut a periodic stencil the one that rolls along the major dim is left whole; along the minor dim costs a pass."""

    def step(u: Any) -> Any:
        return u + 0.1 * (mnp.roll(u, 1, 0) + mnp.roll(u, -1, 0) + mnp.roll(u, 1, 1) + mnp.roll(u, -1, 1) - 4 * u)

    grid = mj.ShapeDtypeStruct((4096, 4096), np.float32)
    rows, columns = (
        mj.jit(lambda u: lax.fori_loop(0, 10, lambda _, u: step(u), u), in_shardings=NamedSharding(MESH, spec)).trace(grid).plan().plan
        for spec in (P("x"), P(None, "x"))
    )
    assert rows.cost is not None and columns.cost is not None
    passes = 2 * 10 * 4 * 4096 * 1024 / target_of(MESH).topology.memory_bandwidth
    assert rows.cost.work_seconds - columns.cost.work_seconds == pytest.approx(passes, rel=0.1)
    assert str(mj.auto(lambda u: lax.fori_loop(0, 10, lambda _, u: step(u), u), mesh=MESH).trace(grid).plan().plan.inputs[0]) == "[-, x]"


def test_rolls_are_cut_from_whole_values_on_tpus_alone() -> None:
    """A border and most of the shard would be written to memory before they are put together: 512 rows, 128 of each shard."""

    def step(u: Any) -> Any:
        return mnp.roll(u, 1, 0) + mnp.roll(u, -1, 1)

    texts = {p: lowered(step, (512, 64), p).as_text("local") for p in PLATFORMS}
    joined = ["f32[129, 64] = concatenate(", "f32[128, 65] = concatenate("]
    assert {p: [line in text for line in joined] for p, text in texts.items()} == {
        "cpu": [False, False], "gpu": [False, False], "tpu": [True, True],
    }  # fmt: skip


def test_blocks_of_iterations_cost_a_pad_on_tpus() -> None:
    """Each iteration of a block makes its carry as long as before; where that is as dear as the exchange, there are no blocks."""

    def fun(u: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, u: u + mnp.roll(u, 1, 0) + mnp.roll(u, -1, 0), u)

    def blocks(platform: str, rows: int) -> bool:
        plan = lowered(fun, (rows, 1024), platform).plan
        return any("exchange borders once" in str(d) and d.choice == "kept" for d in plan.decisions)

    assert [blocks(p, 64) for p in PLATFORMS] == [True, True, True]
    assert [blocks(p, 8192) for p in PLATFORMS] == [True, True, False]
