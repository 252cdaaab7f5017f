"""jaxlib through our own door: compile and run text on eight CPU devices, put and fetch, pytrees, options."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from meshjit.runtime import _jaxlib, client

ROOT = str(Path(__file__).parents[1])


def module(arguments: str, results: str, body: str, replicas: int = 8) -> str:
    return textwrap.dedent(f"""\
        module @m attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {replicas} : i32}} {{
          func.func public @main({arguments}) -> ({results}) {{
        {textwrap.indent(textwrap.dedent(body), "    ")}
          }}
        }}
        """)


def row() -> list[Any]:
    return client.devices("cpu")[:8]


def values(handle: Any) -> list[Any]:
    return [array.tolist() for _, array in _jaxlib.fetch(handle)]


def shards(count: int = 8) -> list[np.ndarray]:
    return [np.array([device, 10 * device], np.float32) for device in range(count)]


DOUBLE = module(
    "%a: tensor<2xf32>",
    "tensor<2xf32>, tensor<ui32>",
    """
    %0 = stablehlo.add %a, %a : tensor<2xf32>
    %1 = stablehlo.replica_id : tensor<ui32>
    return %0, %1 : tensor<2xf32>, tensor<ui32>
    """,
)
DOUBLE_TYPES = [((2,), np.float32), ((), np.uint32)]
DONATING = DOUBLE.replace("%a: tensor<2xf32>", "%a: tensor<2xf32> {tf.aliasing_output = 0 : i32}", 1)


# --- devices ---------------------------------------------------------------------------------------------------------


def test_devices() -> None:
    devices = client.devices("cpu")
    assert len(devices) == client.device_count("cpu") == client.local_device_count("cpu") >= 8
    assert devices == client.local_devices(backend="cpu") == sorted(devices, key=lambda d: d.id)
    assert {(d.platform, d.process_index, d.device_kind) for d in devices} == {("cpu", 0, "cpu")}
    assert (client.process_index("cpu"), client.process_count("cpu")) == (0, 1)
    assert client.default_backend() in ("cpu", "cuda", "tpu")


def test_unknown_backend() -> None:
    with pytest.raises(RuntimeError, match="unknown backend 'metal': expected cpu, cuda .or gpu. or tpu"):
        client.devices("metal")


@pytest.mark.skipif(_jaxlib.plugin_path("tpu") is not None, reason="the TPU plugin is installed")
def test_missing_plugin() -> None:
    with pytest.raises(RuntimeError, match='no tpu devices: no PJRT plugin for "tpu" is installed'):
        client.devices("tpu")


def in_subprocess(code: str, **environ: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MESHJIT_", "JAX_", "XLA_"))}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**kept, **environ}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({}, 1),
        ({"MESHJIT_NUM_CPU_DEVICES": "3"}, 3),
        ({"JAX_NUM_CPU_DEVICES": "4"}, 4),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 5),
    ],
)
def test_device_count_from_the_environment(environ: dict[str, str], count: int) -> None:
    code = "from meshjit.runtime import client; print(len(client.devices('cpu')))"
    assert in_subprocess(code, **environ) == f"{count}\n"


def test_too_late_to_change_the_device_count() -> None:
    code = """
        from meshjit.config import config
        from meshjit.runtime import client
        config.update("jax_num_cpu_devices", 2)
        client.devices("cpu")
        config.update("num_cpu_devices", 2)
        try:
            config.update("num_cpu_devices", 4)
        except RuntimeError as error:
            print(error)
        """
    assert in_subprocess(code) == (
        "config option num_cpu_devices cannot change from 2 to 4: the CPU devices exist already\n"
        "  fix: set it before the first use of devices, or by MESHJIT_NUM_CPU_DEVICES=4\n"
    )


def test_nothing_looks_for_jax() -> None:
    """jaxlib's C++ imports pieces of jax where it finds them: slow with jax, and slow without."""
    code = """
        import sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "jax":
                    print("looked for", name)
        sys.meta_path.insert(0, Finder())
        import numpy as np
        from tests.test_runtime_client import DOUBLE, DOUBLE_TYPES, row, shards
        from meshjit.runtime import _jaxlib, client
        run = _jaxlib.make_executor(_jaxlib.compile(client.client("cpu"), DOUBLE, row()), DOUBLE_TYPES, row())
        out = run([_jaxlib.put(shards(), row())])
        _jaxlib.fetch(out[0])
        one = _jaxlib.shard(out[0], 2)
        _jaxlib.copy_to_host_async(one)
        _jaxlib.from_dlpack(_jaxlib.to_dlpack(one), row()[2])
        _jaxlib.copy_to_devices(out[0], row()[::-1])
        _jaxlib.flatten([1, {"a": None}])
        print([name for name in sys.modules if name.split(".")[0] == "jax"])
        """
    assert in_subprocess(code, MESHJIT_NUM_CPU_DEVICES="8") == "[]\n"


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [lambda d: d, lambda d: d[::-1], lambda d: d[3:] + d[:3]])
def test_partition_i_runs_on_device_i_of_the_row(order: Any) -> None:
    devices = order(row())
    executable = _jaxlib.compile(client.client("cpu"), DOUBLE, devices)
    handle = _jaxlib.put(shards(), devices)
    doubled, partition = _jaxlib.execute(executable, [handle], DOUBLE_TYPES, devices)
    assert values(doubled) == [[2.0 * d, 20.0 * d] for d in range(8)]
    assert values(partition) == list(range(8))
    assert [device for device, _ in _jaxlib.fetch(doubled)] == devices == list(_jaxlib.handle_devices(doubled))
    assert _jaxlib.shard_type(doubled) == ((2,), np.dtype(np.float32))


def test_collective() -> None:
    text = module(
        "%a: tensor<2xf32>",
        "tensor<2xf32>",
        """
        %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> ({
          ^bb0(%x: tensor<f32>, %y: tensor<f32>):
            %s = stablehlo.add %x, %y : tensor<f32>
            stablehlo.return %s : tensor<f32>
          }) : (tensor<2xf32>) -> tensor<2xf32>
        return %0 : tensor<2xf32>
        """,
    )
    executable = _jaxlib.compile(client.client("cpu"), text, row())
    (out,) = _jaxlib.execute(executable, [_jaxlib.put(shards(), row())], [((2,), np.float32)], row())
    assert values(out) == [[6.0, 60.0]] * 4 + [[22.0, 220.0]] * 4
    assert "all-reduce" in _jaxlib.hlo_text(executable)


def test_one_device() -> None:
    text = module("%a: tensor<0x3xbf16>", "tensor<0x3xbf16>", "return %a : tensor<0x3xbf16>", replicas=1)
    one = row()[5:6]
    run = _jaxlib.make_executor(_jaxlib.compile(client.client("cpu"), text, one), [((0, 3), ml_dtypes.bfloat16)], one)
    (out,) = run([_jaxlib.put([np.zeros((0, 3), ml_dtypes.bfloat16)], one)])
    assert _jaxlib.fetch(out)[0][1].shape == (0, 3) and _jaxlib.handle_devices(out) == tuple(one)


def test_donation() -> None:
    executable = _jaxlib.compile(client.client("cpu"), DONATING, row())
    run = _jaxlib.make_executor(executable, DOUBLE_TYPES, row(), donated=[0])
    handle = _jaxlib.put(shards(), row())
    where = [array.ctypes.data for _, array in _jaxlib.fetch(handle)]  # and nobody keeps the views
    doubled, _ = run([handle])
    assert _jaxlib.is_deleted(handle)
    assert [array.ctypes.data for _, array in _jaxlib.fetch(doubled)] == where
    with pytest.raises(RuntimeError, match="argument 0 was deleted, or donated to an earlier call"):
        run([handle])
    with pytest.raises(RuntimeError, match="deleted or donated"):
        _jaxlib.fetch(handle)


def test_donation_under_a_view_leaves_the_view() -> None:
    executable = _jaxlib.compile(client.client("cpu"), DONATING, row())
    handle = _jaxlib.put(shards(), row())
    view = _jaxlib.fetch(handle)
    doubled, _ = _jaxlib.make_executor(executable, DOUBLE_TYPES, row(), donated=[0])([handle])
    assert _jaxlib.is_deleted(handle) and values(doubled)[3] == [6.0, 60.0]
    assert [array.tolist() for _, array in view] == [array.tolist() for array in shards()]


def test_arguments_on_other_devices_are_refused() -> None:
    run = _jaxlib.make_executor(_jaxlib.compile(client.client("cpu"), DOUBLE, row()), DOUBLE_TYPES, row())
    handle = _jaxlib.put(shards(), row()[::-1])
    text = r"argument 0 lies on devices \[7, 6, 5, .*\], the program runs on \[0, 1, 2, .*\]; copy it there"
    with pytest.raises(ValueError, match=text):
        run([handle])


def test_compile_errors_hold_the_program() -> None:
    with pytest.raises(_jaxlib.CompilationError, match="XLA could not compile the program: .*stablehlo.ad'") as caught:
        _jaxlib.compile(client.client("cpu"), DOUBLE.replace("stablehlo.add", "stablehlo.ad"), row())
    assert caught.value.path in str(caught.value)
    with open(caught.value.path) as file:
        assert file.read() == caught.value.text
    os.remove(caught.value.path)


def test_compiler_options() -> None:
    options = {"xla_cpu_enable_fast_math": "false", "xla_backend_optimization_level": 1}
    assert _jaxlib.compile(client.client("cpu"), DOUBLE, row(), options)
    with pytest.raises(_jaxlib.CompilationError, match="No such compile option: 'xla_nonsense'") as caught:
        _jaxlib.compile(client.client("cpu"), DOUBLE, row(), {"xla_nonsense": 1})
    os.remove(caught.value.path)


def test_analyses() -> None:
    executable = _jaxlib.compile(client.client("cpu"), DONATING, row())
    stats = _jaxlib.memory_stats(executable)
    assert (stats["arguments"], stats["alias"]) == (8, 8) and stats["outputs"] >= 12
    assert set(stats) >= {"arguments", "outputs", "alias", "temp", "generated_code"}
    assert all(isinstance(size, int) for size in stats.values())
    assert _jaxlib.cost_analysis(executable)["flops"] == 2.0
    assert _jaxlib.hlo_text(executable).startswith("HloModule")


def test_serialised_executables_run() -> None:
    data = _jaxlib.serialize(_jaxlib.compile(client.client("cpu"), DOUBLE, row()))
    executable = _jaxlib.deserialize(client.client("cpu"), data, row())
    out = _jaxlib.execute(executable, [_jaxlib.put(shards(), row())], DOUBLE_TYPES, row())
    assert values(out[0])[7] == [14.0, 140.0]


# --- arrays ----------------------------------------------------------------------------------------------------------

NUMPY_TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
OTHER_TYPES = (
    "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2fnuz float8_e3m4 "
    "float8_e8m0fnu float4_e2m1fn int4 uint4 int2 uint2"
)
DTYPES = [np.dtype(name) for name in NUMPY_TYPES.split()]
DTYPES += [np.dtype(getattr(ml_dtypes, name)) for name in OTHER_TYPES.split()]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape_round_trips(dtype: np.dtype[Any]) -> None:
    for shape in [(), (0,), (3,), (0, 2), (2, 3), (2, 1, 3)]:
        sent = [np.arange(int(np.prod(shape))).reshape(shape).astype(dtype) for _ in row()]
        got = _jaxlib.fetch(_jaxlib.put(sent, row()))
        assert all(g.dtype == dtype and g.shape == shape for _, g in got)
        assert all(g.tobytes() == s.tobytes() for (_, g), s in zip(got, sent, strict=True))


@pytest.mark.parametrize("alias", [False, True])
@pytest.mark.parametrize("make", [lambda x: x.T, lambda x: x[::2, ::-1], np.asfortranarray, lambda x: x.astype(">f4")])
def test_any_memory_order_one_array_for_all(make: Any, alias: bool) -> None:
    array = make(np.arange(12, dtype=np.float32).reshape(3, 4))
    for _, got in _jaxlib.fetch(_jaxlib.put([array] * 8, row(), alias=alias)):
        assert got.dtype == np.float32 and np.array_equal(got, array)


def test_put_copies_unless_told_to_alias() -> None:
    for same in (True, False):
        sent = [np.ones(4096, np.float32)] * 8 if same else [np.ones(4096, np.float32) for _ in range(8)]
        handle = _jaxlib.put(sent, row())
        for array in sent:
            array[:] = 7
        assert all((got == 1).all() for _, got in _jaxlib.fetch(handle))


def test_fetched_arrays_are_read_only_and_outlive_the_handle() -> None:
    handle = _jaxlib.put(shards(), row())
    (_, got), *_ = _jaxlib.fetch(handle)
    assert not got.flags.writeable and got.ctypes.data == _jaxlib.fetch(handle)[0][1].ctypes.data
    _jaxlib.delete(handle)
    assert _jaxlib.is_deleted(handle) and got.tolist() == [0.0, 0.0]


def test_shards_come_apart_and_together() -> None:
    handle = _jaxlib.put(shards(), row())
    singles = [_jaxlib.shard(handle, i) for i in range(8)]
    assert [values(single) for single in singles] == [[[float(d), 10.0 * d]] for d in range(8)]
    assert _jaxlib.handle_devices(singles[3]) == (row()[3],)
    again = _jaxlib.from_single_device_handles(singles[::-1])
    assert values(again) == values(handle)[::-1] and _jaxlib.handle_devices(again) == tuple(row()[::-1])


def test_copies_between_devices() -> None:
    handle = _jaxlib.put(shards(), row())
    copied = _jaxlib.copy_to_devices(handle, row()[::-1])
    assert values(copied) == values(handle) and _jaxlib.handle_devices(copied) == tuple(row()[::-1])
    everywhere = _jaxlib.put([_jaxlib.shard(handle, 2)] * 8, row())
    assert values(everywhere) == [[2.0, 20.0]] * 8


def test_waiting() -> None:
    handle = _jaxlib.put(shards(), row())
    _jaxlib.copy_to_host_async(handle)
    _jaxlib.block(handle)
    assert _jaxlib.is_ready(handle)


def test_dlpack_shares_memory() -> None:
    single = _jaxlib.shard(_jaxlib.put(shards(), row()), 4)
    back = _jaxlib.from_dlpack(_jaxlib.to_dlpack(single), row()[4])
    ((_, there),), ((_, here),) = _jaxlib.fetch(back), _jaxlib.fetch(single)
    assert there.tolist() == [4.0, 40.0] and there.ctypes.data == here.ctypes.data


@pytest.mark.parametrize(
    ("sent", "devices", "text"),
    [
        (shards(7), slice(0, 8), "7 shards for 8 devices: need one per device of this process"),
        ([], slice(0, 0), "0 shards for 0 devices"),
        ([np.zeros(2), np.zeros(3)], slice(0, 2), r"shards differ in shape or dtype: .*\(2,\).*\(3,\)"),
        ([np.zeros(2), np.zeros(2, np.int32)], slice(0, 2), "shards differ in shape or dtype"),
    ],
)
def test_bad_shards(sent: list[np.ndarray], devices: slice, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        _jaxlib.put(sent, row()[devices])


def test_shards_for_part_of_the_row() -> None:
    with pytest.raises(ValueError, match=r"shards for devices \[1\], but this process has devices \[0, 1\] of the row"):
        _jaxlib.put(shards(1), row()[1:2], row=row()[:2])


# --- pytrees ---------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    x: Any
    y: Any


class Point:
    def __init__(self, x: Any, y: Any, name: str) -> None:
        self.x, self.y, self.name = x, y, name


_jaxlib.register_node(Point, lambda p: ((p.x, p.y), p.name), lambda name, xy: Point(*xy, name))

TREE = {
    "b": [1, (2, None)],
    "a": Pair(3, collections.OrderedDict(z=4, y=5)),
    "c": collections.defaultdict(list, {"k": 6}),
    "d": Point(7, 8, "p"),
}


def test_flatten_and_back() -> None:
    leaves, treedef = _jaxlib.flatten(TREE)
    assert leaves == [3, 4, 5, 1, 2, 6, 7, 8]
    back = _jaxlib.unflatten(treedef, leaves)
    assert {k: v for k, v in back.items() if k != "d"} == {k: v for k, v in TREE.items() if k != "d"}
    assert (back["d"].x, back["d"].y, back["d"].name) == (7, 8, "p")
    assert isinstance(back["a"], Pair) and back["c"]["missing"] == []


def test_paths() -> None:
    found, treedef = _jaxlib.flatten_with_path(TREE)
    assert [_jaxlib.path_text(path) for path, _ in found] == [
        "['a'].x", "['a'].y['z']", "['a'].y['y']", "['b'][0]", "['b'][1][0]", "['c']['k']",
        "['d'][<flat index 0>]", "['d'][<flat index 1>]",
    ]  # fmt: skip
    assert [leaf for _, leaf in found] == _jaxlib.flatten(TREE)[0] and treedef == _jaxlib.flatten(TREE)[1]


def test_is_leaf() -> None:
    def is_leaf(node: Any) -> bool:
        return node is None or isinstance(node, (list, Point))

    leaves, treedef = _jaxlib.flatten(TREE, is_leaf)
    assert leaves == [3, 4, 5, [1, (2, None)], 6, TREE["d"]]
    found, same = _jaxlib.flatten_with_path(TREE, is_leaf)
    assert [leaf for _, leaf in found] == leaves and same == treedef


def test_treedefs_compare() -> None:
    one, same, other = (_jaxlib.flatten(tree)[1] for tree in ([1, (2,)], [3, (4,)], [1, [2]]))
    assert one == same and hash(one) == hash(same) and one != other
    assert _jaxlib.flatten(Point(1, 2, "a"))[1] != _jaxlib.flatten(Point(1, 2, "b"))[1]
    assert [child.num_leaves for child in _jaxlib.children(one)] == [1, 1]


def test_prefixes() -> None:
    prefix = _jaxlib.flatten({"a": 0, "b": 0})[1]
    assert _jaxlib.flatten_up_to(prefix, {"a": [1, 2], "b": None}) == [[1, 2], None]
    with pytest.raises(ValueError):
        _jaxlib.flatten_up_to(prefix, {"a": 1})


def test_registering() -> None:
    with pytest.raises(ValueError, match="Duplicate"):
        _jaxlib.register_node(Point, lambda p: ((), None), lambda aux, children: None)
    assert _jaxlib.is_node(Point) and not _jaxlib.is_node(int)

    class Keyed(Point):
        pass

    x_and_y = (_jaxlib.GetAttrKey("x"), _jaxlib.GetAttrKey("y"))
    _jaxlib.register_node(
        Keyed,
        lambda p: ((p.x, p.y), None),
        lambda _, xy: Keyed(*xy, ""),
        lambda p: (tuple(zip(x_and_y, (p.x, p.y), strict=True)), None),
    )
    assert [_jaxlib.path_text(path) for path, _ in _jaxlib.flatten_with_path(Keyed(1, 2, ""))[0]] == [".x", ".y"]


@pytest.mark.skipif(any(_jaxlib.plugin_path(p) for p in ("cuda", "tpu")), reason="a plugin is installed")
@pytest.mark.parametrize("platform", ["cuda", "gpu", "tpu"])
def test_absent_platforms_are_named_at_first_use(platform: str) -> None:
    code = """
        import meshjit as mj
        for use in (lambda: mj.numpy.ones(2), lambda: mj.jit(lambda x: x)(1), lambda: mj.device_put(1), mj.default_backend):
            try:
                print(use())
            except RuntimeError as error:
                print(str(error).splitlines()[0])
        """
    name = {"gpu": "cuda"}.get(platform, platform)
    said = in_subprocess(code, JAX_PLATFORMS=platform, PYTHONPATH=ROOT).splitlines()
    assert said == [f'no {name} devices: no PJRT plugin for "{name}" is installed'] * 3 + [name]


@pytest.mark.skipif(_jaxlib.plugin_path("tpu") is not None, reason="the TPU plugin is installed")
def test_absent_devices_need_the_plugin() -> None:
    with pytest.raises(LookupError, match='no PJRT plugin for "tpu" is installed'):
        _jaxlib.topology_devices("tpu", "v5e:2x2")
