"""Machines by name, and as a file in TOML: what the devices can do, and how they are connected.

    name = "our cluster"
    like = "h100"                      # what the file does not say is this device's
    shape = "4x8"                      # of the mesh, where nobody says it
    host = 8                           # devices that `link` connects
    network = 25e9                     # bytes a second of one device, beyond its host
    flops = {bfloat16 = 800e12, float32 = 400e12}

The other keys are the fields of `sharding.figures.Figures`. `meshjit plan --calibrate --save FILE` measures and writes one.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import os
import re
import tomllib
import warnings
from collections.abc import Mapping
from typing import Any, Final

from meshjit.core.types import DTYPES
from sharding.cost import COLLECTIVES
from sharding.figures import DEVICES, Figures

SUFFIX: Final = ".toml"
_FIELDS: Final = {field.name: field for field in dataclasses.fields(Figures) if field.name != "kinds"}
_NEEDED: Final = ("platform", "flops", "memory_bandwidth", "memory", "link", "latency")
_TEXTS: Final = ("name", "platform", "source")
_TABLES: Final = ("slowdown", "minor_slowdown")
_DTYPES: Final = tuple(dtype.name for dtype in DTYPES.values())
_PLATFORMS: Final = ("cpu", "gpu", "tpu")
_FLAT: Final = {"v5e": 2, "v6e": 2}  # dims of their torus; other TPUs have three
_TOPOLOGY: Final = re.compile(r"([\w-]+|.+\.toml)(?::(\d+(?:x\d+)*))?")


def figures_named(name: str | Figures) -> Figures:
    """Of a name in DEVICES, or of a file. ValueError for another."""
    return name if isinstance(name, Figures) else topology_named(name)[0]


def topology_named(text: str) -> tuple[Figures, tuple[int, ...] | None]:
    """Of "v5p:4x4x4", "h100", "cluster.toml" or "cluster.toml:4x8": the figures of a device, and the shape of the mesh, if any.
    ValueError for an unknown one, with those that are known; FileNotFoundError for a file that is not there."""
    match = _TOPOLOGY.fullmatch(text)
    if match is not None and match[1].endswith(SUFFIX):
        figures, shape = _read(match[1])
    elif match is not None and match[1].lower() in DEVICES:
        figures, shape = DEVICES[match[1].lower()], None
    else:
        near = difflib.get_close_matches(text.partition(":")[0].lower(), DEVICES, n=1)
        nearest = f"; the nearest is {near[0]}" if near else ""
        raise ValueError(
            f"unknown topology {text!r}{nearest}; known devices are {', '.join(DEVICES)}\n"
            '  fix: a device, a colon and a shape, such as "v5e:4x4" or "h100:4x8"; or a file: "cluster.toml"'
        )
    shape = _shape(match[2]) if match[2] else shape
    if shape is not None and not (0 < len(shape) <= 3 and math.prod(shape)):
        problem = "a shape has one to three dims, none of extent 0"
        raise ValueError(f"unknown topology {text!r}: {problem}\n  fix: such as {match[1]}:4x8")
    if shape is not None:
        _warn_of_dims(text, figures, shape)
    return figures, shape


def _warn_of_dims(text: str, figures: Figures, shape: tuple[int, ...]) -> None:
    """Of a shape that no machine of these devices has: it is planned for as if there were one."""
    if len(shape) <= _FLAT.get(figures.name, len(shape)):
        return
    count = math.prod(shape)
    rows = next(n for n in range(math.isqrt(count), 0, -1) if count % n == 0)
    problem = f"topology {text!r} has {len(shape)} dims, and devices of kind {figures.name} are connected as a torus of two"
    fix = f"{text.partition(':')[0]}:{rows}x{count // rows}"
    warnings.warn(f"{problem}: it is planned for as if there were a third\n  fix: {fix}", stacklevel=3)


def _shape(text: str) -> tuple[int, ...]:
    return tuple([int(size) for size in text.split("x")])


def _read(path: str) -> tuple[Figures, tuple[int, ...] | None]:
    """FileNotFoundError where there is none, ValueError for a folder and the like."""
    whole = os.path.abspath(os.path.expanduser(path))
    try:
        return _read_at(whole, os.stat(whole).st_mtime_ns)
    except FileNotFoundError:
        fix = f"meshjit plan --calibrate --save {path} measures this machine and writes it"
        raise FileNotFoundError(f"there is no file {path}\n  fix: {fix}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}\n  fix: a file of figures, or a device such as h100") from None


@functools.lru_cache(maxsize=32)
def _read_at(path: str, changed: int) -> tuple[Figures, tuple[int, ...] | None]:
    del changed  # a file that was written anew is read anew
    with open(path, "rb") as file:
        try:
            table = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no TOML: {error}\n  fix: lines such as network = 25e9") from None
    return parsed(table, path)


def parsed(table: Mapping[str, Any], path: str) -> tuple[Figures, tuple[int, ...] | None]:
    """What the table of a file says. ValueError names the key that does not fit."""
    values = dict(table)
    shape, like = values.pop("shape", None), values.pop("like", None)
    if shape is not None and not (isinstance(shape, str) and re.fullmatch(r"\d+(x\d+){0,2}", shape)):
        raise ValueError(f'{path}: shape = {shape!r}\n  fix: such as shape = "4x8"')
    if like is not None and (not isinstance(like, str) or like not in DEVICES):
        raise ValueError(f"{path}: like = {like!r}\n  fix: one of {', '.join(DEVICES)}")
    for key, value in values.items():
        if key not in _FIELDS:
            near = difflib.get_close_matches(key, _FIELDS, n=1)
            fix = f"{near[0]}, or one" if near else "one"
            raise ValueError(f"{path}: unknown key {key!r}\n  fix: {fix} of shape, like, {', '.join(_FIELDS)}")
        values[key] = _checked(path, key, value)
    missing = [key for key in _NEEDED if key not in values]
    if like is None and missing:
        fix = 'like = "h100" for the figures of that, or all of them'
        raise ValueError(f"{path} does not say {', '.join(missing)}\n  fix: {fix}")
    values = {"name": os.path.basename(path).removesuffix(SUFFIX), "source": path, "kinds": (), **values}
    figures = Figures(**values) if like is None else dataclasses.replace(DEVICES[like], **values)
    return figures, None if shape is None else _shape(shape)


def _checked(path: str, key: str, value: Any) -> Any:
    if key in _TEXTS:
        fits, fix, result = isinstance(value, str), f'{key} = "…"', value
        if key == "platform":
            fits, fix = value in _PLATFORMS, f"one of {', '.join(_PLATFORMS)}"
    elif key == "overlaps":
        fits, fix = isinstance(value, list) and all(isinstance(v, str) for v in value), 'overlaps = ["all_gather"]'
        result = frozenset(value) if fits else value
    elif key in _TABLES or (key == "flops" and isinstance(value, dict)):
        fits = isinstance(value, dict) and all(_is_rate(v) for v in value.values()) and (bool(value) or key in _TABLES)
        fix, result = f"{key} = {{{'float32 = 20e9' if key == 'flops' else 'all_to_all = 6.3'}}}", value
    elif key in ("host", "wraps"):
        least = 1 if key == "host" else 0
        fits, fix, result = type(value) is int and value >= least, f"{key} = 8", value
    else:
        fits, fix = _is_rate(value), f"{key} = 25e9, a number above 0"
        result = {"float32": value} if key == "flops" else value
    if not fits:
        raise ValueError(f"{path}: {key} = {value!r}\n  fix: {fix}")
    known = _DTYPES if key == "flops" else COLLECTIVES
    names = value if isinstance(value, list | dict) else ()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"{near[0]}, or one" if near else "one"
            kind = "dtype" if key == "flops" else "collective"
            raise ValueError(f"{path}: {key} names {name!r}, which is no {kind}\n  fix: {fix} of {', '.join(known)}")
    return result


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def written(figures: Figures, shape: tuple[int, ...] = ()) -> str:
    """The file that `topology_named` reads these figures from again. Numbers have six digits, keys their order in Figures."""
    lines = [f'shape = "{"x".join(map(str, shape))}"'] if shape else []
    for key in _FIELDS:
        value, default = getattr(figures, key), _FIELDS[key].default
        if value != default and (value or not isinstance(value, Mapping | frozenset)):
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, frozenset):
        return "[" + ", ".join(_toml(each) for each in sorted(value)) + "]"
    return str(value) if isinstance(value, int) else f"{value:.6g}"
