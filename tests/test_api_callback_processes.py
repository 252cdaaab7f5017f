"""Callbacks in programs of two processes: one calls, and its results reach both. Keys that are spread over both."""

from __future__ import annotations

from pathlib import Path

from tests.tools.processes import needs_mpi, under_mpirun

BODY = """
import meshjit as mj, meshjit.numpy as mnp
from meshjit.experimental import checkify, io_callback
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
mesh = Mesh(np.array(mj.devices()), ("x",))
rows = NamedSharding(mesh, P("x"))
x = mj.make_array_from_callback((8,), rows, lambda index: np.arange(8, dtype=np.float32)[index])
whole = mj.ShapeDtypeStruct((8,), np.float32)
if rank == 1:  # functions are numbered by each process for itself
    mj.make_jaxpr(lambda v: mj.debug.callback(say, v))(1.0)

def double(v):
    say("called with", np.asarray(v).tolist())
    return np.asarray(v) * 2

def shown(v):
    return [s.data.tolist() for s in v.addressable_shards]

say(shown(mj.jit(lambda v: mj.pure_callback(double, whole, v), out_shardings=rows)(x)))
last = SingleDeviceSharding(mj.devices()[-1])
say(shown(mj.jit(lambda v: io_callback(double, whole, v, ordered=True, sharding=last), out_shardings=rows)(x)))
mj.jit(lambda v: mj.debug.callback(lambda w: say("shard", w), v, partitioned=True, ordered=True))(x)
mj.effects_barrier()
mj.debug.callback(lambda w: say("eager", w), x)
mj.effects_barrier()
error, _ = mj.jit(checkify.checkify(lambda v: checkify.check(v[5] > 6, "{v} is small", v=v[5])))(x)
say(error.get())
"""


@needs_mpi
def test_one_process_calls_and_both_have_the_results(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, BODY)
    everything = [float(i) for i in range(8)]
    first, second = ([[2.0 * i, 2.0 * i + 2] for i in range(n, n + 4, 2)] for n in (0, 4))
    shards = ["[0. 1.]", "[2. 3.]"], ["[4. 5.]", "[6. 7.]"]
    message = "5.0 is small (`check` failed)"
    begin = ended.said.index(message) + 1
    one, other = ended.said[:begin], ended.said[begin:]
    assert [w for w in one if not w.startswith("shard")] == [
        f"called with {everything}", str(first), str(first), "eager [0. 1. 2. 3. 4. 5. 6. 7.]", message
    ], ended.error  # fmt: skip
    assert [w for w in other if not w.startswith("shard")] == [
        str(second), f"called with {everything}", str(second), message
    ], ended.error  # fmt: skip
    for said, own in ((one, shards[0]), (other, shards[1])):
        assert sorted(w for w in said if w.startswith("shard")) == [f"shard {part}" for part in own]


KEYS = """
import meshjit as mj, meshjit.numpy as mnp
from meshjit import multihost, random
from meshjit.experimental import io_callback
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(mj.devices()), ("x",))
rows = NamedSharding(mesh, P("x"))
keys = random.split(random.key(0), 8)
spread = mj.device_put(keys, rows)
say(spread.shape, spread.dtype, spread.sharding.spec, [s.data.shape for s in spread.addressable_shards])

def whole(v):
    return np.asarray(multihost.process_allgather(v, tiled=True))

draw = mj.vmap(lambda k: random.normal(k, (2,)))
say(np.array_equal(whole(mj.jit(draw)(spread)), draw(keys)))
manual = mj.jit(mj.shard_map(draw, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
say(np.array_equal(whole(manual(spread)), draw(keys)))
split = mj.vmap(lambda k: random.split(k, 1)[0])
say(np.array_equal(whole(random.key_data(mj.jit(split)(spread))), random.key_data(split(keys))))
say(np.array_equal(whole(random.key_data(spread[mnp.array([3, 1])])), random.key_data(keys)[np.array([3, 1])]))
rbg = random.key(1, impl="rbg")
drawn = whole(mj.jit(lambda k: random.normal(k, (8,)), out_shardings=rows)(rbg))
say(np.array_equal(drawn, random.normal(rbg, (8,))))

@mj.jit
def noisy(ks):
    draws = mj.vmap(random.uniform)(ks)
    mj.debug.callback(lambda v: say("saw", np.array_equal(v, mj.vmap(random.uniform)(keys))), draws)
    return draws + io_callback(lambda v: np.float32(v.sum() * 0 + 2), mj.ShapeDtypeStruct((), np.float32), draws)
say(np.allclose(whole(noisy(spread)), mj.vmap(random.uniform)(keys) + 2))
mj.effects_barrier()
"""


@needs_mpi
def test_keys_spread_over_processes_give_what_one_process_draws(tmp_path: Path) -> None:
    ended = under_mpirun(tmp_path, KEYS)
    one = ["(8,) key<fry> P('x',) [(2,), (2,)]", *["True"] * 5]
    assert ended.said == [*one, "saw True", "True", *one, "True"], ended.error
