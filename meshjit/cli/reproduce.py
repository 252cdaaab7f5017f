"""`meshjit reproduce file.txt`: what an InternalError's file holds, done again.

The file may be another's, so it is data alone: nothing in it is run as Python, options that would have XLA read or write files
are left out, and sizes that this machine cannot have end in one line.
"""

from __future__ import annotations

import ast
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from meshjit.config import config
from meshjit.core.parser import parse_program
from meshjit.plan.make import Annotations
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.lowering import lower
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec

LARGEST_FILE = 2**31  # bytes; constants are in it as text
MOST_DEVICES = 2048  # the CPU devices that XLA gives one process
_PATH_NAME = re.compile(r"dump|_(path|file|dir|directory|folder|cache|to|from)(_|$)")


class UnusableFileError(Exception):
    """A file that cannot be done again. The text says why, in a line."""


def reproduce(path: str) -> int:
    """Plan and partition, or compile, what the file holds. Prints what happens; 1 if it fails again, 2 if it cannot be done."""
    try:
        sections = _checked(sections_of(_read(path)))
    except UnusableFileError as error:
        print(f"meshjit reproduce: {path} {error}", file=sys.stderr)
        return 2
    try:
        if "input specs" in sections:
            _partition(sections)
        else:
            _compile(sections)
    except Exception as error:
        print(f"it fails: {type(error).__name__}: {error}")
        return 1
    print("it does not fail here")
    return 0


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UnusableFileError(f"cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST_FILE:
        raise UnusableFileError(f"has more than {LARGEST_FILE} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnusableFileError("is not text, so no InternalError has written it") from None


def _checked(sections: dict[str, str]) -> dict[str, str]:
    """The sections, if they are those of an InternalError's file and of sizes that this machine can have."""
    needed = ("mesh", "input specs", "output specs", "program") if "program" in sections else ("mesh", "options", "stablehlo")
    if missing := [title for title in needed if title not in sections]:
        raise UnusableFileError(f"has no section {missing[0]!r}, so no InternalError has written it, or not all of it is there")
    count = math.prod(mesh_axes(sections["mesh"]).values())
    if count > MOST_DEVICES:
        raise UnusableFileError(f"has a mesh of {count} devices, and at most {MOST_DEVICES} are made here")
    total, memory = 0, _memory()
    for size, text in constant_sizes(sections):
        total += size
        if total > memory:
            raise UnusableFileError(f"has constants of {total:.3g} bytes, {text} among them, and this machine has {memory:.3g}")
    return sections


def constant_sizes(sections: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The bytes of every constant, with its text: of the Program, or of what XLA is given (there without those of long text)."""
    program, module = sections.get("program", ""), sections.get("stablehlo", "")
    for match in re.finditer(r"\b(?:splat|array)\(([a-z]+)(\d+)\w*\[([\d, ]*)\]", program):
        yield _bytes(match[2], re.findall(r"\d+", match[3])), match[0] + ", ...)"
    for match in re.finditer(r"dense<[^<>]{0,99}> : tensor<((?:\d+x)*)(complex<)?[a-z]+(\d+)[^>]*>", module):
        yield _bytes(match[3], match[1].split("x")) * (2 if match[2] else 1), match[0].partition(" : ")[2]


def _bytes(bits: str, extents: list[str]) -> int:
    return math.prod(int(n) for n in extents if n) * max(1, int(bits) // 8)


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**34


def sections_of(text: str) -> dict[str, str]:
    """title → text. What stands before the first title is for people."""
    parts = re.split(r"^=== (.+) ===\n", text, flags=re.MULTILINE)
    return {title: body.strip("\n") for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def mesh_axes(text: str) -> dict[str, int]:
    """`Mesh('x': 4, 'y': 2)` → {"x": 4, "y": 2}."""
    return {name: int(size) for name, size in re.findall(r"'(\w+)': (\d{1,18})", text)}


def spec_of_line(line: str) -> PartitionSpec | None:
    """`P('x', None)` or `free`."""
    if line == "free":
        return None
    inside = re.sub(r"\bUNCONSTRAINED\b", "...", line[len("P(") : -len(")")])
    entries = ast.literal_eval(f"({inside},)") if inside else ()
    return PartitionSpec(*(PartitionSpec.UNCONSTRAINED if e is ... else e for e in entries))


def options_of(text: str) -> tuple[dict[str, Any], list[str]]:
    """XLA's options, and the names of those that are left out because they have XLA read or write files."""
    options: dict[str, Any] = {}
    dropped: list[str] = []
    for line in text.splitlines():
        name, equals, value = line.partition(" = ")
        if equals and _is_path(name, parsed := ast.literal_eval(value)):
            dropped.append(name)
        elif equals:
            options[name] = parsed
    return options, dropped


def _is_path(name: str, value: Any) -> bool:
    if "dump" in name:
        return True
    return isinstance(value, str) and (bool(_PATH_NAME.search(name)) or any(mark in value for mark in "/\\~"))


def _partition(sections: Mapping[str, str]) -> None:
    axes = mesh_axes(sections["mesh"])
    inputs, outputs = (
        [spec_of_line(line) for line in sections[f"{end} specs"].splitlines() if line != "none"]
        for end in ("input", "output")
    )
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes))
    platform, _, model = sections.get("target", "cpu").partition(" ")
    target = target_of(mesh, (platform,), _jaxlib.KERNELS, model)
    lower(parse_program(sections["program"]), mesh, Annotations(inputs, outputs), target=target)


def _compile(sections: Mapping[str, str]) -> None:
    options, dropped = options_of(sections["options"])
    if dropped:
        print(f"left out, because they have XLA read or write files: {', '.join(dropped)}")
    count = math.prod(mesh_axes(sections["mesh"]).values())
    if count > config.num_cpu_devices:
        config.update("num_cpu_devices", count)
    devices = client.devices()[:count]
    _jaxlib.compile(devices[0].client, sections["stablehlo"], devices, options)
