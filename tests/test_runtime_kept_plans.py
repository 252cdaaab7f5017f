"""Automatic plans on disk: what is planned by again without a search, what is not, and what happens to entries that are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.program import Program
from meshjit.plan.automatic import limits as limits_, make
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.refusal import DoesNotFit
from meshjit.plan.automatic.solve import Search
from meshjit.plan.make import Annotations
from meshjit.runtime import cache_files
from meshjit.runtime.lowering import lower_plan, plan_program
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import target_of
from sharding.mesh import AbstractDevice, AbstractMesh
from tests.tools.wire import traced

MESH = AbstractMesh((2, 2), ("x", "y"))
PODS = AbstractMesh((8, 8), ("x", "y"), abstract_device=AbstractDevice("TPU v5p", None, "tpu"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    mj.config.update("compilation_cache_dir", tmp_path / "cache")
    yield tmp_path / "cache"
    mj.config.update("compilation_cache_dir", None)
    mj.config.update("compilation_cache_max_size", -1)
    mj.config.update("persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The Programs that were searched."""
    programs: list[Program] = []
    original = make.best_of

    def counted(searches: Sequence[Search]) -> Any:
        programs.append(searches[0].draft.program)
        return original(searches)

    monkeypatch.setattr(make, "best_of", counted)
    return programs


def mlp(v: Any, w: Any, x: Any) -> Any:
    def loss(v: Any, w: Any) -> Any:
        return mnp.mean(mnp.dot(mnp.tanh(mnp.dot(x, v)), w) ** 2)

    gradients = mj.grad(loss, (0, 1))(v, w)
    return v - gradients[0], w - gradients[1]


def tokens(x: Any, w: Any) -> Any:
    b, t, d = x.shape
    return mnp.reshape(mnp.tanh(mnp.dot(mnp.reshape(x, (b * t, d)), w)), (b, t, w.shape[1]))


def layers(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return mnp.sum(lax.scan(lambda h, w: (mnp.tanh(mnp.dot(h, w)), None), x, w)[0] ** 2)

    return w - mj.grad(loss)(w)


MLP = ["f32[300, 257]", "f32[257, 100]", "f32[512, 300]"]
PROGRAMS: dict[str, tuple[Callable[..., Any], list[str], AbstractMesh]] = {
    "an MLP": (mlp, MLP, MESH),
    "an MLP on a pod": (mlp, ["bf16[8192, 8192]", "bf16[8192, 8192]", "bf16[4096, 8192]"], PODS),
    "written otherwise": (tokens, ["f32[3, 8, 512]", "f32[512, 2000]"], AbstractMesh((3, 2), ("x", "y"))),
    "layers in a loop": (layers, ["f32[4, 256, 256]", "f32[128, 256]"], MESH),
    "an empty array": (lambda x: mnp.tanh(x), ["f32[0, 8]"], MESH),
}


def planned(fun: Callable[..., Any], types: list[str], mesh: AbstractMesh, limits: Limits | None = None, pin: Any = None) -> Any:
    program = traced(fun, types)
    annotations = Annotations([pin, *[None] * (len(types) - 1)], [None] * len(program.outputs))
    return plan_program(program, mesh, annotations, (0,), target_of(mesh), limits or Limits(effort=0.05), {0: 0} if fun is mlp else {})


@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_same_is_searched_once(kind: str, folder: Path, searches: list[Program]) -> None:
    one, other = (planned(*PROGRAMS[kind]) for _ in range(2))
    assert len(searches) == 1 and len([*folder.glob("*.plan")]) == 1
    assert str(other.plan) == str(one.plan) and other.plan.cost == one.plan.cost and other.plan.optimum == one.plan.optimum
    assert other.plan.decisions == one.plan.decisions and other.plan.trials == one.plan.trials
    assert lower_plan(other).text == lower_plan(one).text


@pytest.mark.parametrize("memory", [1.3e6, 1.7e6])
def test_a_plan_within_a_limit(memory: float, folder: Path, searches: list[Program]) -> None:
    mesh = AbstractMesh((4,), ("x",))
    one, other = (planned(mlp, MLP, mesh, Limits(memory=memory, effort=0.05)).plan for _ in range(2))
    assert len(searches) == 1 and other.cost == one.cost and other.cost.peak_bytes <= memory
    assert str(other) == str(one) and other.decisions == one.decisions and other.optimum == one.optimum


def test_other_things_are_other_entries(folder: Path, searches: list[Program]) -> None:
    asked = [
        (mlp, MLP, MESH), (layers, ["f32[4, 256, 256]", "f32[128, 256]"], MESH), (mlp, MLP[:2] + ["f32[511, 300]"], MESH),
        (mlp, MLP, AbstractMesh((4,), ("x",))), (mlp, MLP, AbstractMesh((2, 2), ("y", "x"))),
        (mlp, MLP, AbstractMesh((2, 2), ("x", "y"), abstract_device=AbstractDevice("TPU v5p", None, "tpu"))),
        (mlp, MLP, MESH, Limits(effort=0)), (mlp, MLP, MESH, Limits(memory=1e9)), (mlp, MLP, MESH, None, P("x")),
    ]  # fmt: skip
    for each in asked:
        planned(*each)
    assert len(searches) == len(asked) == len([*folder.iterdir()])


def test_a_bound_that_nobody_asked_for_is_worked_out_when_somebody_does(
    folder: Path, searches: list[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_, "LONG", 3)
    one, other = (planned(mlp, MLP, MESH, Limits()).plan for _ in range(2))
    assert len(searches) == 1 and other.optimum.known == one.optimum.known < one.optimum.bound
    assert other.optimum.bound == pytest.approx(one.optimum.bound, rel=1e-4)  # with other prices that are known already


def test_what_a_time_may_have_ended_is_not_kept(folder: Path, searches: list[Program]) -> None:
    for _ in range(2):
        planned(mlp, MLP, MESH, Limits(time_limit=60.0, effort=0.05))
    assert len(searches) == 2 and not folder.exists()


def test_what_is_quick_need_not_be_kept(folder: Path, searches: list[Program]) -> None:
    mj.config.update("persistent_cache_min_compile_time_secs", 3600.0)
    planned(mlp, MLP, MESH)
    assert not folder.exists()


def test_a_refusal_is_not_kept(folder: Path, searches: list[Program]) -> None:
    for _ in range(2):
        with pytest.raises(DoesNotFit):
            planned(mlp, MLP, MESH, Limits(memory=1000.0))
    assert len(searches) == 2 and not folder.exists()


def test_a_saved_plan_is_planned_by_first(folder: Path, searches: list[Program], tmp_path: Path) -> None:
    planned(mlp, MLP, MESH).plan.save(tmp_path / "plan.json")
    saved = planned(mlp, MLP, MESH, Limits(plan=str(tmp_path / "plan.json"))).plan
    assert len(searches) == 1 and saved.optimum.searched == 1


def as_if_dearer(payload: bytes) -> bytes:
    kept = json.loads(payload)
    return json.dumps({**kept, "cost": {**kept["cost"], "work_seconds": 2 * kept["cost"]["work_seconds"]}}).encode()


def without_mesh(payload: bytes) -> bytes:
    kept = json.loads(payload)
    return json.dumps({**kept, "plan": {**kept["plan"], "mesh": {"z": 4}}}).encode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (as_if_dearer, "the plan that was kept took .* s, now it takes .* s"),
        (without_mesh, "its mesh was {'z': 4}, now it is {'x': 2, 'y': 2}"),
        (lambda _: b"{", "Expecting property name"),
        (lambda _: b"{}", "'plan'"),
        (lambda _: b"[]", "list indices must be integers"),
    ],
)
def test_useless_entries_are_named_and_written_anew(
    change: Callable[[bytes], bytes], reason: str, folder: Path, searches: list[Program]
) -> None:
    plan = planned(mlp, MLP, MESH).plan
    (path,) = folder.iterdir()
    entry = path.read_bytes()
    path.write_bytes(cache_files.packed(path.stem, change(cache_files.read(path, path.stem))))
    with pytest.warns(UserWarning, match=rf"(?s)the plan in .*\.plan cannot be used: .*{reason}.*it is searched for and written anew"):
        again = planned(mlp, MLP, MESH).plan
    assert str(again) == str(plan) and len(searches) == 2 and path.read_bytes() == entry
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned(mlp, MLP, MESH)
    assert len(searches) == 2


def test_a_limited_folder_forgets_plans_too(folder: Path, searches: list[Program]) -> None:
    planned(mlp, MLP, MESH)
    (path,) = folder.iterdir()
    mj.config.update("compilation_cache_max_size", int(1.5 * path.stat().st_size))
    os.utime(path, (0, 0))
    planned(layers, ["f32[4, 256, 256]", "f32[128, 256]"], MESH)
    assert len([*folder.iterdir()]) == 1 and not path.exists()


SCRIPT = """
    import meshjit as mj, numpy as np
    events = []
    mj.monitoring.register_event_listener(lambda event, **_: events.append(event))
    step = mj.auto(lambda w, x: mj.numpy.tanh(x @ w), devices=4)
    print(float(step(np.ones((8, 8), np.float32), np.ones((16, 8), np.float32)).sum()), *[e for e in events if "kept_plans" in e])
"""


@pytest.mark.device
def test_another_process_finds_it(tmp_path: Path) -> None:
    said = list[str]()
    for seed in ("1", "2"):  # of hashes
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "MESHJIT_NUM_CPU_DEVICES": "4", "PYTHONHASHSEED": seed}
        environ["MESHJIT_COMPILATION_CACHE_DIR"] = str(tmp_path / "cache")
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    misses, hits = (each.split() for each in said)
    assert misses[0] == hits[0] and {*misses[1:]} == {"/meshjit/kept_plans/misses"} and {*hits[1:]} == {"/meshjit/kept_plans/hits"}
