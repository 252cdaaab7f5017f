"""The one room that knows jaxlib: plain functions over opaque handles.

Handles, none of which is ever looked into outside this file:

    client       an XLA client: all devices of one platform, of every process
    device       jaxlib's Device: `.id`, `.process_index`, `.platform`, `.device_kind`
    executable   a compiled program, loaded on a row of devices
    handle       the shards of one array, one per device of a row; only this process's shards can be read

A handle says nothing about the logical array: shards may be anything of equal shape. jaxlib wants a global shape
and a sharding with every array; we tell it the *shard's* shape under a MANUAL sharding, which is true for scalars,
empty arrays and any number of devices. (REPLICATED must not be claimed: jaxlib then copies shard 0 to every device.)

jaxlib's private surface differs between versions; what differs is asked for by feature, once, at import.
"""

from __future__ import annotations

import collections
import functools
import operator
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when jaxlib loads: else one line per device

import numpy as np  # noqa: E402
from jaxlib import _jax, xla_client  # noqa: E402  # pyright: ignore[reportAttributeAccessIssue]  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib import version as _version  # noqa: E402

version: str = _version.__version__

XlaError = _jax.JaxRuntimeError  # a RuntimeError; what XLA raises while running or talking to the coordinator
Device = _jax.Device
PyTreeDef = _jax.pytree.PyTreeDef

ShardType = tuple[tuple[int, ...], Any]  # (shape, dtype) of what one device holds


class CompilationError(Exception):
    """XLA refused a program. `text` is the StableHLO, `path` a file that holds it."""

    def __init__(self, reason: str, text: str, path: str) -> None:
        super().__init__(f"XLA could not compile the program: {reason}\n  the program is in {path}")
        self.reason, self.text, self.path = reason, text, path


# --- clients and devices ---------------------------------------------------------------------------------------------


def cpu_client(
    num_devices: int, coordinator: Any = None, node_id: int = 0, num_nodes: int = 1, host: str | None = None
) -> Any:
    """A client of `num_devices` virtual CPU devices here; with a coordinator, joined to the other processes.

    `host` is the address on which the other processes reach this one (for Gloo); None: what the host's name says."""
    collectives = None
    if coordinator is not None:
        collectives = _jax.make_gloo_tcp_collectives(distributed_client=coordinator, hostname=host)
    return xla_client.make_cpu_client(
        num_devices=num_devices,
        distributed_client=coordinator,
        node_id=node_id,
        num_nodes=num_nodes,
        collectives=collectives,
    )


def plugin_path(platform: str) -> str | None:
    """The shared library of an installed PJRT plugin for "cuda" or "tpu", or None."""
    import importlib.util
    from pathlib import Path

    if platform == "tpu":
        spec = importlib.util.find_spec("libtpu")
        roots, name = list((spec.submodule_search_locations or []) if spec else []), "libtpu.so"
    else:
        plugins = importlib.util.find_spec("jax_plugins")
        roots, name = list((plugins.submodule_search_locations or []) if plugins else []), "xla_cuda_plugin.so"
        roots = [os.path.join(root, kind) for root in roots for kind in ("xla_cuda13", "xla_cuda12")]
    return next((str(Path(root) / name) for root in roots if (Path(root) / name).is_file()), None)


def plugin_client(
    platform: str,
    coordinator: Any = None,
    node_id: int = 0,
    num_nodes: int = 1,
    visible: Sequence[int] | None = None,
) -> Any:
    """A client of the accelerators that the plugin for `platform` ("cuda" or "tpu") drives; `visible` chooses GPUs.

    Raises LookupError where no plugin is installed, and XlaError where the plugin finds no device."""
    _load_plugin(platform)
    options: dict[str, Any] = {}
    if platform == "cuda":
        options = dict(xla_client.generate_pjrt_gpu_plugin_options())  # what the environment says of the allocator
        options |= {"visible_devices": list(visible)} if visible is not None else {}
        options |= {"node_id": node_id, "num_nodes": num_nodes} if coordinator is not None else {}
    return xla_client.make_c_api_client(platform, options, coordinator)


def _load_plugin(platform: str) -> None:
    path = plugin_path(platform)
    if path is None:
        raise LookupError(f'no PJRT plugin for "{platform}" is installed')
    if not xla_client.pjrt_plugin_loaded(platform):
        xla_client.load_pjrt_plugin_dynamically(platform, path)
    if not xla_client.pjrt_plugin_initialized(platform):
        xla_client.initialize_pjrt_plugin(platform)


def topology_devices(platform: str, name: str, options: Mapping[str, Any] | None = None) -> list[Any]:
    """Devices that need not be present: `compile` takes them, nothing runs on them. `name` as in "v5p:8x8x8"."""
    _load_plugin(platform)
    return list(_jax.get_default_c_api_topology(platform, name, dict(options or {}))._make_compile_only_devices())


def is_absent(device: Any) -> bool:
    """Whether the device is one of a topology, that can be compiled for and nothing else."""
    return isinstance(device.client, getattr(_jax, "CompileOnlyPyClient", ()))


def devices(client: Any) -> list[Any]:
    """The devices of all processes, as jaxlib orders them."""
    return list(client.devices())


def local_devices(client: Any) -> list[Any]:
    """The devices of this process."""
    return list(client.local_devices())


# --- programs --------------------------------------------------------------------------------------------------------


def compile(  # noqa: A001
    client: Any, text: str, devices: Sequence[Any], options: Mapping[str, Any] | None = None
) -> Any:
    """Compile StableHLO text for a row of devices: partition i runs on `devices[i]`.

    `options` are XLA's (as in XLA_FLAGS, without dashes); one that XLA does not know raises CompilationError, too."""
    row = _device_list(tuple(devices))
    try:
        build = _compile_options(devices, options)
        if hasattr(client, "compile_and_load") and not is_absent(devices[0]):
            return client.compile_and_load(text.encode(), row, build)
        return client.compile(parse_module(text), row, build)  # absent devices: a compile-only client wants a Module
    except XlaError as error:
        raise CompilationError(str(error).strip(), text, _save_reproducer(text)) from None


def _compile_options(devices: Sequence[Any], options: Mapping[str, Any] | None) -> Any:
    count = len(devices)
    result = xla_client.CompileOptions()
    result.num_replicas, result.num_partitions = 1, count
    build = result.executable_build_options
    build.num_replicas, build.num_partitions = 1, count
    build.use_spmd_partitioning = count > 1
    build.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id for device in devices]]))
    if options:
        result.env_option_overrides = [(name, _option_value(value)) for name, value in options.items()]
    return result


def _option_value(value: Any) -> Any:
    """XLA wants a bool for a bool option; people write "true"."""
    words = {"true": True, "false": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def parse_module(text: str) -> Any:
    """The MLIR module of StableHLO text."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (chlo, stablehlo):
        dialect.register_dialect(context)
    with context:
        return ir.Module.parse(text)


def _save_reproducer(text: str) -> str:
    descriptor, path = tempfile.mkstemp(prefix="meshjit_", suffix=".mlir")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return path


def make_executor(
    executable: Any,
    outputs: Sequence[ShardType],
    devices: Sequence[Any],
    donated: Sequence[int] = (),
    layouts: Sequence[Layout] | None = None,
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from argument handles to output handles; asynchronous.

    `outputs` are the shard types of the results, `layouts` their layouts where they have some of their own, `devices`
    the row that the program was compiled for. `donated` are the positions of the arguments marked
    `tf.aliasing_output` in the text: their handles are deleted by the call, even if XLA had to copy because NumPy still
    looks at the memory. Raises ValueError for an argument on other devices and RuntimeError for a deleted one."""
    layout = shared_layout(tuple(devices))
    wanted = [layout] * len(outputs) if layouts is None else layouts
    handlers = [_result_handler(_Aval(*output), place) for output, place in zip(outputs, wanted, strict=True)]
    run = getattr(executable, "execute_sharded", None)
    if run is None:
        return _refuse_absent

    def execute(handles: Sequence[Any]) -> list[Any]:
        for handle in handles:  # some versions crash, rather than raise, on shards of other devices and deleted ones
            row = handle._sharding.row
            if (row is not layout.row and row != layout.row) or handle.is_deleted():
                _refuse(handles, layout)
        results = run(handles).consume_with_handlers(handlers)
        for position in donated:
            handles[position].delete()
        return results

    return execute


def _refuse_absent(handles: Sequence[Any]) -> list[Any]:
    raise RuntimeError("the program is compiled for devices that are not here, so it cannot run")


def _refuse(handles: Sequence[Any], layout: Layout) -> None:
    for position, handle in enumerate(handles):
        if handle.is_deleted():
            raise RuntimeError(f"argument {position} was deleted, or donated to an earlier call")
        if handle._sharding.row != layout.row:
            ids = [[device.id for device in row] for row in (handle._sharding.row, layout.row)]
            raise ValueError(
                f"argument {position} lies on devices {ids[0]}, the program runs on {ids[1]}; copy it there"
            )


def execute(executable: Any, handles: Sequence[Any], outputs: Sequence[ShardType], devices: Sequence[Any]) -> list[Any]:
    """Run once; `make_executor` is the fast way for more than that."""
    return make_executor(executable, outputs, devices)(handles)


def memory_stats(executable: Any) -> dict[str, int]:
    """Bytes per device: arguments, outputs, alias (of both, where donated), temp, generated_code; the same as `host_…`;
    peak if known."""
    stats = executable.get_compiled_memory_stats()
    names = {"arguments": "argument", "outputs": "output", "alias": "alias", "temp": "temp"}
    names["generated_code"] = "generated_code"
    result = {ours: int(getattr(stats, f"{theirs}_size_in_bytes")) for ours, theirs in names.items()}
    result.update({f"host_{ours}": int(getattr(stats, f"host_{theirs}_size_in_bytes", 0)) for ours, theirs in names.items()})
    if hasattr(stats, "peak_memory_in_bytes"):
        result["peak"] = int(stats.peak_memory_in_bytes)
    return result


def cost_analysis(executable: Any) -> dict[str, float]:
    """XLA's own estimate for one device: "flops", "bytes accessed", "transcendentals", …"""
    found = executable.cost_analysis()
    return dict(found[0] if isinstance(found, list) else found)


def hlo_text(executable: Any) -> str:
    """The optimised HLO of one device."""
    return "\n\n".join(module.to_string() for module in executable.hlo_modules())


def computation(text: str) -> Any:
    """StableHLO text as XLA's HLO, not optimised: an XlaComputation."""
    return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)


def hlo_text_of_module(text: str) -> str:
    return computation(text).as_hlo_text()


def cost_of_module(client: Any, text: str) -> dict[str, float]:
    """`cost_analysis` of StableHLO text that is not compiled."""
    return dict(_jax.hlo_module_cost_analysis(client, computation(text).as_hlo_module()))


def parameter_layouts(executable: Any) -> list[tuple[int, ...]]:
    """Per argument its dims from major to minor in memory."""
    return [_major_to_minor(layout) for layout in executable.get_parameter_layouts()]


def result_layouts(executable: Any) -> list[tuple[int, ...]]:
    return [_major_to_minor(layout) for layout in executable.get_output_layouts()]


def _major_to_minor(layout: Any) -> tuple[int, ...]:
    return tuple(reversed(layout._xla_layout().minor_to_major()))


def serialize(executable: Any) -> bytes:
    """Bytes that `deserialize` takes, on the same jaxlib version and kind of device."""
    return executable.serialize()


def deserialize(client: Any, data: bytes, devices: Sequence[Any], options: Mapping[str, Any] | None = None) -> Any:
    """The executable that `serialize` was given. Trusts its input as code: read only your own files."""
    return client.deserialize_executable(data, _device_list(tuple(devices)), _compile_options(devices, options))


# --- arrays ----------------------------------------------------------------------------------------------------------


class _Aval:
    """All that jaxlib reads of an abstract value."""

    __slots__ = ("dtype", "ndim", "shape", "weak_type")

    def __init__(self, shape: Iterable[int], dtype: Any) -> None:
        self.shape, self.dtype, self.weak_type = tuple(shape), np.dtype(dtype), False
        self.ndim = len(self.shape)


def _manual_sharding() -> Any:
    proto = xla_client.OpSharding()
    proto.type = xla_client.OpSharding.Type.MANUAL
    return xla_client.HloSharding.from_proto(proto)


_MANUAL = _manual_sharding()


class Layout(_jax.GSPMDSharding):
    """All that jaxlib reads of a sharding: one shard per device of the row, whatever the shards mean together.

    Two layouts are never equal: `fast_function` tells arrays of equal shards apart by them. (Its C++ asks classes that
    it does not know for their devices the slow way, hence the base class.)"""

    memory_kind = None
    _internal_device_list = num_devices = device_set = None  # with jax in the process these are read-only properties

    def __init__(self, row: tuple[Any, ...]) -> None:
        super().__init__(_device_list(row), _MANUAL)
        self._internal_device_list = _device_list(row)
        self.num_devices, self.device_set, self.row = len(row), row, _one_of_equal(row)
        self.local = tuple(self._internal_device_list.addressable_device_list)

    def _to_xla_hlo_sharding(self, ndim: int) -> Any:
        return _MANUAL

    __eq__, __hash__ = object.__eq__, object.__hash__


@functools.lru_cache(maxsize=256)
def _device_list(row: tuple[Any, ...]) -> Any:
    return _jax.DeviceList(row)


@functools.lru_cache(maxsize=256)
def _one_of_equal(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Equal rows as one object, so that comparing them is quick."""
    return row


@functools.lru_cache(maxsize=256)
def shared_layout(row: tuple[Any, ...]) -> Layout:
    """The layout of handles that need no layout of their own."""
    return Layout(row)


def _result_handler_flags() -> dict[str, Any]:
    """0.10 can check a result's shape against its sharding by calling jax; it takes a flag not to."""
    return {"_skip_checks": True} if "_skip_checks" in (_jax.array_result_handler.__doc__ or "") else {}


_RESULT_FLAGS = _result_handler_flags()


def _result_handler(aval: _Aval, layout: Layout) -> Any:
    return _jax.array_result_handler(aval, layout, True, **_RESULT_FLAGS)


_COPY_AT_ONCE = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_ALIAS = _jax.HostBufferSemantics.ZERO_COPY


def put(
    shards: Sequence[Any], devices: Sequence[Any], row: Sequence[Any] | Layout | None = None, alias: bool = False
) -> Any:
    """Place one shard on each device; all shards have one shape and dtype.

    `shards` are NumPy arrays (or one-shard handles, which are copied across devices); `devices` are this process's, in
    the row's order; `row` is the whole row where it spans processes, or the layout that the handle shall have. With
    `alias` the device may read the NumPy memory for as long as the handle lives: only for arrays that nobody will write
    to."""
    layout = _checked_layout(shards, devices, row)
    aval = _Aval(shards[0].shape, shards[0].dtype.newbyteorder("=")) if _is_host(shards[0]) else shards[0].aval
    sources = [_native(shard) if _is_host(shard) else _single(shard) for shard in shards]
    if is_absent(devices[0]):
        raise RuntimeError(
            f"{devices[0].device_kind} {devices[0].id} is a device of a topology: programs are compiled for it, none runs on it"
        )
    if not alias and _share_memory(sources):
        return _assemble(aval, layout, [_put_one(aval, *pair) for pair in zip(sources, devices, strict=True)])
    return _put_all(aval, layout, sources, devices, _ALIAS if alias else _COPY_AT_ONCE)


def _put_all(aval: _Aval, layout: Layout, sources: Sequence[Any], devices: Sequence[Any], semantics: Any) -> Any:
    with _NO_JAX:
        return _jax.batched_device_put(
            aval, layout, sources, list(devices), True, host_buffer_semantics=semantics, enable_x64=True
        )


def _put_one(aval: _Aval, source: Any, device: Any) -> Any:
    return _single(_put_all(aval, shared_layout((device,)), [source], [device], _COPY_AT_ONCE))


def _share_memory(sources: Sequence[Any]) -> bool:
    """Whether two shards start at one address: jaxlib then fails (bad_function_call) unless it may alias."""
    starts = [source.__array_interface__["data"][0] for source in sources if _is_host(source)]
    return len(set(starts)) < len(starts)


def _is_host(shard: Any) -> bool:
    return isinstance(shard, np.ndarray)


def _checked_layout(shards: Sequence[Any], devices: Sequence[Any], row: Sequence[Any] | Layout | None) -> Layout:
    """The layout of the row, for which the shards must fit; jaxlib itself would crash on some that do not."""
    if len(shards) != len(devices) or not shards:
        raise ValueError(f"{len(shards)} shards for {len(devices)} devices: need one per device of this process")
    layout = row if isinstance(row, Layout) else shared_layout(tuple(devices if row is None else row))
    if tuple(devices) != layout.local:
        ids = [[device.id for device in group] for group in (devices, layout.local)]
        raise ValueError(f"shards for devices {ids[0]}, but this process has devices {ids[1]} of the row")
    types = {(s.shape, s.dtype) if _is_host(s) else shard_type(s) for s in shards}
    if len(types) > 1:
        raise ValueError(f"shards differ in shape or dtype: {sorted(map(str, types))}")
    return layout


def _native(array: np.ndarray) -> np.ndarray:
    """In C order and the machine's byte order, which is all that jaxlib reads rightly."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def shard_type(handle: Any) -> ShardType:
    """Shape and dtype of each shard."""
    return handle.aval.shape, handle.aval.dtype


def handle_devices(handle: Any) -> tuple[Any, ...]:
    """This process's devices of the handle, in the order of `fetch` and `shard`."""
    return handle._sharding.local


class _WithoutJax:
    """Inside, jaxlib does not import `jax`.

    Where arrays are taken apart jaxlib looks for Python classes of jax and falls back to its own. Without jax that
    costs 0.1 ms of failing imports per shard; with jax installed it would load all of it. `None` in sys.modules makes
    the look-up fail at once. Where the user has imported jax, nothing is touched and the look-up finds it."""

    NAMES = ("jax.core", "jax._src.sharding_impls", "jax._src.named_sharding")

    def __init__(self) -> None:
        self.lock, self.depth = threading.RLock(), 0

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.depth == 0 and "jax" not in sys.modules:
            for name in self.NAMES:
                sys.modules[name] = None  # type: ignore[assignment]
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            for name in self.NAMES:
                if sys.modules.get(name, self) is None:
                    del sys.modules[name]
        self.lock.release()


_NO_JAX = _WithoutJax()


def _singles(handle: Any) -> list[Any]:
    """jaxlib's single-device arrays of this process, in row order. Its list is cached in the handle."""
    if handle.is_deleted():
        raise RuntimeError("the array was deleted or donated to a computation; its shards are gone")
    with _NO_JAX:
        return handle._arrays


def _single(handle: Any) -> Any:
    singles = _singles(handle)
    if len(singles) != 1:
        raise ValueError(f"a handle of one shard is needed, this one has {len(singles)}")
    return singles[0]


def fetch(handle: Any) -> list[tuple[Any, np.ndarray]]:
    """(device, read-only array) for each shard of this process; waits; without a copy on CPU."""
    singles = _singles(handle)
    block(handle)  # not under the lock below
    with _NO_JAX:
        arrays = [single._single_device_array_to_np_array_did_copy()[0] for single in singles]
    return list(zip(handle_devices(handle), arrays, strict=True))


def shard(handle: Any, index: int) -> Any:
    """A handle of the `index`-th shard of this process alone. It shares the memory, and is deleted with it."""
    device, single = handle_devices(handle)[index], _singles(handle)[index]
    return _assemble(handle.aval, shared_layout((device,)), [single])


def from_single_device_handles(handles: Sequence[Any], row: Sequence[Any] | Layout | None = None) -> Any:
    """One handle of several one-shard handles, in the row's order; the inverse of `shard`."""
    devices = [handle_devices(handle)[0] for handle in handles]
    layout = _checked_layout(handles, devices, row)
    return _assemble(handles[0].aval, layout, [_single(handle) for handle in handles])


def _assemble(aval: _Aval, layout: Layout, singles: list[Any]) -> Any:
    return _jax.ArrayImpl(aval, layout, singles, committed=True, _skip_checks=True)


def in_layout(handle: Any, layout: Layout) -> Any:
    """The handle itself if it has this layout, else another over the same memory, which is deleted with it."""
    return handle if handle._sharding is layout else handle._rewrap_with_aval_and_sharding(handle.aval, layout)


def copy_to_devices(handle: Any, devices: Sequence[Any]) -> Any:
    """The i-th shard of this process copied to `devices[i]`; a shard already there is shared, not copied."""
    return put([shard(handle, i) for i in range(len(devices))], devices)


def block(handle: Any) -> None:
    """Wait until every local shard is computed; raises what its computation raised."""
    handle.block_until_ready()


def is_ready(handle: Any) -> bool:
    return handle.is_ready()


def delete(handle: Any) -> None:
    """Give the memory back now. Reading the handle afterwards raises RuntimeError."""
    handle.delete()


def is_deleted(handle: Any) -> bool:
    return handle.is_deleted()


def copy_to_host_async(handle: Any) -> None:
    """Start the copy that `fetch` will wait for."""
    singles = _singles(handle)
    with _NO_JAX:
        for single in singles:
            single._copy_single_device_array_to_host_async()


def to_dlpack(handle: Any, stream: int | None = None) -> Any:
    """A DLPack capsule of a one-shard handle; shares the memory."""
    single = _single(handle)
    with _NO_JAX:
        return _jax.buffer_to_dlpack_managed_tensor(single, stream=stream)


def from_dlpack(capsule: Any, device: Any, stream: int | None = None) -> Any:
    """A one-shard handle of a DLPack capsule on `device`; shares the memory if that is aligned. BufferError for elements
    that are not in C order: jaxlib would take them, and our programs read them in the wrong order."""
    with _NO_JAX:
        single = _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream)
        value = single._single_device_array_to_np_array_did_copy()[0]  # for shape and dtype: it has no aval
    if not value.flags.c_contiguous:
        raise BufferError(f"its elements are not in C order: strides {value.strides}")
    return _assemble(_Aval(value.shape, value.dtype), shared_layout((device,)), [single])


def buffer_address(handle: Any) -> int:
    """Where the memory of a one-shard handle begins, on its device."""
    block(handle)
    return _single(handle).unsafe_buffer_pointer()


def size_on_devices(handle: Any) -> int:
    """Bytes of all shards of this process, padding included."""
    return sum(single.on_device_size_in_bytes() for single in _singles(handle))


def live_handles(client: Any) -> list[Any]:
    """The handles with a layout of their own that are alive on a client's devices."""
    return [handle for handle in client.live_arrays() if type(handle._sharding) is Layout and not handle.is_deleted()]


# --- pytrees ---------------------------------------------------------------------------------------------------------

def _new_registry() -> Any:
    """None is a node without children, as in JAX."""
    return _jax.pytree.PyTreeRegistry(
        enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True, enable_dict=True
    )


_registry = _new_registry()
_call_registry = _new_registry()  # also takes arrays apart: their leaves are handles
DictKey, SequenceKey = _jax.pytree.DictKey, _jax.pytree.SequenceKey
GetAttrKey, FlattenedIndexKey = _jax.pytree.GetAttrKey, _jax.pytree.FlattenedIndexKey


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """(leaves, treedef). Dict keys in sorted order. Treedefs compare with == and are hashable."""
    return _registry.flatten(tree, is_leaf)


def flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """([(path, leaf)], treedef); a path is a tuple of DictKey, SequenceKey, GetAttrKey and FlattenedIndexKey."""
    predicate = None if is_leaf is None else lambda path, node: is_leaf(node)
    return _registry.flatten_with_path(tree, predicate)


def path_text(path: Iterable[Any]) -> str:
    """A path as a person writes it: `['layers'][0].weight`."""
    return "".join(map(str, path))


def unflatten(treedef: Any, leaves: Iterable[Any]) -> Any:
    return treedef.unflatten(leaves)


def flatten_up_to(treedef: Any, tree: Any) -> list[Any]:
    """The subtrees of `tree` at the leaves of `treedef`, which must be a prefix of its structure (else ValueError)."""
    return treedef.flatten_up_to(tree)


def is_node(kind: type) -> bool:
    """Whether values of this type are taken apart (named tuples are, too, without being registered)."""
    return _registry.is_node(kind)


def children(treedef: Any) -> list[Any]:
    return treedef.children()


def register_node(
    kind: type,
    to_iterable: Callable[[Any], tuple[Iterable[Any], Any]],
    from_iterable: Callable[[Any, Iterable[Any]], Any],
    to_iterable_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Take values of `kind` apart: value -> (children, aux) and (aux, children) -> value. Registering twice raises
    ValueError."""
    _registry.register_node(kind, to_iterable, from_iterable, to_iterable_with_keys)
    _call_registry.register_node(kind, to_iterable, from_iterable, to_iterable_with_keys)


def register_dataclass(kind: type, data_fields: Sequence[str], meta_fields: Sequence[str]) -> None:
    """A dataclass as a node: `data_fields` are children, `meta_fields` (hashable) are part of the structure."""
    for registry in (_registry, _call_registry):
        registry.register_dataclass_node(kind, list(data_fields), list(meta_fields))


def _register_collections() -> None:
    ordered, default = collections.OrderedDict, collections.defaultdict
    register_node(
        ordered,
        lambda d: (tuple(d.values()), tuple(d)),
        lambda keys, values: ordered(zip(keys, values, strict=True)),
        lambda d: (tuple((DictKey(k), v) for k, v in d.items()), tuple(d)),
    )
    register_node(
        default,
        lambda d: (tuple(d.values()), (d.default_factory, tuple(d))),
        lambda aux, values: default(aux[0], zip(aux[1], values, strict=True)),
        lambda d: (tuple((DictKey(k), v) for k, v in d.items()), (d.default_factory, tuple(d))),
    )


_register_collections()


# --- calls without Python --------------------------------------------------------------------------------------------


class CompiledCall(NamedTuple):
    """What jaxlib's C++ needs to run a call that looks like one that it has seen. Names and order are jaxlib's."""

    xla_executable: Any
    out_pytree_def: Any
    in_shardings: Sequence[Layout]
    out_shardings: Sequence[Layout]
    out_avals: Sequence[Any]
    out_committed: Sequence[bool]
    kept_var_bitvec: Sequence[bool]
    in_device_local_layouts: Sequence[None]
    const_args: Sequence[Any]


def register_array(kind: type, handle_field: str) -> None:
    """Let `fast_function` take instances of `kind` apart to the handle that this attribute holds."""
    _call_registry.register_dataclass_node(kind, [handle_field], [])


def compiled_call(
    executable: Any,
    kept: Sequence[bool],
    in_layouts: Sequence[Layout],
    outputs: Sequence[tuple[ShardType, Layout]],
    result: Any,
) -> CompiledCall:
    """Run the executable on the handles that are `kept`, of these layouts, and make the `result_tree` of its outputs."""
    if sum(kept) != len(in_layouts):  # C++ does not count, but reads on
        raise ValueError(f"the program takes {len(in_layouts)} arguments, {sum(kept)} of {len(kept)} are kept")
    return CompiledCall(
        executable, result, in_layouts, [layout for _, layout in outputs], [_Aval(*shard) for shard, _ in outputs],
        [True] * len(outputs), kept, [None] * len(in_layouts), (),
    )  # fmt: skip


class _Result:
    """Marks a node whose data is a function: unflattening calls it with the children."""


_registry.register_node(_Result, lambda _: ((), None), operator.call)


def result_tree(make: Callable[[tuple[Any, ...]], Any], count: int) -> Any:
    """A treedef of `count` leaves; unflattening it gives `make(leaves)`."""
    leaf = _registry.flatten(0)[1]
    return PyTreeDef.from_node_data_and_children(_registry, (_Result, make), [leaf] * count)


def compose(outer: Any, inner: Any) -> Any:
    """The treedef `outer` with `inner` at every leaf."""
    return outer.compose(inner)


def fast_function(name: str, miss: Callable[..., tuple[Any, CompiledCall | None]]) -> Callable[..., Any]:
    """A function of trees of arrays whose calls run in C++, once `miss` has said how for a call that looks alike.

    Calls look alike if their trees are equal and their handles have the same layouts. `miss(*trees)` runs the call and
    gives the result and, where further ones may run without it, their CompiledCall. What is no array, or deleted, or
    has an array in it that was made outside of `miss`'s control, comes to `miss` every time."""
    _prepare_calls()

    def cache_miss(*trees: Any) -> tuple[Any, CompiledCall | None, bool]:
        return *miss(*trees), False

    return _jax.pjit(name, None, cache_miss, [], [], name, _call_registry, _refuse_argument)


def _refuse_argument(*_: Any) -> Any:
    raise RuntimeError("a handle lies on other devices than those of the program that its layout leads to")


@functools.cache
def _prepare_calls() -> None:
    """jaxlib's C++ reads three settings of jax at every call; without jax nobody has made them."""
    if "jax._src.config" in sys.modules:
        return
    settings = {
        name: _jax.config.Config(name, value, include_in_jit_key=True, include_in_trace_context=True)
        for name, value in {"enable_x64": True, "disable_jit": False, "post_hook": None}.items()
    }
    _jax.jax_jit.set_enable_x64_state(settings["enable_x64"])
    _jax.jax_jit.set_disable_jit_state(settings["disable_jit"])
    _jax.jax_jit.set_post_hook_state(settings["post_hook"])


# --- coordination ----------------------------------------------------------------------------------------------------


def start_coordinator(address: str, num_nodes: int, heartbeat_timeout: int = 10, timeout: int = 60) -> Any:
    """The service that one process runs for all, listening on `address` ("[::]:port"). `.shutdown()` ends it.

    Service and clients must be given the same `heartbeat_timeout` (seconds): clients send at a fraction of theirs."""
    return _jax.get_distributed_runtime_service(
        address,
        num_nodes,
        heartbeat_timeout=heartbeat_timeout,
        cluster_register_timeout=timeout,
        shutdown_timeout=heartbeat_timeout,
    )


def connect_coordinator(address: str, node_id: int, heartbeat_timeout: int = 10, timeout: int = 60) -> Any:
    """Join the service; returns once all processes have.

    When a process dies, jaxlib ends the others (SIGABRT) with a message that names it: at once where it ran the
    service, else after `heartbeat_timeout` seconds. jaxlib can be given a Python function to call instead, but cannot
    convert the argument for it."""
    client = _jax.get_distributed_runtime_client(
        address,
        node_id,
        init_timeout=timeout,
        heartbeat_timeout=heartbeat_timeout,
        shutdown_timeout=heartbeat_timeout,
        shutdown_on_destruction=False,
        use_compression=True,
    )
    client.connect()
    return client


def store_set(coordinator: Any, key: str, value: str, overwrite: bool = False) -> None:
    coordinator.key_value_set(key, value, allow_overwrite=overwrite)


def store_get(coordinator: Any, key: str, timeout: float) -> str | None:
    """The value, waiting for it; None after `timeout` seconds."""
    try:
        return coordinator.blocking_key_value_get(key, max(1, int(timeout * 1000)))
    except XlaError as error:
        if "DEADLINE_EXCEEDED" in str(error):
            return None
        raise


def store_list(coordinator: Any, prefix: str) -> dict[str, str]:
    """All keys below `prefix`, at this moment."""
    return dict(coordinator.key_value_dir_get(prefix))


def store_delete(coordinator: Any, key: str) -> None:
    """Delete a key, and all keys below it."""
    coordinator.key_value_delete(key)


def barrier(coordinator: Any, name: str, timeout: float) -> bool:
    """Wait for all processes; False when they did not come within `timeout` seconds. A name serves once."""
    try:
        coordinator.wait_at_barrier(name, max(1, int(timeout * 1000)))
    except XlaError:
        return False
    return True
