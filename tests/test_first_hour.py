"""What a new user types first: the README's snippet as pasted, the command, files of the user's own named as meshjit's packages are."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import meshjit as mj
from meshjit.cli import main
from meshjit.runtime import client

ROOT = Path(__file__).parents[1]
PATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
SHADOW = "def specs(): return 'the user’s own'\nMesh = cost = 'mine'\n"


def python(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MESHJIT_", "JAX_", "XLA_"))}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**kept, "PYTHONPATH": PATH, **environ}, capture_output=True, text=True, timeout=120
    )


def meshjit(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "meshjit.cli", *arguments, folder=folder, **environ)


@pytest.fixture
def shadowed(tmp_path: Path) -> Path:
    (tmp_path / "sharding.py").write_text(SHADOW)
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "__init__.py").write_text("from launch.specs import specs\n")
    (tmp_path / "launch" / "specs.py").write_text(SHADOW)
    return tmp_path


USES = """
print(sharding.specs(), launch.specs(), Mesh, type(mj.P("x")).__name__)
assert mj.P is not None and pickle.loads(pickle.dumps(mj.P("x"))) == mj.P("x")
mesh = mj.make_mesh((2,), ("x",))
print(mj.jit(lambda x: (x * 2).sum())(mj.device_put(mj.numpy.arange(4.0), mj.NamedSharding(mesh, mj.P("x")))))
"""


@pytest.mark.parametrize("imports", ["import meshjit as mj, sharding, launch", "import launch, sharding, meshjit as mj"])
@pytest.mark.parametrize("command", [(), ("-m", "meshjit.cli", "run"), ("-m", "meshjit.cli", "verify")], ids=["python", "run", "verify"])
def test_a_script_keeps_its_own_modules_of_these_names(shadowed: Path, imports: str, command: tuple[str, ...]) -> None:
    (shadowed / "train.py").write_text(f"import pickle\n{imports}\nfrom sharding import Mesh\n{USES}")
    done = python(*command, "train.py", folder=shadowed, MESHJIT_NUM_CPU_DEVICES="2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "the user’s own the user’s own mine PartitionSpec" in lines and "12.0" in lines


@pytest.mark.parametrize("imports", ["import sharding.spec, meshjit", "import meshjit, sharding.spec", "import launch.job, meshjit, sharding.spec"])
def test_without_such_files_there_is_one_copy(imports: str, tmp_path: Path) -> None:
    code = f"""
{imports}
import launch.hosts, sharding.cost, sys
from meshjit.cli.run import Hosts
print(sharding.spec.P is meshjit.P, Hosts is launch.hosts.Hosts)
print(len({{id(module) for name, module in sys.modules.items() if name.endswith("sharding.spec")}}))
"""
    done = python("-c", code, folder=tmp_path)
    assert done.stdout.split() == ["True", "True", "1"], done.stderr


def test_the_snippet_of_the_readme_runs_as_pasted(tmp_path: Path) -> None:
    snippet = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    (tmp_path / "mlp.py").write_text(snippet)
    done = python("mlp.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert text.startswith("NamedSharding(mesh=Mesh('data': 4, 'model': 2, axis_types=(Auto, Auto)), spec=P('data', None)")
    assert re.search(r"%3: f32\[64@data, 2048@model\] = dot_general.*# mlp.py:\d+ mlp", text)  # a placement and the line
    assert text.count("= all_reduce(") == 1 and "{axes=('model',)" in text  # in what each device runs
    assert re.search(r"^memory a device", text, re.MULTILINE) and "model on dim 1: from the annotation" in text


DEVICES = """
import os
os.environ[{name!r}] = {value!r}
import meshjit as mj
print("devices:", len(mj.devices()))
print(mj.jit(lambda x: x + 1)(1.0))
"""


@pytest.mark.parametrize("command", ["run", "inspect", "verify", "plan"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("MESHJIT_NUM_CPU_DEVICES", "6"), ("JAX_NUM_CPU_DEVICES", "6"), ("XLA_FLAGS", "--xla_force_host_platform_device_count=6")],
)
def test_device_counts_that_a_script_sets_hold(command: str, name: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(DEVICES.format(name=name, value=value))
    assert "devices: 6" in meshjit(command, "count.py", folder=tmp_path).stdout.splitlines()


def test_verify_on_one_device_says_that_it_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import meshjit as mj\nmj.jit(lambda x: x + 1)(1.0)\n")
    done = meshjit("verify", "one.py", folder=tmp_path)
    assert "that proves nothing: on one device nothing is partitioned; name a mesh by in_shardings" in done.stdout


@pytest.mark.parametrize("command", [["run"], ["run", "-n", "2"], ["verify"], ["inspect"], ["plan"]])
def test_a_missing_script_is_said_without_a_traceback(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "absent.py"]) == 2
    assert capsys.readouterr().err == f"meshjit {command[0]}: there is no file absent.py\n"
    (tmp_path / "present.py").write_text("")
    assert main([*command, "presnt.py"]) == 2
    assert capsys.readouterr().err == f"meshjit {command[0]}: there is no file presnt.py\n  nearest: present.py\n"


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0 and capsys.readouterr().out.startswith("usage: meshjit")


def test_make_mesh_says_what_makes_more_devices(tmp_path: Path) -> None:
    code = "import meshjit as mj\nmj.make_mesh((4, 2), ('data', 'model'))"
    error = python("-c", code, folder=tmp_path).stderr
    assert error.endswith(
        "ValueError: make_mesh: a mesh of (4, 2) needs 8 devices, there are 1\n"
        "  fix: MESHJIT_NUM_CPU_DEVICES=8 in the environment, before devices are used, makes so many of this CPU\n"
    )
    fixed = python("-c", code + "\nprint(len(mj.devices()))", folder=tmp_path, MESHJIT_NUM_CPU_DEVICES="8")
    assert fixed.stdout == "8\n"


def test_make_mesh_says_how_to_leave_the_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "default_backend", lambda: "gpu")
    monkeypatch.setattr(client, "devices", lambda: mj.devices("cpu")[:1])
    with pytest.raises(ValueError, match="there are 1\n  fix: MESHJIT_PLATFORMS=cpu MESHJIT_NUM_CPU_DEVICES=8 in the environment"):
        mj.make_mesh((4, 2), ("data", "model"))


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "a"},
            "SLURM: SLURM_NTASKS=4 is set but no step is: a batch script runs once; srun python script.py runs 4 times; so this process runs alone\n",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "4"},
            "torchrun: WORLD_SIZE=4 is set but TORCHELASTIC_RUN_ID is not: start with torchrun, or set MESHJIT_ variables; so this process runs alone\n",
        ),
        (
            {"JAX_COORDINATOR_ADDRESS": "a:1"},
            "JAX: JAX_COORDINATOR_ADDRESS is set but JAX_NUM_PROCESSES and JAX_PROCESS_ID is not: set all three or none; so this process runs alone\n",
        ),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_launcher_that_is_there_in_part_is_a_warning(environ: dict[str, str], words: str, tmp_path: Path) -> None:
    done = python("-c", "import meshjit as mj; mj.devices(); mj.devices()", folder=tmp_path, **environ)
    assert (done.returncode, done.stderr) == (0, words)


def test_a_sharded_array_shows_its_values_and_where_they_are(tmp_path: Path) -> None:
    code = "import meshjit as mj; mesh = mj.make_mesh((2,), ('x',)); print(repr(mj.device_put(mj.numpy.arange(4), mj.NamedSharding(mesh, mj.P('x')))))"
    done = python("-c", code, folder=tmp_path, MESHJIT_NUM_CPU_DEVICES="2")
    assert done.stdout == "Array([0, 1, 2, 3], dtype=int32, P(\"x\") on Mesh('x': 2))\n"


@pytest.mark.parametrize("first", ["einops", "meshjit"])
def test_einops_takes_arrays_and_tracers(first: str, tmp_path: Path) -> None:
    pytest.importorskip("einops")
    code = f"""
import {first}
import einops, meshjit as mj
x = mj.numpy.arange(24.0).reshape(2, 3, 4)
moved = einops.rearrange(x, "a b c -> (c a) b")
print(type(moved) is type(x), moved.shape, mj.jit(lambda x: einops.reduce(x, "a b c -> b", "mean"))(x))
print(mj.grad(lambda x: einops.einsum(x, x, "a b c, a b d -> c d").sum())(x).shape)
"""
    done = python("-c", code, folder=tmp_path)
    assert done.stdout == "True (8, 3) [ 7.5 11.5 15.5]\n(2, 3, 4)\n", done.stderr


def test_a_process_says_after_some_seconds_for_whom_it_waits(tmp_path: Path) -> None:
    environ = {"MESHJIT_NUM_PROCESSES": "2", "MESHJIT_PROCESS_ID": "0"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environ["MESHJIT_COORDINATOR"] = f"127.0.0.1:{free.getsockname()[1]}"
    code = "import meshjit as mj\nmj.distributed.initialize(initialization_timeout=7)"
    done = python("-c", code, folder=tmp_path, **environ)
    words = f"[rank 0] process 1 of 2 did not come so far; waiting at {environ['MESHJIT_COORDINATOR']}"
    assert done.returncode and words in done.stderr.splitlines(), done.stderr


def test_the_tour_can_be_inspected(tmp_path: Path) -> None:
    done = meshjit("inspect", str(ROOT / "docs" / "tour.py"), folder=tmp_path)
    assert done.returncode == 0 and re.search(r"^jit\(loss\) on Mesh", done.stdout, re.MULTILINE), done.stderr


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and re.fullmatch(r"meshjit \d+\.\d+\.\d+, jaxlib \d+\.\d+\.\d+\n", capsys.readouterr().out)
