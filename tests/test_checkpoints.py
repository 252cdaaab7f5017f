"""Checkpoints: what is read is what was written, under any mesh; what is torn is named, and what was there before stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
from meshjit import checkpoints
from meshjit.checkpoints import CheckpointError
from meshjit.checkpoints.writing import Saving
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.tools.processes import side_by_side

pytestmark = pytest.mark.device


def mesh(*sizes: int) -> Mesh:
    devices = np.array(mj.devices()[: int(np.prod(sizes))])
    return Mesh(devices.reshape(sizes), ("x", "y", "z")[: len(sizes)])


def placed(value: Any, on: Mesh, *spec: Any) -> Any:
    return mj.device_put(value, NamedSharding(on, P(*spec)))


def state() -> dict[str, Any]:
    return {
        "w": placed(np.arange(70, dtype=np.float32).reshape(10, 7), mesh(4, 2), "x", "y"),  # uneven
        "b": placed(np.arange(5).astype(ml_dtypes.bfloat16), mesh(8), "x"),  # some devices hold nothing
        "whole": placed(np.ones((3, 2), np.int32), mesh(2, 2), None, "y"),  # copies
        "none": placed(np.zeros((0, 4), np.float32), mesh(2), None, "x"),
        "numpy": [np.float64(1.5), np.array([True, False]), 7, np.arange(3) * 1j],
        "one": mj.device_put(np.float16(2.5)),
    }


def values(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in mj.tree.leaves(tree)]


def assert_same(a: Any, b: Any) -> None:
    for one, other in zip(values(a), values(b), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_a_script_may_end_with_a_save(tmp_path: Path) -> None:
    """Two processes: the thread that writes outlives the script's last line, when Python takes no more work for executors."""
    body = f"""
import meshjit as mj
from meshjit import checkpoints
from meshjit.sharding import NamedSharding, PartitionSpec as P
x = mj.device_put(np.arange(24.0).reshape(12, 2), NamedSharding(mj.make_mesh((len(mj.devices()),), ("x",)), P("x")))
checkpoints.save({str(tmp_path / "run")!r}, {{str(i): x for i in range(40)}}, 1)
"""
    ended = side_by_side(tmp_path, body)
    assert [one.code for one in ended] == [0, 0], ended[0].error
    assert checkpoints.latest(tmp_path / "run") == 1


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    saved = state()
    checkpoints.save(tmp_path, saved, 3).wait()
    assert sorted(os.listdir(tmp_path)) == ["step-00000003"] and checkpoints.latest(tmp_path) == 3
    back = checkpoints.restore(tmp_path, like=saved)
    assert_same(saved, back)
    assert back["w"].sharding == saved["w"].sharding and type(back["numpy"][1]) is np.ndarray


@pytest.mark.parametrize("sizes", [(1,), (3,), (8,), (2, 3)])
@pytest.mark.parametrize("spec", [(None,), ("x",), (None, "x"), (("y", "x"), None)])
def test_under_another_mesh(tmp_path: Path, sizes: tuple[int, ...], spec: Any) -> None:
    if "y" in str(spec) and len(sizes) < 2:
        pytest.skip("no such axis")
    saved = state()["w"]
    checkpoints.save(tmp_path, saved, 0).wait()
    target = NamedSharding(mesh(*sizes), P(*spec))
    for like in (target, mj.ShapeDtypeStruct(saved.shape, np.float32, sharding=target)):
        back = checkpoints.restore(tmp_path, like=like)
        assert back.sharding == target
        np.testing.assert_array_equal(np.asarray(back), np.asarray(saved))


def test_keys_are_stored_as_words_and_come_back_as_keys(tmp_path: Path) -> None:
    keys = placed(mj.random.split(mj.random.key(0), 6), mesh(4), "x")
    checkpoints.save(tmp_path, {"k": keys}, step=1).wait()
    place = NamedSharding(mesh(2), P("x"))
    for like in (keys, mj.ShapeDtypeStruct((6,), keys.dtype, place)):
        read = checkpoints.restore(tmp_path, like={"k": like})["k"]
        assert read.dtype == keys.dtype and read.sharding == like.sharding
        np.testing.assert_array_equal(mj.random.key_data(read), mj.random.key_data(keys))
    np.testing.assert_array_equal(checkpoints.restore(tmp_path)["['k']"], mj.random.key_data(keys))


def test_as_another_dtype(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, {"a": np.arange(4, dtype=np.float32)}, 0).wait()
    back = checkpoints.restore(tmp_path, like={"a": placed(np.zeros(4, ml_dtypes.bfloat16), mesh(2), "x")})
    assert back["a"].dtype == ml_dtypes.bfloat16 and np.asarray(back["a"]).tolist() == [0, 1, 2, 3]


def test_each_slice_is_written_once_and_numpy_reads_it(tmp_path: Path) -> None:
    saved = {"w": placed(np.arange(12.0, dtype=np.float32).reshape(6, 2), mesh(2, 4), "x")}
    checkpoints.save(tmp_path, saved, 5).wait()
    folder = tmp_path / "step-00000005"
    assert sorted(os.listdir(folder)) == ["00000.0_0.npy", "00000.3_0.npy", "index.json"]
    assert np.load(folder / "00000.3_0.npy").tolist() == [[6, 7], [8, 9], [10, 11]]
    (leaf,) = json.loads((folder / "index.json").read_text())["leaves"]
    assert (leaf["path"], leaf["shape"], leaf["dtype"]) == ("['w']", [6, 2], "float32") and leaf["shards"][1]["start"] == [3, 0]
    assert {name: value.tolist() for name, value in checkpoints.restore(tmp_path).items()} == {"['w']": np.asarray(saved["w"]).tolist()}


def test_what_is_donated_afterwards_is_saved_as_it_was(tmp_path: Path) -> None:
    step = mj.jit(lambda x: x + 1, donate_argnums=0)
    x = placed(np.zeros(1 << 16, np.float32), mesh(4), "x")
    saving = checkpoints.save(tmp_path, x, 0)
    for _ in range(5):
        x = step(x)
    saving.wait()
    assert saving.done() and not np.asarray(checkpoints.restore(tmp_path)[""]).any() and np.asarray(x)[0] == 5


def test_the_last_n_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 5, 10):
        checkpoints.save(tmp_path, np.arange(step), step, keep=2)
    saving = checkpoints.save(tmp_path, np.arange(11), 11, keep=2)
    saving.wait()
    assert checkpoints.steps(tmp_path) == [10, 11] and sorted(os.listdir(tmp_path)) == ["step-00000010", "step-00000011"]
    assert checkpoints.restore(tmp_path, step=10)[""].shape == (10,)


def test_what_was_just_saved_is_kept(tmp_path: Path) -> None:
    """Of others those of the highest steps; what an interrupted save left of lower ones goes with them."""
    for step in (100, 200, 300):
        checkpoints.save(tmp_path, {"a": np.ones(3)}, step).wait()
    for step in (50, 250):
        (tmp_path / f".step-{step:08d}.writing").mkdir()
    checkpoints.save(tmp_path, {"a": np.zeros(3)}, np.int64(1), keep=3).wait()
    assert checkpoints.steps(tmp_path) == [1, 200, 300] and len(list(tmp_path.iterdir())) == 5
    checkpoints.save(tmp_path, {"a": np.zeros(3)}, mj.numpy.int32(400), keep=1).wait()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000400"]


@pytest.mark.parametrize(
    ("step", "keep", "error", "text"),
    [
        (-1, None, ValueError, "save: step=-1 is less than 0\n  fix: step= takes an integer from 0 on"),
        (1.5, None, TypeError, "save: step=1.5 is no integer\n  fix: step= takes an integer from 0 on"),
        (1, 0, ValueError, "save: keep=0 is less than 1\n  fix: keep= takes an integer from 1 on; without it all stay"),
        (1, "2", TypeError, "save: keep='2' is no integer\n  fix: keep= takes an integer from 1 on; without it all stay"),
    ],
)
def test_steps_and_counts_are_integers(tmp_path: Path, step: Any, keep: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        checkpoints.save(tmp_path, {"a": np.ones(3)}, step, keep=keep)
    assert str(raised.value) == text and not list(tmp_path.iterdir())


def test_who_waited_for_a_save_that_failed_saves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is said once; nothing is left of it. Before, the next save raised it again."""
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.writing, "check_complete", lambda leaves: 1 // 0)
        with pytest.raises(CheckpointError, match="process 0 could not finish .*step-00000001: ZeroDivisionError"):
            checkpoints.save(tmp_path, {"a": np.ones(3)}, 1).wait()
    checkpoints.save(tmp_path, {"a": np.ones(3)}, 1).wait()
    assert checkpoints.steps(tmp_path) == [1]


def test_a_step_that_is_there(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, np.arange(3), 1).wait()
    with pytest.raises(CheckpointError, match="step-00000001 is there already\n  fix: overwrite=True replaces it"):
        checkpoints.save(tmp_path, np.arange(4), 1)
    checkpoints.save(tmp_path, np.arange(5), 1, overwrite=True).wait()
    assert checkpoints.restore(tmp_path)[""].shape == (5,)


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda file: file.unlink(), r"00000.2.npy, a shard of \['w'\], is missing"),
        (lambda file: os.truncate(file, 130), r"00000.2.npy, a shard of \['w'\], is torn: it has 130 of 136 bytes"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"x"), "was changed: its SHA-256 is another one"),
    ],
)
def test_harm_is_named(tmp_path: Path, harm: Any, text: str) -> None:
    saved = {"w": placed(np.arange(4, dtype=np.float32), mesh(2), "x")}
    checkpoints.save(tmp_path, saved, 1).wait()
    harm(tmp_path / "step-00000001" / "00000.2.npy")
    with pytest.raises(CheckpointError, match=text):
        checkpoints.restore(tmp_path, like=saved)


def test_other_trees_and_shapes(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, {"a": np.ones(2), "b": 1}, 1).wait()
    with pytest.raises(CheckpointError, match=r"holds another tree than `like`\n  not in it: \['c'\]\n  only in it: \['b'\]"):
        checkpoints.restore(tmp_path, like={"a": np.ones(2), "c": 1})
    with pytest.raises(CheckpointError, match=r"\['a'\] has shape \(2,\), `like` has \(3,\)"):
        checkpoints.restore(tmp_path, like={"a": np.ones(3), "b": 1})
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        checkpoints.restore(tmp_path / "nothing")
    (tmp_path / "step-00000001" / "index.json").write_text("{")
    with pytest.raises(CheckpointError, match="index.json is torn"):
        checkpoints.restore(tmp_path)
    with pytest.raises(TypeError, match=r"checkpoints.save: \['a'\] is no array, but 'text'"):
        checkpoints.save(tmp_path, {"a": "text"}, 2)


def test_who_is_interrupted_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(tmp_path, np.arange(3), 1).wait()

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device", "somewhere")

    with monkeypatch.context() as patched:
        patched.setattr("meshjit.checkpoints.writing._write_npy", full)
        saving: Saving = checkpoints.save(tmp_path, np.arange(4), 2)
        with pytest.raises(CheckpointError, match="process 0 could not write somewhere: No space left on device"):
            checkpoints.save(tmp_path, np.arange(4), 3)  # says what went wrong before, for nobody waited
    assert checkpoints.latest(tmp_path) == 1 and os.listdir(tmp_path) == ["step-00000001"] and saving.done()
    checkpoints.save(tmp_path, np.arange(4), 2).wait()
    assert checkpoints.latest(tmp_path) == 2


BODY = """
import meshjit as mj
from meshjit import checkpoints
from meshjit.checkpoints import writing
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
folder = os.path.join(os.path.dirname(sys.argv[0]), "run")
def place(mesh, *spec): return NamedSharding(mesh, P(*spec))
devices = np.array(mj.devices())
whole_rows = np.zeros((7, 6), np.float32)
rows, whole = np.arange(42.0, dtype=np.float32).reshape(7, 6), np.arange(3)
def put(value, sharding): return mj.make_array_from_callback(value.shape, sharding, lambda index: value[index])
saved = {"rows": put(rows, place(Mesh(devices, "x"), "x")), "cut": put(rows, place(Mesh(devices.reshape(2, 2), ("x", "y")), None, "x")), "mine": whole + rank}
saved["there"] = mj.device_put(rows, place(Mesh(devices[2:], "x"), "x"))  # process 0 has nothing of it
checkpoints.save(folder, saved, 7).wait()
say(sorted(name.split(".")[1] for name in os.listdir(folder + "/step-00000007") if name.startswith("00002.")), checkpoints.latest(folder))
turned = devices.reshape(2, 2).T
like = {"rows": place(Mesh(turned, ("x", "y")), "y", "x"), "cut": place(Mesh(turned.reshape(-1), "x"), "x"), "mine": whole, "there": place(Mesh(devices, "x"), None, "x")}
back = checkpoints.restore(folder, like)
for name in ("rows", "cut", "there"):
    say(name, all(np.array_equal(shard.data, rows[shard.index]) for shard in back[name].addressable_shards))
say(back["mine"].tolist())
try: checkpoints.save(folder, {"a": np.ones(2 + rank)}, 8)
except Exception as error: say(type(error).__name__)
spread, real, agreed = {"rows": saved["rows"], "cut": saved["cut"]}, writing.agree, []
writing.agree = lambda *args, **kwargs: (agreed.append(1), real(*args, **kwargs))
folder += "later"
for step in (10, 11, 12): checkpoints.save(folder, spread, step, keep=2).wait()
say(len(agreed), checkpoints.steps(folder), np.array_equal(checkpoints.restore(folder, {"rows": whole_rows, "cut": whole_rows})["rows"], rows))
try: checkpoints.save(folder, spread, 20 + rank).wait()
except Exception as error: say(str(error))
"""


def test_two_processes(tmp_path: Path) -> None:
    ended = side_by_side(tmp_path, BODY)
    expected = ["['0_0', '2_0', '4_0', '6_0'] 7", "rows True", "cut True", "there True", "[0, 1, 2]", "DivergenceError"]
    expected += ["1 [11, 12] True", "the processes save different steps: process 0 step 20, process 1 step 21"]
    assert [e.said[: len(expected)] for e in ended] == [expected, expected], ended[0].error
    names = os.listdir(tmp_path / "run" / "step-00000007")
    assert len([name for name in names if name.startswith("00000.")]) == 2  # "cut": two halves, each by one process


def test_a_reader_without_meshjit(tmp_path: Path) -> None:
    saved = state()
    checkpoints.save(tmp_path, saved, 1).wait()
    folder = tmp_path / "step-00000001"
    for leaf in json.loads((folder / "index.json").read_text())["leaves"]:
        whole = np.zeros(leaf["shape"], leaf["stored"])
        for shard in leaf["shards"]:
            whole[tuple(slice(a, b) for a, b in zip(shard["start"], shard["stop"], strict=True))] = np.load(folder / shard["file"])
        if leaf["path"] == "['b']":
            assert whole.view(ml_dtypes.bfloat16).tolist() == [0, 1, 2, 3, 4]
        if leaf["path"] == "['w']":
            np.testing.assert_array_equal(whole, np.asarray(saved["w"]))


# --- zarr, by TensorStore ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ocdbt", [False, True])
def test_zarr_is_read_as_it_was_written(tmp_path: Path, ocdbt: bool) -> None:
    pytest.importorskip("tensorstore")
    saved = state()
    checkpoints.save_zarr(tmp_path / "one", saved, ocdbt=ocdbt).wait()
    back = checkpoints.restore_zarr(tmp_path / "one", like={**saved, "w": NamedSharding(mesh(3), P(None, "x"))})
    assert_same(saved, back)
    assert back["w"].sharding.spec == P(None, "x")


def test_other_programs_read_zarr(tmp_path: Path) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    checkpoints.save_zarr(tmp_path / "one", state()).wait()
    w = tensorstore.open({"driver": "zarr3", "kvstore": f"file://{tmp_path}/one/w/"}).result()
    np.testing.assert_array_equal(w.read().result(), np.arange(70).reshape(10, 7))
    assert w.chunk_layout.write_chunk.shape == (3, 4)  # a shard is a chunk


@pytest.mark.parametrize(
    "tree", [{"a": 1.0, "a/c": 2.0}, {"a": {"b": np.arange(3), "": 5}}, [{"x": 1}, {"x": 2}, 3], {"a b": 1, "a.b": 2, "a": 3}], ids=str
)
def test_zarr_has_a_place_for_each_leaf(tmp_path: Path, tree: Any) -> None:
    """Also where the path of one begins with that of another, or where they differ in signs alone."""
    pytest.importorskip("tensorstore")
    checkpoints.save_zarr(tmp_path / "z", tree).wait()
    assert_same(checkpoints.restore_zarr(tmp_path / "z", tree), tree)


def test_zarr_refuses_a_dtype_before_anything_is_replaced(tmp_path: Path) -> None:
    pytest.importorskip("tensorstore")
    checkpoints.save_zarr(tmp_path / "z", {"x": np.ones(3)}).wait()
    with pytest.raises(CheckpointError) as raised:
        checkpoints.save_zarr(tmp_path / "z", {"x": np.zeros(3, ml_dtypes.uint4)})
    problem = "save_zarr: ['x'] is of uint4, which TensorStore has no data type for"
    assert str(raised.value) == f"{problem}\n  fix: checkpoints.save takes it"
    assert_same(checkpoints.restore_zarr(tmp_path / "z"), {"['x']": np.ones(3)})


def test_zarr_that_is_not_complete(tmp_path: Path) -> None:
    pytest.importorskip("tensorstore")
    checkpoints.save_zarr(tmp_path / "one", state()).wait()
    (tmp_path / "one/meshjit.json").unlink()
    with pytest.raises(CheckpointError, match="has no meshjit.json: there is no checkpoint, or it was not written to its end"):
        checkpoints.restore_zarr(tmp_path / "one", like=state())
