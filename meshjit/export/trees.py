"""Structures of arguments and results as JSON. Containers of Python's are known; others say how they are written."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshjit.runtime import _jaxlib
from meshjit.tree_views import HiddenFloat0

_CONTAINERS: dict[type, str] = {dict: "dict", list: "list", tuple: "tuple", type(None): "none"}
_CONTAINERS[collections.OrderedDict] = "ordered"
_KEYED = (dict, collections.OrderedDict)


@dataclass(frozen=True)
class _Way:
    """How the aux of one class becomes bytes and comes back, and who makes an instance of it, if not the class itself."""

    kind: type
    write: Callable[[Any], bytes | bytearray]
    read: Callable[[bytes], Any]
    make: Callable[[Any, Any], Any] | None = None


_FLOAT0 = _Way(HiddenFloat0, lambda shape: json.dumps(shape).encode(), lambda raw: tuple(json.loads(raw)))
_ways: dict[str, _Way] = {"float0": _FLOAT0}
_names: dict[type, str] = {HiddenFloat0: "float0"}


def register_pytree_node_serialization(
    nodetype: type,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes | bytearray],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Any], Any] | None = None,
) -> type:
    """Say how a registered class of nodes is written: under which name, and its aux as bytes (`jax.export`'s function).

    `from_children(aux, children)` is called with what was read, where aux alone does not make the node. ValueError where the name
    or the class is taken."""
    return _register(nodetype, serialized_name, _Way(nodetype, serialize_auxdata, deserialize_auxdata, from_children))


def register_namedtuple_serialization(nodetype: type, *, serialized_name: str) -> type:
    """Say under which name a class of named tuples is written. ValueError where name or class is taken."""
    if not (isinstance(nodetype, type) and issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")):
        raise ValueError(f"register_namedtuple_serialization: {nodetype} is no class of named tuples")
    fields = ",".join(nodetype._fields)  # pyright: ignore[reportAttributeAccessIssue]

    def read(written: bytes) -> None:
        if written.decode() != fields:
            raise ValueError(f"{serialized_name} was written with the fields {written.decode()}, and has {fields} here")

    return _register(nodetype, serialized_name, _Way(nodetype, lambda _: fields.encode(), read))


def _register(nodetype: type, name: str, way: _Way) -> type:
    if name in _ways:
        raise ValueError(f"serialized_name {name!r} is taken by {_ways[name].kind.__qualname__}\n  fix: another name")
    if nodetype in _names or nodetype in _CONTAINERS:
        raise ValueError(f"{nodetype.__qualname__} is registered already, as {_names.get(nodetype, 'a container of Python')}")
    _ways[name], _names[nodetype] = way, name
    return nodetype


def write_tree(treedef: Any) -> Any:
    """JSON of a treedef. ValueError for a class of nodes that has not said how it is written."""
    data = _jaxlib.node_data(treedef)
    if data is None:
        return "*"
    kind, aux = data
    children = [write_tree(child) for child in _jaxlib.children(treedef)]
    if kind in _CONTAINERS:
        keys = [[type(k).__name__, k] for k in aux] if kind in _KEYED else None
        if any(name not in ("str", "int", "bool") for name, _ in keys or ()):
            raise ValueError(f"serialize: dict keys {[k for _, k in keys or ()]} are not all str, int or bool")
        return [_CONTAINERS[kind], keys, children]
    if kind not in _names:
        raise ValueError(
            f"serialize: {kind.__qualname__} has not said how it is written\n  fix: export.register_pytree_node_serialization("
            f"{kind.__name__}, ...), or register_namedtuple_serialization for named tuples"
        )
    name = _names[kind]
    return [f"node {name}", bytes(_ways[name].write(aux)).hex(), children]


def read_tree(written: Any) -> Any:
    """The treedef of JSON that `write_tree` gave. ValueError for a class of nodes that is not registered here."""
    if written == "*":
        return _jaxlib.flatten(0)[1]
    kind, aux, children = written
    treedefs = [read_tree(child) for child in children]
    for container, name in _CONTAINERS.items():
        if name == kind:
            keys = None if aux is None else [k for _, k in aux]
            return _jaxlib.treedef_of((container, tuple(keys) if kind == "ordered" and keys is not None else keys), treedefs)
    name = kind.removeprefix("node ")
    if name not in _ways:
        raise ValueError(
            f"deserialize: the file has nodes {name!r}, of which nothing is known here\n"
            "  fix: register them as where it was written: export.register_pytree_node_serialization"
        )
    return _read_node(_ways[name], bytes.fromhex(aux), treedefs)


def _read_node(way: _Way, written: bytes, treedefs: list[Any]) -> Any:
    aux = way.read(written)
    if way.make is None:
        return _jaxlib.treedef_of((way.kind, aux), treedefs)
    children = [_jaxlib.unflatten(t, range(t.num_leaves)) for t in treedefs]
    return _jaxlib.flatten(way.make(aux, children))[1]


def as_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
