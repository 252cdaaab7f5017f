"""Compiled programs on disk: what is found again, what is not, what happens to entries that are none."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.emit.emitter import without_locations
from meshjit.runtime import _jaxlib, cache_files, cache_folder, compilation_cache
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    mj.config.update("jax_compilation_cache_dir", tmp_path / "cache")
    cache_folder._no_room.cache_clear()
    cache_folder._too_large.cache_clear()
    cache_files._refuse.cache_clear()
    yield tmp_path / "cache"
    mj.config.update("compilation_cache_dir", None)
    mj.config.update("compilation_cache_max_size", -1)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that XLA compiled."""
    texts: list[str] = []
    original = _jaxlib.compile

    def counted(client: Any, text: str, *rest: Any) -> Any:
        texts.append(text)
        return original(client, text, *rest)

    monkeypatch.setattr(_jaxlib, "compile", counted)
    return texts


def values(count: int = 4, n: int = 8) -> mj.Array:
    mesh = Mesh(np.array(mj.devices()[:count]), ("x",))
    return mj.device_put(np.arange(n, dtype=np.float32), NamedSharding(mesh, P("x")))


def run(x: mj.Array, factor: float = 3.0, **options: Any) -> np.ndarray:
    """A function of its own each time, as in a process of its own."""

    def tripled(x: Any) -> Any:
        return x * factor + x.sum()

    return np.asarray(mj.jit(tripled, **options)(x))


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.executable")) if folder.exists() else []


def test_the_same_program_is_compiled_once(folder: Path, compiled: list[str]) -> None:
    x = values()
    first = run(x)
    assert len(compiled) == len(entries(folder)) == 1 and folder.stat().st_mode & 0o077 == 0
    for _ in range(2):
        np.testing.assert_array_equal(run(x), first)
    assert len(compiled) == len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: run(values(), factor=2.0),
        lambda: run(values(2)),
        lambda: run(values(n=16)),
        lambda: run(values(), compiler_options={"xla_cpu_enable_fast_math": True}),
        lambda: run(mj.device_put(values(), mj.devices()[0])),
        lambda: run(mj.device_put(values(), mj.devices()[1])),
        lambda: run(values(), donate_argnums=0),
        lambda: run(mj.device_put(values(), NamedSharding(Mesh(np.array(mj.devices()[3::-1]), ("x",)), P("x")))),
    ],
    ids=["constant", "mesh", "shape", "options", "one device", "another device", "donation", "order of devices"],
)
def test_other_programs_are_other_entries(other: Any, folder: Path, compiled: list[str]) -> None:
    run(values())
    other()
    assert len(compiled) == len(entries(folder)) >= 2
    del compiled[:]
    other()
    assert not compiled


def test_padding_is_part_of_the_program(folder: Path, compiled: list[str]) -> None:
    """9 and 10 elements over 4 devices have equal shards."""
    for n in (9, 10, 9, 10):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(run(values(n=n)), x * 3 + x.sum())
    assert len(compiled) == 2


def test_source_lines_are_not_part_of_the_program(folder: Path, compiled: list[str]) -> None:
    x = values()
    np.asarray(mj.jit(lambda x: x * 5)(x))
    np.asarray(
        mj.jit(lambda x: x * 5)(
            x
        )
    )  # fmt: skip
    assert len(compiled) == 1


def test_locations_are_cut_out_exactly() -> None:
    text = '%2 = "a"(%1) : () -> f32 loc("f \\"g\\""("/a b/(c).py":17:0))\n%3 = "b"() <{name = "loc(x)"}> : f32\n'
    assert without_locations(text) == '%2 = "a"(%1) : () -> f32\n%3 = "b"() <{name = "loc(x)"}> : f32\n'


def test_loaded_programs_are_like_compiled_ones(folder: Path) -> None:
    def lowered() -> Any:
        return mj.jit(lambda x: (x * 2, x.sum())).lower(values()).compile()

    one, other = lowered(), lowered()
    assert one.as_text() == other.as_text()
    assert one.cost_analysis() == other.cost_analysis() and one.memory_analysis() == other.memory_analysis()
    assert one.input_shardings == other.input_shardings


def test_single_ops_and_resharding_are_kept_too(folder: Path) -> None:
    mj.clear_caches()
    x = values()
    x + x
    assert len(entries(folder)) == 1
    mj.device_put(x, NamedSharding(x.sharding.mesh, P()))
    assert len(entries(folder)) == 2


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: b"", "it was not written by meshjit"),
        (lambda data: b"PNG", "it was not written by meshjit"),
        (lambda data: data[: len(data) // 2], "it is cut off or damaged"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "it is cut off or damaged"),
        (lambda data: data + b"x", "it is cut off or damaged"),
        (lambda data: cache_files.MAGIC, "it is cut off or damaged"),
        (lambda data: cache_files.packed(cache_files._HEAD.unpack_from(data)[2].hex(), b"no"), "INVALID_ARGUMENT"),
        (lambda data: cache_files.packed("ab" * 32, b"no"), "it holds another program: the file was renamed or copied"),
        (lambda data: data.replace(cache_files._HEAD.unpack_from(data)[2], b"k" * 32), "it holds another program"),
    ],
    ids=[
        "empty", "foreign", "cut", "one bit", "longer", "head only", "not an executable", "another key", "key and name differ",
    ],  # fmt: skip
)
def test_useless_entries_are_named_once_and_written_anew(
    spoil: Any, reason: str, folder: Path, compiled: list[str]
) -> None:
    x = values()
    first = run(x)
    (path,) = entries(folder)
    whole = path.read_bytes()
    path.write_bytes(spoil(whole))
    with pytest.warns(UserWarning, match=f"(?s)the compiled program in {path} cannot be used: .*{reason}") as caught:
        np.testing.assert_array_equal(run(x), first)
    assert len(caught) == 1 and len(compiled) == 2 and len(path.read_bytes()) > len(whole) // 2
    np.testing.assert_array_equal(run(x), first)  # without a warning
    assert len(compiled) == 2


def test_an_entry_under_anothers_name_is_not_run(folder: Path, compiled: list[str]) -> None:
    x = values()
    right = run(x, factor=2.0)
    (mine,) = entries(folder)
    run(x, factor=5.0)
    (other,) = (e for e in entries(folder) if e != mine)
    mine.write_bytes(other.read_bytes())
    with pytest.warns(UserWarning, match=f"in {mine} cannot be used: it holds another program: the file was renamed or copied"):
        np.testing.assert_array_equal(run(x, factor=2.0), right)
    np.testing.assert_array_equal(run(x, factor=2.0), right)  # written anew
    assert len(compiled) == 3


def make_sparse(path: Path) -> None:
    """4 TiB of which the head is an entry's."""
    path.write_bytes(cache_files.packed(path.stem, b""))
    os.truncate(path, 2**42)


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is at most 107 bytes long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)
    os.chdir(here)


@pytest.mark.parametrize(
    ("make", "reason", "is_mended"),
    [
        (os.mkfifo, "it is a pipe, not a file", True),
        (make_socket, "No such device or address", True),
        (os.mkdir, "it is a folder, not a file", False),
        (lambda path: path.symlink_to("/dev/zero"), "it is a link", True),
        (lambda path: path.symlink_to(path.parent / "kept"), "it is a link", True),
        (make_sparse, "it is cut off or damaged", True),
    ],
    ids=["pipe", "socket", "folder", "device", "link to the entry itself", "huge"],
)
def test_only_files_are_read(make: Any, reason: str, is_mended: bool, folder: Path, compiled: list[str]) -> None:
    x = values()
    first = run(x)
    (path,) = entries(folder)
    path.rename(folder / "kept")
    make(path)
    with pytest.warns(UserWarning) as caught:
        np.testing.assert_array_equal(run(x), first)
    assert reason in str(caught[0].message) and len(compiled) == 2
    assert path.is_file() == is_mended and not path.is_symlink()
    if is_mended:
        run(x)
        assert len(compiled) == 2


def refusal(caught: Any) -> str:
    (warning,) = caught
    return str(warning.message)


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path, compiled: list[str]) -> None:
    x = values()
    run(x)
    for mode in (0o777, 0o770, 0o702):
        folder.chmod(mode)
        with pytest.warns(UserWarning) as caught:
            run(x)
            run(x, factor=4.0)
        assert refusal(caught) == (
            f"compiled programs in {folder} are not used: others can write to it (mode {mode:o}), and what lies there is run\n"
            f"  fix: chmod go-w {folder}; or, if you trust all who can write there, "
            "config.update('compilation_cache_shared', True)"
        )
    assert len(compiled) == 7 and len(entries(folder)) == 1
    folder.chmod(folder.stat().st_mode & ~0o022)
    run(x)
    assert len(compiled) == 7


def test_a_folder_like_tmp_is_not_asked_to_be_closed(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.warns(UserWarning) as caught:
        run(values())
    assert "fix: config.update('compilation_cache_dir', a folder of your own); or, " in refusal(caught)


def test_a_folder_of_another_user_is_not_used(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = values()
    run(x)
    if os.geteuid() == 0:
        os.chown(folder, 54321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.warns(UserWarning) as caught:
        run(x)
    assert re.search(
        r" are not used: it belongs to .*, not to .*, and what lies there is run\n"
        r"  fix: config.update\('compilation_cache_dir', a folder of your own\); or, ", refusal(caught)
    ) and len(compiled) == 2  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "reader", "mode", "reason"),
    [
        (1000, 1000, 0o755, None),
        (0, 1000, 0o755, None),  # as in an image that root has filled
        (1000, 0, 0o700, "it belongs to user 1000, not to user 0"),
        (1000, 1001, 0o700, "it belongs to user 1000, not to user 1001"),
        (1000, 1000, 0o775, "others can write to it (mode 775)"),
        (0, 1000, 0o1777, "others can write to it (mode 1777)"),
    ],
)
def test_whose_files_are_run(
    owner: int, reader: int, mode: int, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: reader)
    monkeypatch.setattr(cache_files, "_user", lambda number: f"user {number}")
    assert cache_files._distrust(os.stat_result([mode, 0, 0, 1, owner, 0, 0, 0, 0, 0])) == reason


def test_an_entry_of_another_user_is_written_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(values())
    (path,) = entries(folder)
    found = list(path.stat())
    found[4] = 54321
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat_result(found))
    with pytest.raises(cache_files.UselessEntryError, match="it belongs to user 54321, not to "):
        cache_files.read(path, path.stem)
    with mj.config.using(compilation_cache_shared=True):
        assert cache_files.read(path, path.stem)
    monkeypatch.undo()
    path.chmod(0o666)
    with pytest.warns(UserWarning, match=r"cannot be used: others can write to it \(mode 666\)"):
        run(values())
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_shared_folder_can_be_wanted(folder: Path, compiled: list[str]) -> None:
    folder.mkdir()
    folder.chmod(0o2770)
    mode = folder.stat().st_mode
    with mj.config.using(compilation_cache_shared=True):
        for _ in range(2):
            run(values())
    (path,) = entries(folder)
    assert len(compiled) == 1 and path.stat().st_mode & 0o777 == mode & 0o644 == 0o640


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path, compiled: list[str]) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "real")
    for _ in range(2):
        run(values())
    assert len(compiled) == 1 and len(entries(tmp_path / "real")) == 1


def test_a_place_that_cannot_be_written_to_is_named_once(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("")
    mj.config.update("compilation_cache_dir", tmp_path / "file" / "below")
    with pytest.warns(UserWarning, match=r"compiled programs cannot be kept in .*below: .*\n  fix: config.update") as caught:
        run(values())
        run(values(2))
    assert len([w for w in caught if "cannot be kept" in str(w.message)]) == 1


def test_options(folder: Path, compiled: list[str]) -> None:
    for options in (
        {"enable_compilation_cache": False},
        {"jax_persistent_cache_min_compile_time_secs": 3600},
        {"jax_persistent_cache_min_entry_size_bytes": 10**9},
        {"compilation_cache_dir": None},
    ):
        with mj.config.using(**options):
            run(values())
        assert not entries(folder)
    assert len(compiled) == 4


def test_the_key_knows_versions_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        return compilation_cache.cache_key("text", mj.devices()[:2], {})

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    before = key()
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp --xla_force_host_platform_device_count=3")
    assert key() == before
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert key() != before
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(_jaxlib, "version", "9.9")
    assert key() != before


def test_threads_write_one_entry(folder: Path) -> None:
    x = mj.device_put(values(), mj.devices()[1])  # one device: XLA:CPU can hang when threads start programs of several
    threads = [threading.Thread(target=run, args=(x,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(folder.iterdir())) == 1


SCRIPT = """
    import sys, numpy as np, meshjit as mj
    from meshjit.runtime import _jaxlib
    count, original = [0], _jaxlib.compile
    def counted(*arguments):
        count[0] += 1
        return original(*arguments)
    _jaxlib.compile = counted
    sharding = mj.NamedSharding(mj.make_mesh((4,), ("x",)), mj.P("x"))
    x = mj.device_put(np.arange(10, dtype=np.float32), sharding)
    total = mj.jit(lambda x, y: (x @ y).sum() + x.mean())(x, x)
    print(count[0], float(total))
"""


def start(folder: Path) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "MESHJIT_NUM_CPU_DEVICES": "4"}
    environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> list[float]:
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0 and not error, error
    return [float(word) for word in out.split()]


def test_another_process_finds_it(tmp_path: Path) -> None:
    both = [said(start(tmp_path / "cache")) for _ in range(2)]
    assert both == [[1, 285 + 4.5], [0, 285 + 4.5]]


def test_two_processes_at_once(tmp_path: Path) -> None:
    processes = [start(tmp_path / "cache") for _ in range(3)]
    found = [said(process) for process in processes]
    assert [total for _, total in found] == [285 + 4.5] * 3 and len(list((tmp_path / "cache").iterdir())) == 1
    assert said(start(tmp_path / "cache")) == [0, 285 + 4.5]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(values())
    assert not list(tmp_path.iterdir())


def test_a_limited_folder_forgets_what_was_not_used_for_longest(folder: Path, compiled: list[str]) -> None:
    x = values()
    run(x, factor=2.0)
    size = entries(folder)[0].stat().st_size
    mj.config.update("jax_compilation_cache_max_size", int(2.5 * size))
    first = entries(folder)[0]
    os.utime(first, (1, 1))
    run(x, factor=3.0)
    second = next(e for e in entries(folder) if e != first)
    os.utime(second, (2, 2))
    run(x, factor=2.0)  # found, and so it is not the oldest any more
    assert len(compiled) == 2 and first.stat().st_mtime > 2
    run(x, factor=4.0)
    assert len(compiled) == 3 and len(entries(folder)) == 2
    assert first.exists() and not second.exists()


def test_limits_that_keep_nothing(folder: Path, compiled: list[str]) -> None:
    mj.config.update("compilation_cache_max_size", 100)
    with pytest.warns(UserWarning, match="a compiled program is larger than all that may be kept in .*\n  fix: config.update") as caught:
        for factor in (2.0, 3.0):
            run(values(), factor)
    assert len(caught) == 1 and entries(folder) == []
    mj.config.update("compilation_cache_max_size", 0)
    run(values(), 4.0)
    assert entries(folder) == []
    with pytest.raises(ValueError, match="expected an integer of at least -1"):
        mj.config.update("compilation_cache_max_size", -2)
