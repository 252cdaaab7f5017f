"""Exported functions as bytes: a zip archive of a header in JSON, the Program as text, and the bytes of arrays that it closes
over. Nothing in it runs when it is read, unlike a pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.core.host import HostFunction
from meshjit.core.keys import IMPLEMENTATIONS, PRNGKeyArray
from meshjit.core.parser import ParseError, parse_program
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.core.region import programs_of
from meshjit.core.types import DTYPES
from meshjit.export.checks import DisabledSafetyCheck
from meshjit.export.code import Code
from meshjit.export.trees import as_json, read_tree, write_tree
from meshjit.export.version import maximum_supported_calling_convention_version, minimum_supported_calling_convention_version
from meshjit.trace.float0 import without_float0
from meshjit.transform.inline_calls import inline_calls
from meshjit.tree_views import key_types, users_treedef
from meshjit.trees import WORDS as tree
from meshjit.version import __version__
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec


def write(name: str, platforms: Sequence[str], checks: Sequence[DisabledSafetyCheck], code: Code, vjp: bytes | None) -> bytearray:
    """The archive. ValueError for a Program that calls Python."""
    program = inline_calls(code.program, final=True)
    for function in _python_in(program):
        raise ValueError(
            f"serialize: {name} calls Python, {function.name}, which a file cannot hold\n"
            "  fix: leave out callbacks and debug.print, or compute what they give before, and pass it in"
        )
    arrays = [np.asarray(x) for x in code.captured]
    header = {
        "version": maximum_supported_calling_convention_version, "meshjit": __version__, "name": name,
        "platforms": list(platforms), "checks": [str(check) for check in checks],
        "in": _write_side(code.in_tree, code.in_weak, code.in_specs),
        "out": _write_side(code.out_tree, code.out_weak, code.out_specs),
        "mesh": code.mesh and [list(code.mesh.axis_names), list(code.mesh.axis_sizes)],
        "arrays": [[x.dtype.name, list(x.shape)] for x in arrays],
    }  # fmt: skip
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", as_json(header))
        archive.writestr("program.txt", print_program(program, sources=True))
        for i, array in enumerate(arrays):
            archive.writestr(zipfile.ZipInfo(f"array {i}"), np.ascontiguousarray(array).tobytes())  # not compressed
        if vjp is not None:
            archive.writestr("vjp", vjp)
    return bytearray(file.getvalue())


def _python_in(program: Program) -> Iterator[HostFunction]:
    for eqn in program.eqns:
        yield from (value for value in eqn.params.values() if isinstance(value, HostFunction))
        for nested in programs_of(eqn.params):
            yield from _python_in(nested)


def _write_side(treedef: Any, weak: Sequence[bool], specs: Sequence[PartitionSpec | None]) -> Any:
    keys = [None if kind is None else kind.impl for kind in key_types(treedef)]
    written = write_tree(users_treedef(treedef))
    return {"tree": written, "keys": keys, "weak": list(weak), "specs": [write_spec(s) for s in specs]}


def write_spec(spec: PartitionSpec | None) -> Any:
    if spec is None:
        return None
    return [list(map(_write_entry, spec)), sorted(spec.unreduced), sorted(spec.reduced)]


def _write_entry(entry: Any) -> Any:
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return entry and "?"
    return [str(axis) for axis in (entry if isinstance(entry, tuple) else (entry,))]


def read(blob: bytes | bytearray) -> tuple[str, tuple[str, ...], tuple[DisabledSafetyCheck, ...], Code, bytes | None]:
    """What `write` was given. ValueError for other bytes, other versions, and containers of which nothing is known here."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(bytes(blob)))
        header = json.loads(archive.read("header.json"))
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"deserialize: these bytes are not what Exported.serialize of meshjit gives: {error}") from None
    _check_version(header)
    try:
        program = parse_program(archive.read("program.txt").decode())
        arrays = tuple(_read_array(archive.read(f"array {i}"), *kind) for i, kind in enumerate(header["arrays"]))
    except (zipfile.BadZipFile, KeyError, ParseError) as error:
        who = f"{header['name']}, written by meshjit {header['meshjit']},"
        raise ValueError(f"deserialize: {who} cannot be read: {error}") from None
    inputs, outputs = header["in"], header["out"]
    mesh = header["mesh"] and AbstractMesh(tuple(header["mesh"][1]), tuple(header["mesh"][0]))
    weak, specs = ([tuple(side["weak"]) for side in (inputs, outputs)], [_read_specs(side) for side in (inputs, outputs)])
    trees = _read_tree(inputs), _read_tree(outputs)
    code = Code(program, arrays, trees[0], trees[1], weak[0], weak[1], mesh, specs[0], specs[1])
    vjp = archive.read("vjp") if "vjp" in archive.namelist() else None
    return header["name"], tuple(header["platforms"]), tuple(map(DisabledSafetyCheck, header["checks"])), code, vjp


def _check_version(header: Any) -> None:
    low, high = minimum_supported_calling_convention_version, maximum_supported_calling_convention_version
    if not low <= header["version"] <= high:
        raise ValueError(
            f"deserialize: {header['name']} was written by meshjit {header['meshjit']} in version {header['version']};"
            f" read are {low} to {high}\n  fix: write it again with meshjit {__version__}"
        )


def _read_array(raw: bytes, dtype: str, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    kind = next(kind for kind in DTYPES.values() if kind.name == dtype)
    return np.frombuffer(raw, kind).reshape(shape)


def _read_tree(side: Any) -> Any:
    """The treedef of WORDS."""
    users = read_tree(side["tree"])
    kinds = [None if impl is None else IMPLEMENTATIONS[impl] for impl in side["keys"]]
    leaves = [0 if kind is None else PRNGKeyArray(kind, 0) for kind in kinds]
    return tree.structure(without_float0(users.unflatten(leaves)))


def _read_specs(side: Any) -> tuple[PartitionSpec | None, ...]:
    return tuple(map(read_spec, side["specs"]))


def read_spec(written: Any) -> PartitionSpec | None:
    if written is None:
        return None
    entries, unreduced, reduced = written
    return PartitionSpec(
        *(PartitionSpec.UNCONSTRAINED if e == "?" else e and tuple(e) for e in entries), unreduced=unreduced, reduced=reduced
    )
