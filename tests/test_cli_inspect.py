"""`meshjit inspect` and `meshjit diff` as a user types them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from meshjit.cli import main

ROOT = Path(__file__).parents[1]
MODEL = """
import meshjit as mj, meshjit.numpy as mnp
from meshjit.sharding import PartitionSpec as P

def loss(params, x, y):
    h = mnp.tanh(x @ params["w1"])
    return mnp.mean((h @ params["w2"] - y) ** 2)

def example():
    struct = lambda *shape: mj.ShapeDtypeStruct(shape, "float32")
    return {"w1": struct(512, 1024), "w2": struct(1024, 512)}, struct(64, 512), struct(64, 512)

def double(x):
    return x * 2.0

number = 3
"""

SCRIPT = """
import sys
import numpy as np, meshjit as mj, meshjit.numpy as mnp

@mj.jit
def double(x):
    return x * float(sys.argv[sys.argv.index("--factor") + 1])

@mj.jit
def total(x):
    return mnp.sum(x)

print("total", float(total(double(np.ones((8, 4), np.float32)))))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model_to_inspect.py").write_text(MODEL)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "quiet.py").write_text("print('nothing here')")
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "for_jax.py").write_text("import jax")
    (tmp_path / "broken.py").write_text("raise KeyError('no such weight')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["meshjit"])
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


MESH = ["--mesh", "data=4,model=2"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_function_of_a_file_on_a_mesh_without_devices(folder, capsys):
    arguments = ["--arg", 'f32[128,512]=P("data",None)', "model_to_inspect.py:double"]
    status, out, _ = run(capsys, "inspect", *MESH, *arguments)
    assert status == 0 and "f32[128@data, 512]" in out and "nothing is sent" in out and "return x * 2.0" in out


def test_a_function_of_a_module_with_an_example(folder, capsys):
    status, out, _ = run(capsys, "inspect", *MESH, "--example", "example", "--json", "model_to_inspect:loss")
    (report,) = json.loads(out)
    assert status == 0 and report["function"] == "jit(loss)" and report["mesh"] == {"data": 4, "model": 2}


def test_an_example_may_compute_where_the_mesh_has_no_devices(folder, capsys):
    text = """
        import meshjit as mj, meshjit.numpy as jnp
        KEY = mj.random.split(mj.random.key(0))[0]
        def double(x): return 2 * x
        def example(): return (mj.random.normal(KEY, (16, 16)),)
        """
    (folder / "drawn.py").write_text(textwrap.dedent(text))
    for command in (["inspect", *MESH], ["diff", *MESH, "--mesh", "data=8,model=1"]):
        status, out, _ = run(capsys, *command, "--example", "example", "drawn.py:double")
        assert status == 0 and "jit(double)" in out


def test_every_function_of_a_script_and_its_own_options(folder, capsys):
    status, out, _ = run(capsys, "inspect", "--view", "program", "script.py", "--factor", "3")
    assert status == 0 and "jit(double)" in out and "jit(total)" in out and "total 96.0" in out


def test_abstract_runs_nothing(folder, capsys):
    status, out, _ = run(capsys, "inspect", "--abstract", "--function", "total", "script.py", "--factor", "3")
    assert status == 0 and "jit(total)" in out and "jit(double)" not in out and "total 0.0" in out


AHEAD = """
import sys
import numpy as np, meshjit as mj, meshjit.numpy as mnp
def ahead(x): return mnp.sin(x)
def lowered(x): return mnp.cos(x)
def traced(x): return mnp.tan(x)
def looked_at(x): return mnp.exp(x)
x = np.ones((8, 4), np.float32)
print("sum", float(mj.jit(ahead).lower(x).compile()(x).sum()))
mj.jit(lowered).lower(x)
mj.jit(traced).trace(x)
mj.eval_shape(mj.jit(looked_at), x)
sys.exit(0)
"""


@pytest.mark.parametrize(("options", "total"), [([], "sum 26.9"), (["--abstract"], "sum 0.0")])
def test_what_is_compiled_ahead_lowered_or_traced_is_told_of(folder, capsys, options, total):
    (folder / "ahead.py").write_text(AHEAD)
    status, out, _ = run(capsys, "inspect", *options, "--view", "program", "ahead.py")
    assert status == 0 and total in out and "looked_at" not in out
    assert all(f"jit({name})" in out for name in ("ahead", "lowered", "traced")) and out.count("jit(") == 3


def test_abstract_zeros_take_no_memory(folder, capsys):
    (folder / "large.py").write_text(
        "import meshjit as mj, meshjit.numpy as mnp\n"
        "x = mj.jit(lambda: mnp.ones((1 << 20, 1 << 16), 'float32'))()\n"
        "print(x.shape, mj.jit(lambda x, y: (x * y).sum())(x, mj.device_put(1.0, mj.devices()[1])))\n"
    )
    status, out, _ = run(capsys, "inspect", "--abstract", "--view", "program", "large.py")
    assert status == 0 and "(1048576, 65536) 0.0" in out


def test_a_file_of_a_package_has_its_relative_imports(folder, capsys):
    (folder / "models_here").mkdir()
    (folder / "models_here/__init__.py").write_text("")
    (folder / "models_here/act.py").write_text("from meshjit.numpy import tanh")
    (folder / "models_here/gpt.py").write_text("from .act import tanh\nclass Model:\n  def step(x): return tanh(x)\n")
    for target in ("models_here/gpt.py:Model.step", "models_here.gpt:Model.step"):
        status, out, _ = run(capsys, "inspect", *MESH, "--arg", "f32[8]", target)
        assert status == 0 and "jit(step)" in out
    status, _, err = run(capsys, "inspect", *MESH, "models_here.gtp:step")
    assert status == 2 and "there is no module models_here.gtp\n  nearest: models_here.gpt" in err


def test_a_script_on_a_machine_that_is_not_here(folder, capsys):
    status, out, _ = run(capsys, "inspect", "--topology", "v5p:2x2x2", *MESH, "--view", "memory", "script.py", "--factor", "3")
    assert status == 0 and "tpu v5p" in out and "95 GB" in out


def test_why_not_says_by_its_exit_code_whether_it_is_better(folder, capsys):
    target = ["--example", "example", "model_to_inspect.py:loss"]
    status, out, _ = run(capsys, "inspect", *MESH, "--why-not", "y", "None", *target)
    assert status == 1 and out.startswith("not better")
    status, out, _ = run(capsys, "inspect", *MESH, "--why-not", "x", 'P(("data", "model"), None)', *target)
    assert status == 0 and out.startswith("better") and "values changed" in out


def test_why_and_suggest(folder, capsys):
    target = ["--example", "example", "model_to_inspect.py:loss"]
    status, out, _ = run(capsys, "inspect", *MESH, "--why", "params.w1", *target)
    assert status == 0 and "whole on every device" in out
    status, out, _ = run(capsys, "inspect", *MESH, "--suggest", *target)
    assert status == 0 and "in_shardings" in out and "now:" in out


def test_a_terminal_has_its_pager_and_80_columns(folder):
    """What is longer than the terminal goes through PAGER; of a script that runs nothing when it has ended."""
    arguments = ["inspect", *MESH, "--width", "80", "script.py", "--factor", "3"]
    drawn = on_a_terminal(folder, "sed s/^/./", *arguments)
    lines = [line for line in drawn.splitlines() if line != "total 0.0"]
    assert lines and all(line.startswith(".") and len(line) <= 81 for line in lines), drawn
    assert "total 0.0" in drawn and ".jit(double)" in drawn and ".jit(total)" in drawn


def on_a_terminal(folder: Path, pager: str, *arguments: str) -> str:
    """What a terminal of 10 lines shows of a command."""
    ours, theirs = pty.openpty()
    setting = {**os.environ, "PAGER": pager, "LINES": "10", "COLUMNS": "80", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "meshjit.cli", *arguments]
    with subprocess.Popen(command, cwd=folder, env=setting, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # the terminal is gone with the last process that has it
            while part := os.read(ours, 4096):
                drawn += part
        os.close(ours)
        assert process.wait(60) == 0, drawn
    return drawn.decode().replace("\r\n", "\n")


def test_diff_of_two_meshes(folder, capsys):
    arguments = ["--arg", 'f32[128,512]=P("data",None)', "model_to_inspect.py:double"]
    status, out, _ = run(capsys, "diff", "--mesh", "data=8", *MESH, *arguments)
    assert status == 0 and "0 values changed, 3 did not" in out and "data=8" in out


def test_diff_of_two_functions(folder, capsys):
    other = "\ndef loss2(params, x, y):\n    return mnp.sum(x)\n"
    (folder / "second_model.py").write_text(MODEL.replace("h @ params", "mnp.sin(h) @ params") + other)
    target = ["--example", "example", "model_to_inspect.py:loss", "second_model.py:loss"]
    status, out, _ = run(capsys, "diff", *MESH, *target)
    assert status == 0 and "1 only in second" in out


def test_diff_of_saved_plans_grouped_by_cause(folder, capsys):
    target = ["--example", "example", "model_to_inspect.py:loss"]
    assert run(capsys, "plan", *MESH, "--save", "best.json", *target)[0] == 0
    status, out, _ = run(capsys, "diff", *MESH, "--plan", "-", "--plan", "best.json", *target)
    assert status == 0 and "values changed" in out and ": planning chose it for this equation" in out and "best.json" in out
    assert run(capsys, "diff", "--plan", "-", "--plan", "best.json", *target) == (0, out, "")  # the saved one says its mesh
    status, _, err = run(capsys, "diff", *MESH, "--plan", "-", "--plan", "worst.json", *target)
    assert status == 2 and "there is no file worst.json\n  write one: meshjit plan --save worst.json" in err


def test_diff_of_a_plan_for_another_machine(folder, capsys):
    target = ["--topology", "v5e:2x4", "--example", "example", "model_to_inspect.py:loss"]
    assert run(capsys, "plan", "--save", "there.json", *target)[0] == 0
    status, out, _ = run(capsys, "diff", "--plan", "-", "--plan", "there.json", *target)
    assert status == 0 and "usual        there.json" in out
    named = run(capsys, "diff", "--plan", "-", "--plan", "there.json", "--mesh", "x=2,y=4", *target)
    assert named == (0, out, "")


def test_a_mesh_that_is_not_that_of_the_arguments_is_said(folder, capsys):
    """It was ignored in silence."""
    (folder / "own_mesh.py").write_text(OWN_MESH)
    note = "note: jit(lambda) is planned for a=4,b=2, not for --mesh data=8: its arguments are placed there\n  fix: "
    for words in (["inspect", "--mesh", "data=8"], ["diff", "--mesh", "data=8", "--mesh", "a=4,b=2"]):
        status, _, err = run(capsys, *words, "own_mesh.py")
        assert status == 0 and err.startswith(note) and err.count("note: ") == 1


OWN_MESH = """
import numpy as np, meshjit as mj
from meshjit.sharding import NamedSharding, PartitionSpec as P
x = mj.device_put(np.ones((8, 4), np.float32), NamedSharding(mj.make_mesh((4, 2), ("a", "b")), P("a")))
mj.jit(lambda x: x + 1)(x)
"""


def test_diff_names_the_annotations_that_changed_values(folder, capsys):
    sharded = MODEL.replace("struct(512, 1024)", 'mj.ShapeDtypeStruct((512, 1024), "float32", sharding=split)').replace(
        "def example():",
        "def example():\n    split = mj.sharding.NamedSharding(mj.sharding.get_abstract_mesh(), P(None, 'model'))",
    )
    (folder / "sharded_model.py").write_text(sharded)
    target = ["--example", "example", "model_to_inspect.py:loss", "sharded_model.py:loss"]
    status, out, _ = run(capsys, "diff", *MESH, *target)
    assert status == 0 and "params['w1'], an input: P(None, \"model\")" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["model_to_inspekt.py"], "there is no file model_to_inspekt.py\n  nearest: model_to_inspect.py"),
        (["model_to_inspect.py:los"], "there is no function los\n  nearest: loss"),
        (["model_to_inspect.py:number"], "is no function, but of type int"),
        (["model_that_is_not:loss"], "there is no module model_that_is_not"),
        (["quiet.py"], "quiet.py calls no jitted function"),
        (["leaving.py"], "leaving.py ended with the exit code 3"),
        (["for_jax.py"], "python -m meshjit.as_jax -m meshjit.cli inspect"),
        (["broken.py"], "broken.py failed: KeyError: 'no such weight'\n  --traceback shows where"),
        (["--view", "colectives", "quiet.py"], "there is no view 'colectives'\n  there are: program, collectives, memory"),
        (["--mesh", "data:4", "model_to_inspect.py:double"], "is no mesh\n  write data=4,model=2"),
        (["--topology", "v9:2x2", "model_to_inspect.py:double"], "--topology: unknown topology 'v9:2x2'; known devices are v4"),
        (["--topology", "v5e:2x2", *MESH, "--arg", "f32[8]", "model_to_inspect.py:double"], "has 4 devices"),
        (["--arg", "f33[8]", "model_to_inspect.py:double"], "is no type\n  write f32[128,512]"),
        (["--arg", "f32[8]=P('data')", "model_to_inspect.py:double"], "there is no mesh\n  fix: --mesh"),
        ([*MESH, "--arg", "f32[8]", "--why", "z", "model_to_inspect.py:double"], "has no value 'z'\n  nearest: x"),
        ([*MESH, "--arg", "f32[8]", "--why-not", "x", "P(1)", "model_to_inspect.py:double"], "is no spec"),
        ([*MESH, "--arg", "f32[8]", "--why-not", "x", "P('rows')", "model_to_inspect.py:double"], "rows"),
        ([*MESH, "--example", "exampel", "model_to_inspect.py:loss"], "there is no function exampel\n  nearest: example"),
        (
            [*MESH, "--arg", "f32[8]", "model_to_inspect.py:loss"],
            "loss: missing a required argument: 'x'\n  fix: --arg 'f32[8,4]' for each argument of loss(params, x, y), or",
        ),
        ([*MESH, "model_to_inspect.py:loss"], "a function beside it that gives them; without arguments are: example\n"),
        ([*MESH, "--arg", 'f32[8]=P("dta")', "model_to_inspect.py:double"], "dta"),
        ([*MESH, *MESH, "--arg", "f32[8]", "model_to_inspect.py:double"], "--mesh is given twice"),
        ([*MESH, "--export", "graph", "g.json", "model_to_inspect.py:double"], "there is no export 'graph'\n  there are: trace"),
        (
            [*MESH, "--arg", "f32[8]", "--html", "no/such/folder.html", "model_to_inspect.py:double"],
            "--html no/such/folder.html: there is no folder no/such",
        ),
        (["--function", "tripel", "script.py", "--factor", "3"], "jits no function named tripel\n  there are: double, total"),
        (["--function", "dubble", "script.py", "--factor", "3"], "jits no function named dubble\n  nearest: double"),
    ],
)
def test_what_cannot_be_used_is_one_paragraph(folder, capsys, arguments, text):
    status, _, err = run(capsys, "inspect", *arguments)
    assert status == 2 and text in err and "Traceback" not in err


def test_no_command_shows_the_commands(capsys):
    status, out, _ = run(capsys)
    assert status == 0 and "inspect" in out and "diff" in out


def test_the_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out.startswith("meshjit ")
