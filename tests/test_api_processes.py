"""jit and what stands around it on two processes."""

from __future__ import annotations

from pathlib import Path

from tests.tools.processes import needs_mpi, side_by_side, under_mpirun

BODY = """
import meshjit as mj, meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
rows = NamedSharding(Mesh(np.array(mj.devices()), ("x",)), P("x"))
x = np.arange(8, dtype=np.float32)
inner = mj.jit(lambda v: v * 2)
f = mj.jit(lambda x, unused: inner(inner(x)).sum(), in_shardings=(rows, None))
compiled = f.lower(x, 1).compile()
say(float(f(x, 1)), float(compiled(x, 1)), compiled.input_shardings[0][1])
state = mj.device_put(x, rows)
new = mj.jit(lambda s: s + 1, donate_argnums=0)(state)
say(state.is_deleted(), [s.data.tolist() for s in new.addressable_shards])
with mj.debug_nans():
    try:
        mj.jit(lambda s: mnp.log(s - 3))(new)
        say("fine")
    except FloatingPointError as error:
        say(str(error).replace(chr(10), ""))
with mj.disable_jit():
    say(float(mj.jit(lambda v: v.sum())(mnp.ones(3))))
value = np.arange(30, dtype=np.float32).reshape(10, 3)
def among(*ids, spec=P("x")): return NamedSharding(Mesh(np.array(mj.devices())[list(ids)], ("x",)), spec)
meshes = [among(0, 1, 2, 3), among(3, 0, 2, 1), among(3, 0), among(2, 0, 3, spec=P()), among(1, 2, spec=P(None, "x"))]
for source in meshes:
    start = mj.make_array_from_callback(value.shape, source, lambda index: value[index])
    for goal in meshes:
        there = mj.device_put(start, goal).addressable_shards
        assert {s.device for s in there} == goal.device_set & set(mj.local_devices())
        assert all((np.asarray(s.data) == value[s.index]).all() for s in there)
say("moved")
"""


@needs_mpi
def test_stages_donation_checks_and_moves_among_meshes(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, BODY)
    both = "112.0 112.0 None"
    assert ended.said == [
        both,
        "True [[1.0, 2.0], [3.0, 4.0]]",
        "jit(lambda): result f32[8] holds NaN  its arguments span processes, so this one cannot tell which operation made"
        " the NaN",
        "3.0",
        "moved",
        both,
        "True [[5.0, 6.0], [7.0, 8.0]]",
        "fine",
        "3.0",
        "moved",
    ], ended.error


MEMORIES = """
import meshjit as mj
from meshjit.memory import Space
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
there = NamedSharding(Mesh(np.array(mj.devices()), ("x",)), P("x"), memory_kind="pinned_host")
here = there.with_memory_kind("device")
value = np.arange(7, dtype=np.float32)
x = mj.make_array_from_callback(value.shape, there, lambda index: value[index])
f = mj.jit(lambda a: (mj.device_put(a, Space.Device) * 2, a + 1), out_shardings=(here, there), donate_argnums=0)
double, more = f(mj.device_put(mj.device_put(x, here), Space.Host))
say(double.sharding.memory_kind, more.sharding.memory_kind, [s.data.tolist() for s in more.addressable_shards])
say([s.data.tolist() for s in mj.device_put(double, there).addressable_shards], x.is_deleted())
"""


@needs_mpi
def test_memories_of_two_processes(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, MEMORIES)
    assert ended.said == [
        "device pinned_host [[1.0, 2.0], [3.0, 4.0]]",
        "[[0.0, 2.0], [4.0, 6.0]] False",
        "device pinned_host [[5.0, 6.0], [7.0]]",
        "[[8.0, 10.0], [12.0]] False",
    ], ended.error


DIFFERING = """
import meshjit as mj
from meshjit import multihost, random
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
me, devices = mj.process_index(), np.array(mj.devices())
rows, whole = (NamedSharding(Mesh(devices, ("x",)), spec) for spec in (P("x"), P()))
def told(f):
    try:
        say(f())
    except RuntimeError as error:
        say(str(error).replace(chr(10), "|"))
tree = {"same": np.arange(4.0), "own": [3, np.arange(4, dtype=np.int32) + me]}
told(lambda: mj.device_put(tree, {"same": rows, "own": [whole, rows]}))
told(lambda: mj.device_put(np.zeros(2 + me), whole))
told(lambda: mj.device_put([1.0] * (1 + me), whole))
told(lambda: [x.tolist() for x in (mj.device_put(np.full(2, me), mj.local_devices()[0]), multihost.broadcast_one_to_all(np.full(2, me)))])
told(lambda: [s.data.tolist() for s in mj.device_put(multihost.broadcast_one_to_all(np.arange(4) + me), rows).addressable_shards])
told(lambda: f"{mj.device_put(np.arange(8, dtype=np.int32), rows)}")
told(lambda: repr(random.wrap_key_data(mj.device_put(np.zeros((4, 2), np.uint32), rows))).replace(chr(10), "|"))
other = NamedSharding(Mesh(devices[::-1] if me else devices, ("x",)), P("x"))
x = mj.make_array_from_callback((8,), other, lambda index: np.arange(8.0)[index])
told(lambda: x * 2)
"""


@needs_mpi
def test_values_and_meshes_that_differ_between_processes_are_refused(tmp_path: Path) -> None:
    """Before, each process put its own shards of its own value, and ran a program on its own row of devices: results of one
    Array were of several."""
    ended = under_mpirun(tmp_path, DIFFERING)
    assert len(ended.said) == 16, ended.error
    first, second = ended.said[:8], ended.said[8:]
    assert first[:3] == second[:3]
    own, shapes, trees = first[:3]
    problem = "its values differ between processes, of which each would put its own shards|"
    assert own.startswith(f"device_put of x['own'][1]: {problem}  process 0: i32[4], fingerprint ")
    assert own.endswith(
        "|  fix: make_array_from_process_local_data(sharding, part) where each process has a part;"
        "|       multihost.broadcast_one_to_all(x) first where one process's counts"
    )
    assert shapes.startswith(f"device_put of x: {problem}  process 0: f32[2], ") and "|  process 1: f32[3], " in shapes
    assert trees == "device_put: the processes bring trees of [1, 2] arrays"
    assert (first[3], second[3]) == ("[[0, 0], [0, 0]]", "[[1, 1], [0, 0]]")
    assert (first[4], second[4]) == ("[[0], [1]]", "[[2], [3]]")
    assert first[5] == second[5] == "Array(shape=(8,), dtype=int32, P(\"x\") on Mesh('x': 4))"
    assert first[6].startswith("Array((4,), dtype=key<fry>) overlaying:") and "Array(shape=(4, 2), dtype=uint32" in first[6]
    assert "the processes disagree about program" in first[7] and "-Mesh('x': 4), devices 0, 1" in first[7]


COPIED = """
import meshjit as mj, meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
def told(f):
    try: say(f())
    except Exception as error: say(type(error).__name__ + ": " + str(error).split(chr(10))[0][-62:])
mesh = Mesh(np.array(mj.devices()).reshape(2, 2), ("host", "model"))
def made(spec, mesh=mesh, shape=(4,)):
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return mj.make_array_from_callback(shape, NamedSharding(mesh, spec), lambda index: value[index], dtype=np.float32)
x = made(P("model"))
told(lambda: [np.asarray(x).tolist(), mj.device_get({"x": x})["x"].tolist(), x.tolist(), x.tobytes() == np.asarray(x).tobytes()])
told(lambda: f"{x!r} {x} {x}")
told(lambda: [float(made(P("model"), shape=(1,)).reshape(())), made(P("model"), shape=(1,)).item()])
told(lambda: [np.asarray(mj.jit(lambda x: x * 2)(x)).tolist(), np.asarray(x[1:3]).tolist(), float(x[3]), (x == 2).tolist(), 3 in x])
told(lambda: [float(v) for v in x])
told(lambda: np.asarray(made(P(None, "model"), shape=(1, 3))).tolist())  # whose last shard has padding
told(lambda: np.asarray(made(P("host"), shape=(1,))).tolist())  # the second process has an empty shard
told(lambda: np.asarray(made(P("host"))))
told(lambda: np.asarray(made(P("model", "host"), shape=(2, 2))))
told(lambda: repr(made(P("host"))))
told(lambda: np.asarray(mj.pure_callback(lambda v: v + 1, mj.ShapeDtypeStruct((4,), np.float32), x)).tolist())
told(lambda: np.asarray(mj.device_put(x, NamedSharding(mesh, P()))).tolist())
"""


def test_copies_of_all_shards_on_this_process_are_the_whole_value(tmp_path: Path) -> None:
    """Reading them was refused, as if a part lay elsewhere alone."""
    part = "RuntimeError: vice) spans processes [0, 1]; this one holds only a part of it"
    for rank, process in enumerate(side_by_side(tmp_path, COPIED)):
        assert process.said == [
            "[[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], True]",
            "Array([0., 1., 2., 3.], dtype=float32, P(\"model\") on Mesh('host': 2, 'model': 2)) [0. 1. 2. 3.] [0. 1. 2. 3.]",
            "[0.0, 0.0]",
            "[[0.0, 2.0, 4.0, 6.0], [1.0, 2.0], 3.0, [False, False, True, False], True]",
            "[0.0, 1.0, 2.0, 3.0]",
            "[[0.0, 1.0, 2.0]]",
            part if rank else "[0.0]",
            part,
            part,
            "Array(shape=(4,), dtype=float32, P(\"host\") on Mesh('host': 2, 'model': 2))",
            "[1.0, 2.0, 3.0, 4.0]",
            "[0.0, 1.0, 2.0, 3.0]",
        ], process.error
