"""What a person typed, read: arguments, specs, meshes, topologies. What cannot be used raises Unusable with what can."""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Iterable

from meshjit.api.auto import device_of
from meshjit.core.types import DTYPES, TensorType
from meshjit.targets.files import topology_named
from sharding.figures import Figures
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec


class Unusable(Exception):
    """One paragraph: what cannot be used, and the nearest that can."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; nearest: a, b`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
    return f"\n  nearest: {', '.join(near)}" if near else ""


def parsed_spec(text: str) -> PartitionSpec:
    """`P("data", None)`, `P('data')`, `data,None` and `data,-` are specs; so is an axis pair, `(data, model)`."""
    inner = text.strip()
    match = re.fullmatch(r"P(?:artitionSpec)?\((.*)\)", inner)
    inner = match[1] if match is not None else inner
    try:
        entries = ast.parse(f"({inner.replace('-', 'None')},)" if inner.strip(", ") else "()", mode="eval").body
        return PartitionSpec(*[_entry(entry) for entry in getattr(entries, "elts", [])])
    except (SyntaxError, ValueError, TypeError):
        raise Unusable(f'{text!r} is no spec\n  write P("data", None), or data,None') from None


def _entry(node: ast.expr) -> object:
    if isinstance(node, ast.Name):
        return None if node.id == "None" else node.id
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_entry(each) for each in node.elts)
    if isinstance(node, ast.Attribute) and node.attr == "UNCONSTRAINED":
        return PartitionSpec.UNCONSTRAINED
    raise ValueError("no entry")


def parsed_argument(text: str) -> tuple[TensorType, PartitionSpec | None]:
    """`f32[128,512]`, or with a spec: `f32[128,512]=P("data",None)`."""
    kind, _, spec = text.partition("=")
    try:
        return TensorType.parse(kind), parsed_spec(spec) if spec else None
    except ValueError:
        known = nearest(kind.partition("[")[0], DTYPES)
        raise Unusable(f"--arg {text!r} is no type\n  write f32[128,512], or f32[128,512]=P(\"data\",None){known}") from None


def parsed_mesh(text: str) -> AbstractMesh:
    """`data=4,model=2`."""
    axes = [axis.partition("=") for axis in text.split(",")]
    if not all(name.strip().isidentifier() and size.strip().isdigit() and int(size) > 0 for name, _, size in axes):
        raise Unusable(f"--mesh {text!r} is no mesh\n  write data=4,model=2")
    names = [name.strip() for name, _, _ in axes]
    try:
        return AbstractMesh([int(size) for _, _, size in axes], names)
    except ValueError as error:
        raise Unusable(f"--mesh {text!r}: {error}\n  write data=4,model=2") from None


def parsed_topology(text: str) -> tuple[str, str, int | None]:
    """`v5p:4x4x4` → ("tpu", "v5p", 64); `h100` → ("gpu", "h100", None); `cluster.toml:4x8` → ("gpu", "cluster.toml", 32)."""
    figures, shape = _topology(text)
    model = text.rpartition(":")[0] if re.search(r":[\dx]+$", text) else text
    return figures.platform, model, None if shape is None else math.prod(shape)


def mesh_on(mesh: AbstractMesh, topology: str | None) -> AbstractMesh:
    """The mesh, with a topology's devices. Unusable where the topology has another number of them."""
    if topology is None:
        return mesh
    figures, shape = _topology(topology)
    check_count(topology, None if shape is None else math.prod(shape), mesh)
    return AbstractMesh(mesh.axis_sizes, mesh.axis_names, abstract_device=device_of(figures))


def check_count(topology: str, count: int | None, mesh: AbstractMesh) -> None:
    """Unusable where a topology has another number of devices than a mesh."""
    if count not in (None, mesh.device_count):
        raise Unusable(f"--topology {topology} has {count} devices, {mesh} needs {mesh.device_count}")


def _topology(text: str) -> tuple[Figures, tuple[int, ...] | None]:
    try:
        return topology_named(text)
    except (ValueError, OSError) as error:
        raise Unusable(f"--topology: {error}") from None
