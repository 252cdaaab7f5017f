"""serialize_executable: compiled functions as bytes, and back in a process that does not know the function."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import random
from meshjit.experimental.serialize_executable import deserialize_and_load, serialize
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from tests.tools.processes import environment

pytestmark = pytest.mark.device


def on(spec: P, *names: str) -> NamedSharding:
    mesh = Mesh(np.array(mj.devices()[:4]).reshape((4,) if len(names) == 1 else (2, 2)), names)
    return NamedSharding(mesh, spec)


def again(compiled: Any) -> Any:
    return deserialize_and_load(*serialize(compiled))


def test_values_trees_and_places() -> None:
    def f(tree: Any, scale: Any, *, bias: Any) -> Any:
        return {"y": tree["x"] @ tree["w"][0] * scale, "key": random.split(tree["key"])}, mnp.sum(tree["x"]), bias + 1

    place = on(P("a", "b"), "a", "b")
    x, w = np.arange(20, dtype=np.float32).reshape(5, 4), np.ones((4, 3), np.float32)  # 5 is not divided by 2
    arguments = {"x": mj.device_put(x, place), "w": [w], "key": random.key(1)}
    compiled = mj.jit(f).lower(arguments, 2.0, bias=3).compile()
    loaded = again(compiled)
    (a, s, b), (c, t, d) = compiled(arguments, 2.0, bias=3), loaded(arguments, 2.0, bias=3)
    np.testing.assert_array_equal(a["y"], c["y"])
    assert a["y"].sharding == c["y"].sharding and a["key"].dtype == c["key"].dtype
    np.testing.assert_array_equal(random.key_data(a["key"]), random.key_data(c["key"]))
    assert float(s) == float(t) and int(b) == int(d) and (b.weak_type, b.committed) == (d.weak_type, d.committed)
    for name in ("in_tree", "out_tree", "input_shardings", "output_shardings", "donate_argnums", "out_info", "in_avals"):
        assert getattr(compiled, name) == getattr(loaded, name), name
    assert loaded.as_text() and loaded.memory_analysis() is not None and again(loaded)(arguments, 2.0, bias=3)[1] == s
    with pytest.raises(TypeError, match="was compiled for .*, called with f32"):
        loaded({**arguments, "w": [w.T]}, 2.0, bias=3)
    with pytest.raises(ValueError, match="loaded without its plan"):
        loaded.report()


def test_donated_unused_and_on_one_device() -> None:
    f = mj.jit(lambda x, unused, n: x * n + 1, donate_argnums=0, static_argnums=2)
    x = mj.device_put(np.ones(4, np.float32), mj.devices()[2])
    loaded = again(f.lower(x, 1, 3).compile())
    y = loaded(x, 5)
    assert y.tolist() == [4] * 4 and y.devices() == {mj.devices()[2]} and x.is_deleted()
    with pytest.raises(RuntimeError, match="has been deleted"):
        loaded(x, 5)


def test_in_another_process(tmp_path: Path) -> None:
    place = on(P("x"), "x")
    compiled = mj.jit(lambda x: {"sum": x.sum(), "twice": x * 2}, in_shardings=place).lower(np.ones(8, np.float32)).compile()
    written, in_tree, out_tree = serialize(compiled)
    (tmp_path / "bytes").write_bytes(written)
    (tmp_path / "load.py").write_text("""
import numpy as np, meshjit as mj
from meshjit.experimental.serialize_executable import deserialize_and_load
from meshjit.runtime import _jaxlib
_jaxlib.compile = None
trees = mj.tree.structure(((0,), {})), mj.tree.structure({"sum": 0, "twice": 0})
run = deserialize_and_load(open("bytes", "rb").read(), *trees)
result = run(mj.device_put(np.ones(8, np.float32), run.input_shardings[0][0]))
print(result["sum"], result["twice"].sharding.spec, [s.data.tolist() for s in result["twice"].addressable_shards])
""")
    environ = environment(MESHJIT_NUM_CPU_DEVICES=str(len(mj.devices())))
    done = subprocess.run([sys.executable, "load.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "8.0 P('x',) [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]", done.stderr


def test_what_cannot_be_written_or_read() -> None:
    w, r = mj.device_put(np.ones(3, np.float32), mj.devices()[0]), mj.new_ref(mnp.zeros(3))
    for f, error, text in (
        (lambda x: x + w, NotImplementedError, "closes over arrays, 1 of them\n  fix: pass them as arguments"),
        (lambda x: mj.ref.set(r, ..., x), ValueError, "is no compiled function, or one that uses refs"),
        (lambda x: mj.debug.print("{}", x), ValueError, "it calls Python functions"),
    ):
        with pytest.raises(error, match=text):
            serialize(mj.jit(f).lower(np.ones(3, np.float32)).compile())
    one = SingleDeviceSharding(mj.devices()[1])
    written, in_tree, out_tree = serialize(mj.jit(lambda x: x + 1, in_shardings=one).lower(np.ones(3)).compile())
    with pytest.raises(ValueError, match="these are no bytes of serialize"):
        deserialize_and_load(pickle.dumps(1), in_tree, out_tree)
    with pytest.raises(ValueError, match=r"was compiled for devices \[1\], and \[1\] are not among \[0\]"):
        deserialize_and_load(written, in_tree, out_tree, execution_devices=mj.devices()[:1])
    with pytest.raises(ValueError, match="has 2 leaves, the function 1"):
        deserialize_and_load(written, in_tree, mj.tree.structure((0, 0)))
    with pytest.raises(ValueError, match="the compiled program is damaged"):
        deserialize_and_load(written[:-1] + b"?", in_tree, out_tree)
    assert deserialize_and_load(written, in_tree, out_tree, "cpu", mj.devices())(np.ones(3)).tolist() == [2, 2, 2]
