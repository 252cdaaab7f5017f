"""Explicit axes and pmap in two processes, and a callback there that raises."""

from __future__ import annotations

from pathlib import Path

from tests.tools.processes import needs_mpi, under_mpirun

EXPLICIT = """
import meshjit as mj, meshjit.numpy as mnp
from meshjit.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard
mesh = mj.make_mesh((2, 2), ("x", "y"), axis_types=AxisType.Explicit)
values = np.arange(32, dtype=np.float32).reshape(8, 4)
with mj.set_mesh(mesh):
    a = mj.make_array_from_callback((8, 4), NamedSharding(mesh, P("x", "y")), lambda index: values[index])
    w = reshard(mnp.ones((4, 6)), P("y", None))
    f = mj.jit(lambda a, w: mnp.dot(a, w, out_sharding=P("x", None)))
    say(mj.typeof(a), mj.typeof(w), mj.typeof(f(a, w)))
    g = mj.jit(mj.grad(lambda w: (f(a, w) ** 2).sum()))(w)
    expected = 2 * values.T @ (values @ np.ones((4, 6)))
    say(mj.typeof(g), all(np.allclose(s.data, expected[s.index]) for s in g.addressable_shards))
    inferred = mj.shard_map(lambda a: mj.lax.psum(a.sum(1), "y"), out_specs=P("x"))
    say(all(np.allclose(s.data, values.sum(1)[s.index]) for s in inferred(a).addressable_shards))
    moved = reshard(a, P(None, "x"))
    say(mj.typeof(moved), all(np.allclose(s.data, values[s.index]) for s in moved.addressable_shards))
    left = mj.jit(lambda a, w: mnp.dot(a, w, out_sharding=P("x", None, unreduced={"y"})))(a, w)
    addends = values.reshape(8, 2, 2).sum(2)  # of each device along y, since w is ones
    mine = [addends[s.index[0], list(mesh.devices.flat).index(s.device) % 2] for s in left.addressable_shards]
    say(mj.typeof(left), all(np.allclose(s.data, m[:, None]) for s, m in zip(left.addressable_shards, mine, strict=True)))
    whole = reshard(left + left, P("x"))
    say(mj.typeof(whole), all(np.allclose(s.data, 2 * values[s.index].sum(1)[:, None]) for s in whole.addressable_shards))
    parts = mj.grad(lambda w: (reshard(a, P("x")) @ w).sum())(reshard(w, P(reduced={"x"})))
    total = mj.shard_map(lambda u: mj.lax.psum(u, "x"), out_specs=P())(parts)
    say(mj.typeof(parts), np.allclose(np.asarray(total), values.sum(0)[:, None]))
    try:
        a + moved
    except Exception as error:
        say(type(error).__name__)
"""


@needs_mpi
def test_explicit_axes(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, EXPLICIT)
    one = [
        "float32[8@x,4@y] float32[4@y,6] float32[8@x,6]", "float32[4@y,6] True", "True", "float32[8,4@x] True",
        "float32[8@x,6]{U:y} True", "float32[8@x,6] True", "float32[4,6]{U:x} True", "ShardingTypeError",
    ]  # fmt: skip
    assert ended.said == [*one, *one], ended.error


RAISES = """
import meshjit as mj
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(mj.devices()), ("x",))
x = mj.make_array_from_callback((8,), NamedSharding(mesh, P("x")), lambda index: np.arange(8, dtype=np.float32)[index])
def fail(v):
    raise ValueError("negative pressure")
f = mj.jit(lambda v: v * mj.pure_callback(fail, mj.ShapeDtypeStruct((8,), np.float32), v).sum())
try:
    result = f(x)
    say("went on", np.isnan(result.addressable_shards[0].data).all())
except RuntimeError as error:
    say("raised", "negative pressure" in str(error))
"""


@needs_mpi
def test_a_callback_that_raises_holds_up_nobody(tmp_path: Path) -> None:
    """The process that called it raises; the other has NaNs, not numbers that look right."""
    ended = under_mpirun(tmp_path, RAISES)
    assert ended.said == ["raised True", "went on True"], ended.error


PMAP = """
import meshjit as mj
n = mj.local_device_count()
x = np.arange(n * 3, dtype=np.float32).reshape(n, 3) + 100 * rank
y = mj.pmap(lambda v: mj.lax.psum(v, "i"), axis_name="i")(x)
say(y.shape, np.asarray(y).tolist())
f = mj.pmap(lambda v, w, s: (v * w + mj.lax.axis_index("i"), s), axis_name="i", in_axes=(1, None, None), out_axes=(1, None))
z = f(x.T, np.full(3, 2, np.float32), 5.0)
say(np.asarray(z[0]).tolist(), float(z[1]))
say(np.asarray(mj.pmap(lambda v: v + 1)(y)).tolist())
inside = mj.jit(lambda v: mj.pmap(lambda v: mj.lax.psum(v, "i"), axis_name="i")(v * 2) + 1)(x)  # of this process's devices
say(np.asarray(inside).tolist())
for slices in (lambda: mj.pmap(lambda v: v)(np.ones(3)), lambda: mj.jit(mj.pmap(lambda v: v))(np.ones(3))):
    try:
        slices()
    except ValueError as error:
        say(str(error).splitlines()[0])
"""


@needs_mpi
def test_pmap_of_the_slices_that_each_process_has(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, PMAP)
    errors = [
        "pmap(lambda): the arguments have 3 slices, and 2 of the 4 devices are this process's",
        "pmap(lambda): the arguments have 3 slices, there are 2 devices",
    ]
    total = [206.0, 210.0, 214.0]
    first = [f"(2, 3) {[total, total]}", f"{[[0.0, 7.0], [2.0, 9.0], [4.0, 11.0]]} 5.0"]
    second = [first[0], f"{[[202.0, 209.0], [204.0, 211.0], [206.0, 213.0]]} 5.0"]
    next_ = str([[n + 1 for n in total]] * 2)
    inside = [str([[7.0, 11.0, 15.0]] * 2), str([[407.0, 411.0, 415.0]] * 2)]
    assert ended.said == [*first, next_, inside[0], *errors, *second, next_, inside[1], *errors], ended.error
