"""The collectives that a plan predicts are those that partitioning writes: kind, axes, bytes and trips.

`tests/tools/laws.py` holds every program that a test puts through the law to it; here are random ones. What planning expects of
equations that it has not seen yet, so that it can stop, is never more than they work in the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.plan import Plan
from meshjit.core.region import weighted_regions
from meshjit.plan import equations
from meshjit.plan.cost import Machine
from meshjit.plan.make import Annotations, make_plan
from meshjit.plan.proposals import spread_again
from meshjit.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from meshjit.targets import target_of
from sharding.mesh import AbstractDevice
from tests.tools.fuzz import drawn_by
from tests.tools.laws import partitioned_as_predicted


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 20):
        program, mesh, inputs, outputs, _ = drawn_by(seed)
        partitioned_as_predicted(make_plan(program, mesh, Annotations(inputs, outputs)))


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_equations_work_no_less_than_is_expected_of_them(first: int, platform: str) -> None:
    for seed in range(first, first + 20):
        program, mesh, inputs, outputs, _ = drawn_by(seed)
        plan = make_plan(program, mesh, Annotations(inputs, outputs), target_of(mesh, (platform,)))
        assert plan.target is not None
        works_no_less(plan, Machine(mesh, plan.target))


def works_no_less(plan: Plan, machine: Machine) -> None:
    """From each equation on, those of nested Programs included."""
    work = 0.0
    steps = zip(plan.program.eqns, plan.equations, machine.work_left(plan.program), strict=False)
    for eqn, step, expected in reversed([*steps]):
        work += machine.effect(eqn, step).work
        for (_, times), body in zip(weighted_regions(eqn), step.bodies, strict=True):
            assert body.cost is not None
            work += times * body.cost.work_seconds
            works_no_less(body, machine)
        assert expected <= work


def test_planning_stops_where_what_is_left_makes_a_plan_too_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that give the features of a table's rows the axis of the tokens compute every token on all devices."""
    planned: list[Any] = []
    plan_equation = equations.Planner.equation

    def counted(self: Any, eqn: Any, *rest: Any) -> Any:
        planned.append(eqn)
        return plan_equation(self, eqn, *rest)

    def plan() -> tuple[int, Plan]:
        planned.clear()
        chosen = embedded().plan().plan
        return len(planned), chosen

    monkeypatch.setattr(equations.Planner, "equation", counted)
    monkeypatch.setattr(spread_again, "ALIKE", math.inf)  # its proposals ask what is left, too
    seen, chosen = plan()
    monkeypatch.setattr(Machine, "even_share", lambda *_: 0.0)
    without, same = plan()
    assert str(chosen) == str(same) and chosen.trials == same.trials and None in [trial.cost for trial in same.trials]
    assert seen < 0.95 * without


def embedded() -> Any:
    """The gradient of a residual network of 4 layers behind an embedding, traced."""
    mesh, width, hidden = AbstractMesh((4, 2), ("data", "model")), 8192, 32768

    def loss(weights: Any, table: Any, tokens: Any) -> Any:
        x = table[tokens]
        for up, down in weights:
            x = x + mnp.dot(mnp.tanh(mnp.dot(x, up)), down)
        return mnp.mean(x * x)

    def argument(spec: Any, dtype: Any, *shape: int) -> Any:
        return mj.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    pair = (argument(P("data", "model"), "float32", width, hidden), argument(P("model", "data"), "float32", hidden, width))
    table, tokens = argument(P("model", "data"), "float32", 16384, width), argument(P("data"), "int32", 65536)
    return mj.jit(mj.grad(loss)).trace([pair] * 4, table, tokens)


@pytest.mark.parametrize(
    ("fun", "milliseconds"),
    [
        (mnp.linalg.cholesky, 0.49),
        (lambda a: mnp.linalg.solve(a, a), 2.78),
        (mnp.linalg.qr, 4.87),
        (mnp.linalg.eigh, 10.8),
        (mnp.linalg.svd, 54),
        (mnp.linalg.eig, 158),
    ],
)
def test_what_goes_by_columns_takes_what_an_h200_took(fun: Any, milliseconds: float) -> None:
    """docs/performance.md has the times, of 1,024 x 1,024 f32. Large matrices take multiplications: 32 times as long a side takes
    less than 32 ** 3 times as long, at least 32 ** 3 / 32."""
    small, large = (_seconds(fun, "NVIDIA H200", n) for n in (1024, 32768))
    assert 0.8 < 1e3 * small / milliseconds < 1.3 and 32 < large / small < 32**3


@pytest.mark.parametrize("fun", [mnp.linalg.cholesky, mnp.linalg.qr, mnp.linalg.eigh, lambda a: mnp.linalg.solve(a, a)])
def test_on_cpus_it_is_in_proportion_to_products(fun: Any) -> None:
    """The time of a product of matrices of 2,048 x 2,048: 0.9 times as long (cholesky) to 7 times (eigh)."""
    assert 0.5 < _seconds(fun, "cpu", 2048) / _seconds(lambda a: a @ a, "cpu", 2048) < 14


def _seconds(fun: Any, kind: str, n: int) -> float:
    device = AbstractDevice(kind, None, "cpu" if kind == "cpu" else "gpu")
    mesh = AbstractMesh((1,), ("x",), abstract_device=device)
    types = mj.ShapeDtypeStruct((n, n), np.float32, sharding=NamedSharding(mesh, P()))
    cost = mj.jit(fun).trace(types).plan().plan.cost
    assert cost is not None
    return cost.seconds


@pytest.mark.parametrize(("features", "groups", "places"), [(64, 64, 3), (96, 96, 7), (128, 32, 3), (128, 4, 3)])
def test_convolutions_in_groups_take_no_less_than_whole_ones_of_as_many_features(features: int, groups: int, places: int) -> None:
    """XLA:CPU took 1.5 to 5 times as long for each place of the kernel at each element of the result as for 64 features without
    groups: f32[4, 28, 28, 64] by 3 x 3 took 3.1 ms, each feature a group 10.4."""

    def convolved(x: Any, kernel: Any) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        count = x.shape[-1] // kernel.shape[2]
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=dims, feature_group_count=count)

    def seconds(features: int, groups: int, places: int) -> float:
        mesh = AbstractMesh((1,), ("x",), abstract_device=AbstractDevice("cpu", None, "cpu"))
        shapes = (4, 28, 28, features), (places, places, features // groups, features)
        types = [mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P())) for shape in shapes]
        cost = mj.jit(convolved).trace(*types).plan().plan.cost
        assert cost is not None
        return cost.seconds

    share = features / 64 * (places / 3) ** 2
    assert 1.5 < seconds(features, groups, places) / (share * seconds(64, 1, 3)) < 5


@pytest.mark.parametrize("entries", [1, 4])
def test_lookups_in_a_shard_of_one_entry_take_their_time(entries: int) -> None:
    """A TPU fetches one after the other. Where a device has one entry, and so in tables of four over 64 devices, they were held
    to be fused, and free: plans spread such tables, and reduced what was looked up over all devices."""
    mesh = AbstractMesh((8, 8), ("x", "y"), abstract_device=AbstractDevice("TPU v5p", None, "tpu"))

    def seconds(spec: P) -> float:
        places = (spec, P(), P())
        shapes = ((entries, entries), np.float32), ((2**20,), np.int32), ((2**20,), np.int32)
        types = [mj.ShapeDtypeStruct(*s, sharding=NamedSharding(mesh, p)) for s, p in zip(shapes, places, strict=True)]
        cost = mj.jit(lambda table, i, j: table[i, j], out_shardings=NamedSharding(mesh, P())).trace(*types).plan().plan.cost
        assert cost is not None
        return cost.seconds

    assert seconds(P("x", "y")) >= seconds(P()) > 1e-3


@pytest.mark.parametrize(("device", "longest"), [(None, 64), (AbstractDevice("NVIDIA H100 80GB HBM3", None, "gpu"), 256)])
def test_a_search_is_priced_as_it_is_emitted(device: AbstractDevice | None, longest: int) -> None:
    """A value is compared with all entries of a short table, and a longer one is halved: the target says which is short."""
    mesh = AbstractMesh((1,), ("x",), abstract_device=device)

    def searched(entries: int) -> tuple[float, bool]:
        types = [mj.ShapeDtypeStruct((n,), np.float32, sharding=NamedSharding(mesh, P())) for n in (entries, 2**20)]
        traced = mj.jit(mnp.searchsorted).trace(*types)
        cost = traced.plan().plan.cost
        assert cost is not None
        return cost.seconds, "stablehlo.while" in traced.lower().as_text()

    (short, is_halved), (long, is_long_halved) = searched(longest), searched(longest + 1)
    assert not is_halved and is_long_halved
    rounds = longest / 36, (longest + 1).bit_length()
    assert long / short == pytest.approx(rounds[1] / rounds[0], rel=0.1)


def test_a_search_takes_longer_in_a_longer_table() -> None:
    """A round more for twice as many entries, in each of which a TPU fetches an entry for every value."""
    device = AbstractDevice("TPU v5p", None, "tpu")
    mesh = AbstractMesh((1,), ("x",), abstract_device=device)

    def seconds(entries: int) -> float:
        types = [mj.ShapeDtypeStruct((n,), np.float32, sharding=NamedSharding(mesh, P())) for n in (entries, 2**20)]
        cost = mj.jit(mnp.searchsorted).trace(*types).plan().plan.cost
        assert cost is not None
        return cost.seconds

    assert seconds(2**16) / seconds(2**8) > 20 and 1.2 < seconds(2**20) / seconds(2**16) < 1.3
