"""`meshjit plan --calibrate`: which figures come out, that they are sane, who reads them; and the benchmark that needs them."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import meshjit as mj
from meshjit.cli import main
from meshjit.inspect import calibrate
from meshjit.inspect.ahead import estimated_seconds
from meshjit.targets.files import topology_named, written
from sharding import AbstractMesh
from sharding.figures import DEVICES, Figures
from sharding.topology import topology_of
from tests.tools.processes import MPIRUN, environment, needs_mpi

RATES = ("float32", "float64", "bfloat16", "float16", "int8")
KINDS = {"reduce_scatter", "all_reduce", "all_to_all", "collective_permute"}


def checked(figures: Figures) -> None:
    assert tuple(figures.flops) == RATES and set(figures.slowdown) == KINDS
    assert set(figures.minor_slowdown) == {"all_gather", "reduce_scatter"}
    assert all(1e6 < rate < 1e14 for rate in figures.flops.values()) and 1e6 < figures.memory_bandwidth < 1e13
    assert 1e5 < figures.link < 1e13 and 1e-6 < figures.latency < 1 and 1e-8 < figures.step_latency < 1e-2
    assert all(1 / calibrate.SANE <= ratio <= calibrate.SANE for ratio in figures.slowdown.values())
    assert all(ratio >= 1 for ratio in figures.minor_slowdown.values()) and figures.memory > 1e6


@pytest.mark.device
def test_the_same_figures_are_measured_every_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibrate, "RUNS", 2)
    figures, shape = calibrate.Calibration(mj.devices()[:2]).figures()
    checked(figures)
    assert shape == (2,) and figures.platform == "cpu" and figures.overlaps == frozenset()
    path = tmp_path / "machine.toml"
    path.write_text(written(figures, shape))
    again, read_shape = topology_named(str(path))
    assert read_shape == shape and again.link == pytest.approx(figures.link, rel=1e-5) and again.flops.keys() == figures.flops.keys()


def test_a_program_that_takes_long_runs_less_often() -> None:
    calibration = calibrate.Calibration(mj.devices()[:1])
    assert [calibration._runs(seconds) for seconds in (0.0, 0.1, 0.3, 0.6, 3.0)] == [5, 5, 3, 1, 1]
    run, clock = Mock(), iter(range(99))
    assert calibration.seconds(run, lambda: next(clock)) == 1.0 and run.call_count == 2  # the first does not count


def test_a_quick_device_gets_work_that_takes_longer_than_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """1e14 multiplications and additions a second, 4e12 bytes from memory beyond 2**26 bytes that are read for nothing, 60 us a call."""
    calibration = calibrate.Calibration(mj.devices()[:1])
    monkeypatch.setattr(calibrate.Calibration, "_program", lambda self, fun, shape, dtype: (fun, shape))

    def seconds(self: Any, run: Any) -> float:
        fun, (rows, columns) = run
        nbytes = 4 * rows * columns
        streaming = 2 * calibrate.TRIPS * nbytes / 4e12 if nbytes > 1 << 26 else 0.0
        return 6e-5 + (2 * rows**3 / 1e14 if fun is calibrate._product else streaming)

    monkeypatch.setattr(calibrate.Calibration, "seconds", seconds)
    assert calibration.flops("bfloat16") == pytest.approx(1e14, rel=0.03)
    assert calibration.memory_bandwidth() == pytest.approx(4e12, rel=0.03)


@pytest.mark.device
def test_one_device_has_nobody_to_talk_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate.Calibration, "flops", lambda self, dtype: 1e9)
    figures, shape = calibrate.Calibration(mj.devices()[:1]).figures()
    assert ": 1 device, " in figures.source
    assert shape == (1,) and figures.link == DEVICES["cpu"].link and figures.slowdown == DEVICES["cpu"].slowdown


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["meshjit.cli.plan"], "calibrated", lambda: (DEVICES["cpu-ethernet"], (2, 8)))
    assert main(["plan", "--calibrate"]) == 0
    table = tomllib.loads(capsys.readouterr().out)
    assert table["shape"] == "2x8" and table["host"] == 8 and table["platform"] == "cpu"
    assert main(["plan", "--calibrate", "--save", "machine.toml"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "  use it: --topology machine.toml, or MESHJIT_DEVICE_MODEL=machine.toml"
    figures, shape = topology_named("machine.toml")
    assert shape == (2, 8) and topology_of(figures, AbstractMesh(shape, ("a", "b"))).bandwidth["a"] == DEVICES["cpu-ethernet"].network
    for arguments, text in [
        (["--calibrate", "train.py"], "--calibrate measures the machine, and plans nothing\n  fix: leave train.py out"),
        (["--calibrate", "--save", "no/m.toml"], "--save no/m.toml: there is no folder no\n  fix: mkdir -p no"),
        (["--calibrate", "--save", "machine"], "--save 'machine' is no file of a machine\n  fix: --save machine.toml"),
        ([], "there is no target\n  fix: a script, or a function of one"),
    ]:
        assert main(["plan", *arguments]) == 2
        assert text in capsys.readouterr().err


@needs_mpi
@pytest.mark.device
def test_processes_measure_what_is_between_them(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    command = [MPIRUN, "-n", "2", sys.executable, "-m", "meshjit.cli", "plan", "--calibrate", "--save", str(path)]
    done = subprocess.run(command, env=environment(MESHJIT_NUM_CPU_DEVICES="1"), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    figures, shape = topology_named(str(path))
    checked(figures)
    assert shape is not None and math.prod(shape) == 2 and figures.host == 1 and figures.network > 1e4
    assert done.stdout.count("use it: --topology") == 1  # the first process alone writes


# -- benchmarks/predicted.py


@pytest.fixture(scope="module")
def predicted() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "predicted.py"
    spec = importlib.util.spec_from_file_location("predicted", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rank_correlation(predicted: Any) -> None:
    assert list(predicted.ranks([3.0, 1.0, 3.0, 9.0])) == [2.5, 1.0, 2.5, 4.0]
    assert predicted.rank_correlation([1, 2, 3], [10, 40, 900]) == pytest.approx(1)
    assert predicted.rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert predicted.rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)


def test_random_plans_are_the_same_every_time_and_priced(predicted: Any) -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"))
    step, types = predicted.programs(1)["mlp"]
    plans = [str(plan) for plan in predicted.random_shardings("mlp", mesh, types, 5)]
    assert plans == [str(plan) for plan in predicted.random_shardings("mlp", mesh, types, 5)] and len(set(plans)) == 5
    table = list(predicted.rows(mesh, 1, 2, lambda lowered: lowered.plan.cost.seconds))
    assert [row.program for row in table] == ["mlp"] * 2 + ["attention"] * 2 + ["convolutions"] * 2
    assert predicted.rank_correlation([row.predicted for row in table], [row.measured for row in table]) == pytest.approx(1)


def test_the_estimate_leaves_out_what_the_compiler_cannot_say() -> None:
    class Compiled:
        def cost_analysis(self) -> dict[str, float]:
            return {"optimal_seconds": -1.99}

    compiled: Any = Compiled()
    assert estimated_seconds(compiled) == pytest.approx(0.01)
