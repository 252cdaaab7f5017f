"""`jax.experimental.serialize_executable`: compiled functions as bytes, and back without the function.

    written, in_tree, out_tree = serialize(jax.jit(f).lower(*args).compile())
    deserialize_and_load(written, in_tree, out_tree)(*args)

The bytes are a line of JSON, which says what stands around the program, then what `Compiled.serialize` gives. Trees are whatever
classes their nodes are of, so that users keep them. XLA runs what it reads: load only what you trust.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from meshjit.api.call import Call
from meshjit.api.compiled import Compiled
from meshjit.config import config
from meshjit.core.keys import IMPLEMENTATIONS, PRNGKeyArray
from meshjit.core.types import DTYPES, TensorType
from meshjit.export.blob import read_spec, write_spec
from meshjit.missing import explain as _explain
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.array import Array, LeafKey, leaf_key
from meshjit.runtime.serialized import from_bytes, parted
from meshjit.trace.float0 import without_float0
from meshjit.tree_views import key_types
from meshjit.trees import WORDS as tree
from sharding.axis_types import AxisType
from sharding.mesh import Mesh
from sharding.named import UNSPECIFIED, NamedSharding, Sharding, SingleDeviceSharding

FORMAT = 1


def serialize(compiled: Compiled) -> tuple[bytes, Any, Any]:
    """Bytes of a compiled function, and the trees of its arguments and results, all of which `deserialize_and_load` takes.

    ValueError for a function that uses refs or calls Python, NotImplementedError for one that closes over arrays or runs on
    several processes."""
    if isinstance(compiled, _Loaded):
        return compiled.written, compiled.in_tree, compiled.out_tree
    if not isinstance(compiled, Compiled):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"serialize: {compiled!r:.80} is no compiled function, or one that uses refs\n"
            "  fix: jit(f).lower(...).compile() of a function of arrays, which returns what it would write"
        )
    if compiled.outer:
        raise NotImplementedError(
            f"serialize: {compiled.name} closes over arrays, {len(compiled.outer)} of them\n  fix: pass them as arguments"
        )
    if compiled.executable.is_noted:
        raise NotImplementedError(
            f"serialize: {compiled.name} runs on several processes\n"
            "  fix: compiled.serialize(), and jit(f).lower(...).load of it, which compiles nothing"
        )
    payload = compiled.serialize()
    return json.dumps(_head(compiled)).encode() + b"\n" + payload, compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes, in_tree: Any, out_tree: Any, backend: Any = None, execution_devices: Sequence[Any] | None = None
) -> Compiled:
    """The compiled function that `serialize` wrote, on devices with the ids that it was compiled for.

    backend: whose devices, by name or a client; execution_devices: among which. ValueError for devices, versions and bytes that
    do not fit. XLA runs what it reads: load only what you trust."""
    head, payload = parted(serialized, "serialize_executable", FORMAT)
    if head is None:
        raise ValueError(f"deserialize_and_load: these are no bytes of serialize in format {FORMAT}")
    here = execution_devices if execution_devices is not None else _devices(backend)
    ids = {device.id: device for device in here}
    missing = sorted(set(head["devices"]) - set(ids))
    if missing:
        raise ValueError(
            f"deserialize_and_load: {head['title']} was compiled for devices {head['devices']}, and {missing} are not among"
            f" {sorted(ids)}\n  fix: compile it for these"
        )
    return _Loaded(head, payload, serialized, ids, (in_tree, out_tree))


def _devices(backend: Any) -> Sequence[Any]:
    return client.devices(backend) if backend is None or isinstance(backend, str) else backend.devices()


# -- what stands around the program


def _head(compiled: Compiled) -> dict[str, Any]:
    executable, call = compiled.executable, compiled.call
    trees = call.in_tree, compiled.traced_program.out_tree
    local = [[list(shape), np.dtype(dtype).name] for shape, dtype in executable.local_outputs]
    mesh = executable.lowering.mesh
    return {
        "serialize_executable": FORMAT, "title": call.title, "names": list(call.names), "kept": compiled.kept,
        "statics": [name for name, _ in call.statics], "donated": [bool(flag) for flag in call.donated],
        "devices": [device.id for device in executable.devices], "options": dict(executable.options),
        "in": [_write_key(key) for key in call.keys], "out": [_write_key(key) for key in executable.out_keys],
        "keys": [[None if kind is None else kind.impl for kind in key_types(each)] for each in trees],
        "places": [[_write_place(s, mesh) for s in each] for each in (executable.in_shardings, executable.out_shardings)],
        "local": local,
    }  # fmt: skip


def _write_key(key: LeafKey) -> list[Any]:
    return [key.type.dtype.name, list(key.type.shape), key.weak, key.committed]


def _write_place(sharding: Sharding, of_program: Any) -> dict[str, Any]:
    if not isinstance(sharding, NamedSharding):
        (device,) = sharding.device_set
        return {"devices": [device.id], "memory": sharding.memory_kind}
    mesh = sharding.mesh if isinstance(sharding.mesh, Mesh) else of_program
    return {
        "devices": [device.id for device in mesh.flat_devices], "memory": sharding.memory_kind,
        "axes": list(mesh.axis_names), "sizes": list(mesh.axis_sizes), "types": [t.name for t in mesh.axis_types],
        "spec": write_spec(sharding.spec),
    }  # fmt: skip


def _read_place(written: Mapping[str, Any], devices: Mapping[int, Any]) -> Sharding:
    row = [devices[i] for i in written["devices"]]
    if "axes" not in written:
        return SingleDeviceSharding(row[0], memory_kind=written["memory"])
    grid = np.empty(len(row), dtype=object)
    grid[:] = row
    mesh = Mesh(grid.reshape(written["sizes"]), written["axes"], tuple(AxisType[name] for name in written["types"]))
    spec = read_spec(written["spec"])
    assert spec is not None
    return NamedSharding(mesh, spec, written["memory"])


def _dtype(name: str) -> np.dtype[Any]:
    return next(kind for kind in DTYPES.values() if kind.name == name)


def _key(written: Sequence[Any], sharding: Sharding | None = None) -> LeafKey:
    dtype, shape, weak, committed = written
    return leaf_key(TensorType(tuple(shape), _dtype(dtype)), weak, sharding, committed and sharding is not None)


def _words_tree(users: Any, impls: Sequence[str | None]) -> Any:
    if users.num_leaves != len(impls):
        raise ValueError(f"deserialize_and_load: the tree {users} has {users.num_leaves} leaves, the function {len(impls)}")
    leaves = [0 if impl is None else PRNGKeyArray(IMPLEMENTATIONS[impl], 0) for impl in impls]
    return tree.structure(without_float0(users.unflatten(leaves)))


class _Loaded(Compiled):
    """A compiled function of which neither the Program nor the plan is known."""

    def __init__(self, head: Any, payload: bytes, written: bytes, ids: Mapping[int, Any], trees: tuple[Any, Any]) -> None:
        in_tree, out_tree = map(_words_tree, trees, head["keys"])
        keys = [_key(each) for each in head["in"]]
        ins, outs = ([_read_place(place, ids) for place in side] for side in head["places"])
        out_keys = [_key(each, sharding) for each, sharding in zip(head["out"], outs, strict=True)]
        title, names = head["title"], head["names"]
        statics = [(name, None) for name in head["statics"]]
        call = Call(title, names, keys, in_tree, UNSPECIFIED, UNSPECIFIED, head["donated"], statics=statics)
        program = SimpleNamespace(name=title, output_types=[key.type for key in out_keys])
        traced = SimpleNamespace(program=program, out_tree=out_tree, out_arguments=out_keys, captured=())
        executable: Any = _Running(head, payload, [ids[i] for i in head["devices"]], ins, out_keys)
        known: Any = SimpleNamespace(call=call, traced_program=traced, kept=head["kept"])
        super().__init__(known, executable)
        self.written, self.checks = written, False

    def report(self) -> Any:
        """ValueError: nothing is known of its plan."""
        raise ValueError(f"{self.name} was loaded without its plan\n  fix: the report of what was serialized")

    def serialize(self) -> bytes:
        """What it was loaded from, without what stands around it."""
        return self.written.partition(b"\n")[2]


class _Running:
    """What a Compiled asks of its Executable."""

    functions, spellings, is_noted = (), (), False

    def __init__(
        self, head: Any, payload: bytes, devices: Sequence[Any], ins: Sequence[Sharding], out_keys: Sequence[LeafKey]
    ) -> None:
        self.devices, self.options = tuple(devices), head["options"]
        self.compiled = from_bytes(payload, head["title"], None, self.devices, self.options)
        self.in_shardings, self.out_keys = list(ins), list(out_keys)
        self.out_shardings = [key.sharding for key in out_keys]
        outputs = [(tuple(shape), _dtype(dtype)) for shape, dtype in head["local"]]
        layouts = [key.layout for key in out_keys]
        self.run = _jaxlib.make_executor(self.compiled, outputs, self.devices, layouts=layouts)

    def run_placed(self, arguments: Sequence[Array]) -> list[Array]:
        """Arguments that lie as `in_shardings` say."""
        if config.no_execution:
            raise RuntimeError("a loaded function would run, and config.no_execution is set")
        try:
            return self.run(arguments)
        except RuntimeError:
            for x in arguments:
                x._require_live()  # pyright: ignore[reportPrivateUsage] - say who took it
            raise

    def parameter_layouts(self) -> list[Any]:
        """How XLA lays out each input."""
        return _jaxlib.parameter_layouts(self.compiled)


_explain(__name__)
