"""Functions as files: what is written is read, here and in another process, and gives what the function gives."""

from __future__ import annotations

import collections
import dataclasses
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import export, lax
from meshjit.export import Exported
from meshjit.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

X = np.arange(6, dtype=np.float32).reshape(2, 3)
PARAMS = {"w": np.ones((3, 4), np.float32), "rest": [np.arange(3), None]}


def network(x: Any, params: Any, *, count: Any) -> Any:
    return {"y": mnp.sin(x) @ params["w"], "n": (count + 1, None)}


def exported() -> Exported:
    return export.export(mj.jit(network))(X, PARAMS, count=np.int32(3))


def again(exported: Exported, order: int = 0) -> Exported:
    return export.deserialize(exported.serialize(order))


def test_functions_without_a_name_and_with_effects() -> None:
    def loud(x: Any) -> Any:
        mj.debug.print("{}", x)
        mj.debug.print("{}", x, ordered=True)
        return x

    kinds = export.export(mj.jit(loud))(X)
    assert [e.name for e in kinds.unordered_effects] == ["DEBUG"] and len(kinds.ordered_effects) == 1
    unnamed = export.export(mj.jit(lambda x: x + 1))(X)
    for each in (unnamed, again(unnamed), export.export(mj.jit(mj.grad(lambda x: x.sum())))(X)):
        assert each.fun_name == "<lambda>"
    with pytest.raises(ValueError, match=r"^<lambda> was exported for another shape of argument"):
        unnamed.call(X[0])


def test_what_is_known_of_it() -> None:
    for each in (exported(), again(exported())):
        assert (each.fun_name, each.platforms, each.nr_devices, each.module_kept_var_idx) == ("network", ("cpu",), 1, (0, 2, 3))
        assert [str(a) for a in each.in_avals] == ["float32[2,3]", "int32[3]", "float32[3,4]", "int32[]"]
        assert [str(a) for a in each.out_avals] == ["int32[]", "float32[2,4]"]
        assert each.in_tree == mj.tree.structure(((X, PARAMS), {"count": 3}))
        assert each.out_tree == mj.tree.structure({"y": 0, "n": (0, None)})
        assert (each.ordered_effects, each.unordered_effects, each.uses_global_constants) == ((), (), False)
        assert "func.func" in each.mlir_module() and each.mlir_module_serialized.startswith(b"module")
    assert exported().has_vjp() and not again(exported()).has_vjp() and again(exported(), 1).has_vjp()


def test_calls_give_what_the_function_gives() -> None:
    there = again(exported())
    expected = np.sin(X) @ PARAMS["w"]
    result = there.call(X, PARAMS, count=np.int32(3))
    np.testing.assert_allclose(result["y"], expected, rtol=1e-6)
    assert result["n"] == (4, None)
    inside = mj.jit(lambda x: there.call(2 * x, PARAMS, count=np.int32(0))["y"] * 3)
    np.testing.assert_allclose(inside(X / 2), 3 * expected, rtol=1e-6)
    each = mj.vmap(lambda x: there.call(x, PARAMS, count=np.int32(0))["y"])(np.stack([X, X + 1]))
    np.testing.assert_allclose(each, np.stack([expected, np.sin(X + 1) @ PARAMS["w"]]), rtol=1e-6)


def test_derivatives_are_written_too() -> None:
    there = again(exported(), 2)

    def total(x: Any) -> Any:
        return mnp.sum(there.call(x, PARAMS, count=np.int32(3))["y"])

    np.testing.assert_allclose(mj.grad(total)(X), 4 * np.cos(X), rtol=1e-6)
    second = mj.jit(mj.grad(lambda x: mnp.sum(mj.grad(total)(x))))(X)
    np.testing.assert_allclose(second, -4 * np.sin(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"vjp_vjp_network was written without derivatives\n  fix: serialize\(vjp_order=1\)"):
        mj.grad(lambda x: mnp.sum(mj.grad(lambda x: mnp.sum(mj.grad(total)(x)))(x)))(X)
    pulled = there.vjp().call(X, *mj.tree.leaves(PARAMS), np.int32(3), np.zeros((), mj.dtypes.float0), np.ones((2, 4), np.float32))
    assert [p.dtype for p in pulled] == [np.float32, mj.dtypes.float0, np.float32, mj.dtypes.float0]


def test_own_derivatives_are_those_that_are_written() -> None:
    @mj.custom_vjp
    def clipped(x: Any) -> Any:
        return mnp.sin(x)

    clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (mnp.clip(g, -0.5, 0.5),))
    there = again(export.export(mj.jit(clipped))(X), 1)
    np.testing.assert_array_equal(mj.grad(lambda x: mnp.sum(there.call(x)))(X), np.full_like(X, 0.5))


def test_arguments_of_other_kinds() -> None:
    there = again(exported())
    with pytest.raises(ValueError, match=r"another shape of argument \[0\]\[0\]: f32\[2,3\], here it is f32\[1,3\]"):
        there.call(X[:1], PARAMS, count=np.int32(3))
    with pytest.raises(ValueError, match=r"another dtype of argument \[0\]\[0\]: f32\[2,3\], here it is i32\[2,3\]"):
        there.call(X.astype(np.int32), PARAMS, count=np.int32(3))
    with pytest.raises(ValueError, match=r"network was exported for arguments of another structure\n  here: .*\n  exported: .*"):
        there.call(X, PARAMS)
    with pytest.raises(ValueError, match=r"the function must be a result of jit.*\n  fix: export\(jit\(f\)\)"):
        export.export(network)(X)


def test_platforms() -> None:
    there = export.export(mj.jit(mnp.sin), platforms=["tpu"])(X)
    with pytest.raises(ValueError, match=r"sin was exported for tpu, and is called on cpu\n  fix: export\(..., platforms=\['cpu', "):
        there.call(X)
    off = [export.DisabledSafetyCheck.platform(), export.DisabledSafetyCheck.custom_call("mine")]
    unchecked = again(export.export(mj.jit(mnp.sin), platforms=["tpu"], disabled_checks=off)(X))
    np.testing.assert_allclose(unchecked.call(X), np.sin(X), rtol=1e-6)
    assert unchecked.disabled_safety_checks == tuple(off) and [c.is_custom_call() for c in off] == [None, "mine"]
    np.testing.assert_allclose(export.export(mj.jit(mnp.sin), platforms=("tpu", "cpu"))(X).call(X), np.sin(X), rtol=1e-6)
    with pytest.raises(ValueError, match="platforms has 'abacus'"):
        export.export(mj.jit(mnp.sin), platforms=["abacus"])
    assert export.default_export_platform() == "cpu"


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "bool", "complex64", "float8_e5m2"])
def test_dtypes_and_closed_over_arrays(dtype: str) -> None:
    kept = mnp.asarray([1, 0, 3], dtype)
    there = again(export.export(mj.jit(lambda x: mnp.where(kept == 0, x, kept)))(mnp.ones((2, 3), dtype)))
    result = there.call(mnp.zeros((2, 3), dtype))
    assert result.dtype == kept.dtype and np.asarray(result == kept).all()
    empty = again(export.export(mj.jit(lambda x: x + x))(mnp.ones((0, 3), dtype))) if dtype != "bool" else there
    assert empty.call(mnp.ones((0, 3) if dtype != "bool" else (2, 3), dtype)).dtype == kept.dtype


def test_keys_loops_and_static_arguments() -> None:
    def sample(key: Any, n: int) -> Any:
        keys = mj.random.split(key, n)
        return keys, lax.fori_loop(0, n, lambda i, total: total + mj.random.normal(keys[i], (2,)), mnp.zeros(2))

    key = mj.random.key(3)
    there = again(export.export(mj.jit(sample, static_argnums=1))(key, 4), 1)
    keys, total = there.call(key)
    np.testing.assert_array_equal(mj.random.key_data(keys), mj.random.key_data(sample(key, 4)[0]))
    np.testing.assert_allclose(total, sample(key, 4)[1], rtol=1e-6)
    assert keys.dtype == key.dtype and [str(a) for a in there.in_avals] == ["key<fry>[]"]


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Scaled:
    value: Any
    name: str


mj.tree_util.register_dataclass(Scaled, ["value"], ["name"])
export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")


def test_containers() -> None:
    def swap(pair: Pair, scaled: Scaled, ordered: Any) -> Any:
        return Pair(pair.b, pair.a), Scaled(scaled.value * 2, scaled.name), ordered

    arguments = Pair(X, np.float32(1)), Scaled(X, "x"), collections.OrderedDict(b=X, a=(X,))
    made = export.export(mj.jit(swap))(*arguments)
    with pytest.raises(ValueError, match=r"Scaled has not said how it is written\n  fix: export.register_pytree_node_serialization"):
        made.serialize()
    export.register_pytree_node_serialization(
        Scaled, serialized_name="tests.Scaled", serialize_auxdata=lambda aux: aux[0].encode(),
        deserialize_auxdata=lambda raw: (raw.decode(),),
    )  # fmt: skip
    pair, scaled, ordered = again(made).call(*arguments)
    assert isinstance(pair, Pair) and float(pair.a) == 1 and (scaled.name, list(ordered)) == ("x", ["b", "a"])
    np.testing.assert_array_equal(scaled.value, 2 * X)
    with pytest.raises(ValueError, match="serialized_name 'tests.Pair' is taken by Pair"):
        export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
    with pytest.raises(ValueError, match="is registered already, as tests.Pair"):
        export.register_namedtuple_serialization(Pair, serialized_name="other")


def test_what_a_file_cannot_hold() -> None:
    def loud(x: Any) -> Any:
        mj.debug.print("{}", x)
        return x

    with pytest.raises(ValueError, match=r"serialize: loud calls Python, .*, which a file cannot hold\n  fix: leave out callbacks"):
        export.export(mj.jit(loud))(X).serialize()


def test_other_bytes_and_other_versions() -> None:
    with pytest.raises(ValueError, match=r"these bytes are not what Exported.serialize of meshjit gives"):
        export.deserialize(b"something else")
    blob = exported().serialize()
    with pytest.raises(ValueError, match=r"these bytes are not what|cannot be read"):
        export.deserialize(blob[: len(blob) // 2])


def test_later_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "later"
    path.write_bytes(exported().serialize())
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["header.json"] = parts["header.json"].replace(b'"version":1', b'"version":2')
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    with pytest.raises(ValueError, match=r"network was written by meshjit .* in version 2; read are 1 to 1\n  fix: write it again"):
        export.deserialize(path.read_bytes())


def sharded() -> Exported:
    place = NamedSharding(AbstractMesh((4, 2), ("a", "b")), P("a", "b"))

    def centred(x: Any) -> Any:
        return lax.with_sharding_constraint(x - mnp.mean(x, 0), place), mnp.sum(x)

    return export.export(mj.jit(centred, in_shardings=place))(mj.ShapeDtypeStruct((10, 3), np.float32))


def test_shardings_come_along() -> None:
    there = again(sharded(), 1)
    assert there.nr_devices == 8
    other = mj.make_mesh((8,), ("z",), axis_types=(AxisType.Auto,))
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    for given in (x, mj.device_put(x, NamedSharding(other, P("z")))):
        result, total = there.call(given)
        np.testing.assert_allclose(result, x - x.mean(0), rtol=1e-5)
        assert len(result.sharding.device_set) == 8 and result.sharding.spec == P("a", "b") and float(total) == x.sum()
        np.testing.assert_array_equal(mj.jit(mj.grad(lambda x: there.call(x)[1]))(given), np.ones_like(x))
    mesh = mj.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    assert there.in_shardings_jax(mesh) == (NamedSharding(mesh, P("a", "b")),)
    assert there.in_shardings_hlo == (None,) and there.out_shardings_hlo == (None,) * len(there.out_avals)
    assert there.in_shardings_jax(other)[0].mesh.axis_names == ("a", "b")
    assert there.out_shardings_jax(mesh) == (None, None)
    with pytest.raises(ValueError, match="was exported for 8 devices"):
        there.in_shardings_jax(mj.make_mesh((2,), ("a",)))


def test_another_process(tmp_path: Path) -> None:
    (tmp_path / "network").write_bytes(exported().serialize(1))
    (tmp_path / "sharded").write_bytes(sharded().serialize())
    script = """
import sys
from pathlib import Path
import numpy as np
import meshjit as mj
from meshjit import export
folder = Path(sys.argv[1])
x, params = np.arange(6, dtype=np.float32).reshape(2, 3), {"w": np.ones((3, 4), np.float32), "rest": [np.arange(3), None]}
f = export.deserialize((folder / "network").read_bytes())
print(mj.grad(lambda x: f.call(x, params, count=np.int32(1))["y"].sum())(x).tolist())
try:
    export.deserialize((folder / "sharded").read_bytes()).call(np.zeros((10, 3), np.float32))
except ValueError as error:
    print(str(error).splitlines()[0])
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    environ = {"MESHJIT_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(Path(__file__).parents[1]), "MESHJIT_PLATFORMS": "cpu"}
    lines = subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout.splitlines()
    np.testing.assert_allclose(eval(lines[0]), 4 * np.cos(X), rtol=1e-6)
    assert lines[1] == "centred was exported for AbstractMesh('a': 4, 'b': 2), which needs 8 devices; there are 2"


def test_there_are_no_symbolic_shapes() -> None:
    assert export.symbolic_shape("2, 3") == (2, 3) and export.symbolic_shape("(2, _)", like=(5, 7)) == (2, 7)
    assert export.symbolic_shape("...", like=(5, 7)) == (5, 7) and not export.is_symbolic_dim(3)
    with pytest.raises(NotImplementedError, match=r"'b' in 'b, 3' is not a number, and a plan is made for numbers\n .*\n  fix: export"):
        export.symbolic_shape("b, 3")
    with pytest.raises(NotImplementedError, match="constraints"):
        export.SymbolicScope(("a >= b",))
    specs = export.symbolic_args_specs((X, {"k": np.int32(1)}), ("2, _", None))
    assert [(s.shape, s.dtype.name) for s in mj.tree.leaves(specs)] == [((2, 3), "float32"), ((), "int32")]
