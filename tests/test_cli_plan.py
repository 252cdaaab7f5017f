"""`meshjit plan` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshjit.cli import main
from meshjit.cli.plan import parsed_size

MODEL = """
import meshjit as mj, meshjit.numpy as mnp

def loss(params, x, y):
    h = mnp.tanh(x @ params["w1"])
    return mnp.mean((h @ params["w2"] - y) ** 2)

def step(params, x, y):
    return mj.tree.map(lambda p, g: p - 0.1 * g, params, mj.grad(loss)(params, x, y))

def example():
    struct = lambda *shape: mj.ShapeDtypeStruct(shape, "float32")
    return {"w1": struct(512, 1024), "w2": struct(1024, 512)}, struct(4096, 512), struct(4096, 512)
"""

SCRIPT = """
import numpy as np, meshjit as mj, meshjit.numpy as mnp
double = mj.jit(lambda x, w: mnp.tanh(x @ w))
print("sum", float(double(np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)).sum()))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model_to_plan.py").write_text(MODEL)
    (tmp_path / "script_to_plan.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["meshjit"])
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["plan", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_best_plan_and_how_good_it_is(capsys):
    status, out, _ = run(capsys, "--devices", "4", "--example", "example", "--view", "program", "model_to_plan.py:step")
    assert status == 0 and "optimal" in out and "f32[4096@x, 512]" in out


def test_options_may_stand_behind_the_script(capsys, folder):
    status, out, _ = run(capsys, "script_to_plan.py", "--devices", "4", "--topology=v5e", "--save", "plan.json")
    assert status == 0 and "tpu v5e" in out and (folder / "plan.json").exists()


@pytest.mark.parametrize("command", ["plan", "inspect"])
def test_behind_a_function_all_options_are_the_commands(capsys, command):
    """They were ignored, whatever they were. The module sees none of them."""
    mesh = ["--mesh", "rows=2,columns=2"]
    status = main([command, "model_to_plan.py:step", *mesh, "--json", "--example=example"])
    out = capsys.readouterr().out
    assert status == 0 and json.loads(out)[0]["mesh"] == {"rows": 2, "columns": 2}
    assert main([command, "model_to_plan.py:step", *mesh, "--steps", "3"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"meshjit {command}: '--steps' stands behind model_to_plan.py:step, a function, which takes no words of its own\n"
        "  fix: leave it out; --arg and --example say its arguments\n  nearest: "
    )


def test_a_module_that_reads_its_words_sees_none_of_the_commands(capsys, folder):
    """It ended with `__main__.py: error: unrecognized arguments: plan …`."""
    asks = "import argparse\nasked = argparse.ArgumentParser()\nasked.add_argument('--width')\nasked.parse_args()\n"
    (folder / "asks_to_plan.py").write_text(asks + MODEL)
    status, out, _ = run(capsys, "--devices", "4", "--example", "example", "asks_to_plan.py:step")
    assert status == 0 and "optimal" in out


def test_words_behind_two_dashes_are_none_of_a_function(capsys):
    status, _, err = run(capsys, "--devices", "4", "--example", "example", "model_to_plan.py:step", "--", "3")
    assert status == 2 and "'3' stands behind model_to_plan.py:step, a function" in err


@pytest.mark.parametrize(
    ("words", "the_scripts"),
    [
        ("--devices 2 asks.py --save mine", []),
        ("--devices 2 asks.py -- --save mine", ["--save", "mine"]),
        ("asks.py --devices 2 -- --save mine", ["--save", "mine"]),
        ("asks.py --devices=2 --width 7 --save mine", ["--width", "7", "--save", "mine"]),
    ],
)
def test_whose_options_stand_behind_the_script(capsys, folder, words, the_scripts):
    (folder / "asks.py").write_text(SCRIPT + "import sys; print(sys.argv[1:])")
    status, out, _ = run(capsys, *words.split())
    assert status == 0 and out.splitlines()[-1] == str(the_scripts)


def test_a_given_mesh_and_json(capsys):
    arguments = ["--mesh", "rows=2,columns=2", "--example", "example", "--json", "model_to_plan.py:step"]
    status, out, _ = run(capsys, *arguments)
    (report,) = json.loads(out)
    assert status == 0 and report["mesh"] == {"rows": 2, "columns": 2} and report["cost"]["wire_bytes"] > 0


def test_a_mesh_names_the_axes_of_a_topology(capsys):
    arguments = ["--mesh", "rows=4,columns=4", "--topology", "v5e:4x4", "--example", "example", "--json", "model_to_plan.py:step"]
    status, out, _ = run(capsys, *arguments)
    (report,) = json.loads(out)
    assert status == 0 and report["mesh"] == {"rows": 4, "columns": 4} and "tpu v5e" in str(report["target"])


PLACED = """
import numpy as np, meshjit as mj
from meshjit.sharding import NamedSharding, PartitionSpec as P
x = mj.device_put(np.ones((8, 4), np.float32), NamedSharding(mj.make_mesh((4, 2), ("a", "b")), P("a")))
y = mj.jit(lambda x: x + 1)(x)
print(y.sharding.spec, y.sharding.mesh.shape["a"])
"""


def test_a_script_goes_on_with_zeros_on_its_own_devices(capsys, folder):
    """For a mesh without devices they lay on one device, whose sharding has no spec."""
    (folder / "placed.py").write_text(PLACED)
    status, out, _ = run(capsys, "--mesh", "x=2,y=4", "placed.py")
    assert status == 0 and out.splitlines()[-1] == "P() 4"


def test_functions_of_scripts_are_planned_and_not_run(capsys):
    status, out, _ = run(capsys, "--devices", "2", "--view", "memory", "script_to_plan.py")
    assert status == 0 and "sum 0.0" in out and "at the peak" in out


@pytest.mark.device
def test_compile_says_what_the_compiler_says(capsys):
    status, out, _ = run(capsys, "--devices", "2", "--compile", "--view", "memory", "script_to_plan.py")
    assert status == 0 and "compiled: " in out and "fits into" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--devices", "16", "--memory", "1kB"], "no plan was found that holds at most 1,000 bytes"),
        (["--memory", "1QB"], "--memory '1QB' is no size\n  write 16GB"),
        (["--devices", "64", "--topology", "v5e:4x4"], "topology 'v5e:4x4' has 16 devices, but devices=64"),
        (["--topology", "v9:4x4"], "unknown topology 'v9:4x4'; known devices are v4"),
        (["--mesh", "data=4", "--devices", "4"], "--mesh says how many devices there are\n  fix: leave --devices out"),
        (["--mesh", "data=4", "--topology", "v5e:4x4"], "--topology v5e:4x4 has 16 devices, AbstractMesh('data': 4"),
        (["--view", "program,colours"], "there is no view 'colours'\n  there are: program, collectives"),
        (["--save", "absent/plan.json"], "--save absent/plan.json: there is no folder absent"),
        (["--mesh", "x=4,x=2"], "--mesh 'x=4,x=2': mesh axis names must differ, but 'x' appears twice in ('x', 'x')\n  write data=4,model=2"),
        (["--devices", "0"], "devices=0\n  fix: at least 1"),
        (["--devices", "4", "--memory", "0"], "memory=0.0\n  fix: more than 0 bytes"),
        (["--devices", "4", "--effort", "-1"], "effort=-1.0\n  fix: from 0"),
        (["--devices", "4", "--load", "plan.json"], "there is no file plan.json\n  fix: --save plan.json writes one, without --load"),
    ],
)
def test_what_cannot_be_used_is_one_paragraph(capsys, arguments, text):
    status, _, err = run(capsys, *arguments, "--time-limit", "2", "--example", "example", "model_to_plan.py:step")
    assert status == 2 and text in err and "Traceback" not in err


def test_sizes():
    assert [parsed_size(t) for t in ("16GB", "16e9", "512 MB", "1.5g", "7")] == [16e9, 16e9, 512e6, 1.5e9, 7]
    assert parsed_size(None) is None


def test_a_plan_is_saved_and_loaded(capsys, folder):
    arguments = ["--mesh", "x=4", "--example", "example", "--json", "model_to_plan.py:step"]
    status, first, _ = run(capsys, "--save", "plan.json", *arguments)
    assert status == 0 and json.loads((folder / "plan.json").read_text())["mesh"] == {"x": 4}
    status, again, _ = run(capsys, "--load", "plan.json", *arguments)
    assert status == 0 and json.loads(again)[0]["cost"] == json.loads(first)[0]["cost"]
