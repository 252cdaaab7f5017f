"""`meshjit reproduce file.txt`: what an InternalError's file holds, done again."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sharding.spec import PartitionSpec


def reproduce(path: str) -> int:
    """Plan and partition, or compile, what the file holds. Prints what happens; 1 if it fails again."""
    sections = sections_of(Path(path).read_text())
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


def sections_of(text: str) -> dict[str, str]:
    """title → text."""
    parts = re.split(r"^=== (.+) ===\n", text, flags=re.MULTILINE)
    return {title: body.strip("\n") for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def mesh_axes(text: str) -> dict[str, int]:
    """`Mesh('x': 4, 'y': 2)` → {"x": 4, "y": 2}."""
    return {name: int(size) for name, size in re.findall(r"'(\w+)': (\d+)", text)}


def spec_of_line(line: str) -> PartitionSpec | None:
    """`P('x', None)` or `free`."""
    if line == "free":
        return None
    inside = re.sub(r"\bUNCONSTRAINED\b", "...", line[len("P(") : -len(")")])
    entries = ast.literal_eval(f"({inside},)") if inside else ()
    return PartitionSpec(*(PartitionSpec.UNCONSTRAINED if e is ... else e for e in entries))


def _partition(sections: Mapping[str, str]) -> None:
    from meshjit.core.parser import parse_program
    from meshjit.plan.make import Annotations
    from meshjit.runtime.executable import lower
    from sharding.mesh import AbstractMesh

    axes = mesh_axes(sections["mesh"])
    inputs, outputs = (
        [spec_of_line(line) for line in sections[f"{end} specs"].splitlines() if line != "none"]
        for end in ("input", "output")
    )
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes))
    lower(parse_program(sections["program"]), mesh, Annotations(inputs, outputs))


def _compile(sections: Mapping[str, str]) -> None:
    import math

    from meshjit.config import config
    from meshjit.runtime import _jaxlib, client

    count = math.prod(mesh_axes(sections["mesh"]).values())
    if count > config.num_cpu_devices:
        config.update("num_cpu_devices", count)
    options: dict[str, Any] = {}
    for line in sections["options"].splitlines():
        name, found, value = line.partition(" = ")
        if found:
            options[name] = ast.literal_eval(value)
    devices = client.devices()[:count]
    _jaxlib.compile(devices[0].client, sections["stablehlo"], devices, options)
