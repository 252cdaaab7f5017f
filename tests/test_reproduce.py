"""`meshjit reproduce FILE` with files of others: options, sizes, and files that are none."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.cli import main
from meshjit.cli.reproduce import constant_sizes, options_of
from meshjit.errors import InternalError

PROGRAM = "program main(%x: f32[4]) {\n  %0: f32[4] = sine(%x)\n  return %0\n}"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """What the two kinds of InternalError leave behind; the function closes over 1234.5."""
    lowered = mj.jit(lambda x: x * np.float32(1234.5) + np.arange(4, dtype=np.float32)).lower(np.ones(4, np.float32))
    right = lowered.lowering.text
    object.__setattr__(lowered.lowering, "text", right.replace("stablehlo.multiply", "stablehlo.multiplied"))
    with pytest.raises(InternalError) as compiling:
        lowered.compile()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InternalError) as planning:
        patch.setattr("meshjit.runtime.lowering.partition", lambda *args: 1 // 0)
        mj.jit(lambda x: x + 1).lower(np.ones(4, np.float32))
    found = {}
    for name, error in (("compile", compiling), ("plan", planning)):
        path = Path(str(error.value).split(" are in ")[1].splitlines()[0])
        found[name] = path.read_text()
        path.unlink()
    return {**found, "compile": found["compile"].replace("stablehlo.multiplied", "stablehlo.multiply")}


def run(tmp_path: Path, text: str | bytes, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    path = tmp_path / "file.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    status = main(["reproduce", str(path)])
    out, error = capsys.readouterr()
    assert error.count("\n") == (status == 2)
    return status, out, error.removeprefix(f"meshjit reproduce: {path} ")


@pytest.mark.parametrize("kind", ["compile", "plan"])
def test_whole_files_are_done_again(kind: str, files: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path, files[kind], capsys) == (0, "it does not fail here\n", "")


def test_a_program_is_planned_again_for_its_target(files: dict[str, str], tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    import meshjit.runtime.lowering as stages

    planned: list[str] = []
    make_plan = stages.make_plan
    monkeypatch.setattr(stages, "make_plan", lambda *args: planned.append(str(args[-1])) or make_plan(*args))
    for target in ("cpu", "tpu v5p", "gpu b200"):
        text = files["plan"].replace("=== target ===\ncpu", f"=== target ===\n{target}")
        assert run(tmp_path, text, capsys) == (0, "it does not fail here\n", "")
    assert planned == ["cpu", "tpu v5p", "gpu b200"]


@pytest.mark.parametrize("kind", ["compile", "plan"])
def test_the_head_says_what_is_in_the_file(kind: str, files: dict[str, str]) -> None:
    assert files[kind].startswith("What meshjit needs to see an internal error again. This file holds the whole program, with the values")
    assert "1234.5" in files["compile"]


def test_options_that_name_files_are_left_out(files: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "dumped"
    options = f"xla_dump_to = {str(folder)!r}\nxla_dump_hlo_as_text = True\nxla_cpu_enable_fast_math = False"
    text = files["compile"].replace("=== options ===\nnone", f"=== options ===\n{options}")
    assert options in text
    status, out, _ = run(tmp_path, text, capsys)
    assert (status, out.splitlines()) == (
        0, ["left out, because they have XLA read or write files: xla_dump_to, xla_dump_hlo_as_text", "it does not fail here"]
    )  # fmt: skip
    assert not folder.exists() and os.listdir(tmp_path) == ["file.txt"]


def test_which_options_name_files() -> None:
    lines = {
        "xla_gpu_cuda_data_dir": "here", "xla_gpu_kernel_cache_file": "x", "xla_gpu_dump_autotune_results_to": "y",
        "xla_gpu_load_autotune_results_from": "z", "xla_any": "../up", "xla_other": "C:\\x", "xla_home": "~",
    }  # fmt: skip
    kept = {"xla_disable_hlo_passes": "a,b", "xla_cpu_enable_fast_math": True, "xla_backend_optimization_level": 2}
    assert options_of("\n".join(f"{k} = {v!r}" for k, v in {**lines, **kept}.items())) == (kept, list(lines))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no section 'mesh', so no InternalError has written it, or not all of it is there\n"),
        ("hello\n", "has no section 'mesh', so"),
        (b"\x7fELF\x02\x01\xff\xfe", "is not text, so no InternalError has written it\n"),
        ("=== mesh ===\nMesh('x': 4)\n", "has no section 'options', so"),
        ("=== mesh ===\nMesh('x': 4)\n=== program ===\n" + PROGRAM, "has no section 'input specs', so"),
    ],
)
def test_files_that_are_none(text: str | bytes, reason: str, tmp_path: Path, capsys: Any) -> None:
    status, out, error = run(tmp_path, text, capsys)
    assert (status, out) == (2, "") and error.startswith(reason)


def test_places_without_a_file(tmp_path: Path, capsys: Any) -> None:
    for path, reason in ((tmp_path / "none.txt", "No such file or directory"), (tmp_path, "Is a directory")):
        assert main(["reproduce", str(path)]) == 2
        assert capsys.readouterr().err == f"meshjit reproduce: {path} cannot be read: {reason}\n"


@pytest.mark.parametrize(
    ("kind", "old", "new", "reason"),
    [
        ("compile", "=== mesh ===\n", "=== mesh ===\n'y': 100000, ", "has a mesh of 100000 devices, and at most 2048 are made here\n"),
        ("plan", "=== mesh ===\n", "=== mesh ===\n'y': 100, 'z': 1000, ", "has a mesh of 100000 devices, and"),
        ("plan", "splat(f32[4], 1.0)", "splat(f32[1048576, 1048576], 1.0)", "has constants of 4.4e+12 bytes, splat(f32["),
        ("compile", "dense<", "dense<0.0> : tensor<1048576x1048576xf32> // <", "has constants of 4.4e+12 bytes, tensor<1048576x10"),
    ],
)
def test_sizes_that_nobody_has(
    kind: str, old: str, new: str, reason: str, files: dict[str, str], tmp_path: Path, capsys: Any
) -> None:
    assert old in files[kind], files[kind]
    start = time.monotonic()
    status, out, error = run(tmp_path, files[kind].replace(old, new), capsys)
    assert (status, out) == (2, "") and error.startswith(reason), error
    assert time.monotonic() - start < 1


def test_sizes_of_constants() -> None:
    program = "%0 = constant(value=splat(f32[2, 3], 1.0)) array(i8[5], 'x') splat(bool[], True) array(c64[4], (1,)) splat(bf16[7], 0)"
    stablehlo = 'dense<1.0> : tensor<2x3xf32> dense<"0xAB"> : tensor<4xcomplex<f32>> dense<true> : tensor<i1> dense<[[1, 2]]> : tensor<1x2xi64>'
    assert [size for size, _ in constant_sizes({"program": program})] == [24, 5, 32, 14]
    assert [size for size, _ in constant_sizes({"stablehlo": stablehlo})] == [24, 32, 1, 16]


def test_what_does_not_parse_fails_in_a_line(files: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    status, out, _ = run(tmp_path, files["plan"].replace("program ", "progam ", 1), capsys)
    assert status in (1, 2) and out.count("\n") <= 1
    broken = files["compile"].replace("=== options ===\nnone", "=== options ===\nxla_a = __import__('os').getcwd()")
    status, out, _ = run(tmp_path, broken, capsys)
    assert status == 1 and out.startswith("it fails: ValueError: malformed node or string")
