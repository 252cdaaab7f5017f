"""Compiled programs as bytes, for the machine that they were compiled for: a line of JSON that says what they are, then XLA's.

    {"meshjit": 1, "program": "5f0c…", "devices": "16 x TPU v5 lite", "jaxlib": "0.10.2", "options": {}, "payload": "91ab…"}

Who reads them traces and lowers the same function there, which takes no devices and little time, and compiles nothing. XLA runs
what it reads: take such bytes only from whom you trust.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshjit.emit.emitter import without_locations
from meshjit.runtime import _jaxlib

FORMAT: Final = 1


def to_bytes(compiled: Any, text: str, devices: Sequence[Any], options: Mapping[str, Any]) -> bytes:
    """ValueError for a program that XLA cannot write down, such as one that calls Python functions."""
    try:
        payload = _jaxlib.serialize(compiled)
    except _jaxlib.XlaError as error:
        raise ValueError(f"XLA cannot serialize it: {error}\n  fix: compile it where it runs") from None
    head = {"meshjit": FORMAT, **_facts(text, devices, options), "payload": hashlib.sha256(payload).hexdigest()}
    return json.dumps(head).encode() + b"\n" + payload


def parted(data: bytes, kind: str, number: int) -> tuple[dict[str, Any] | None, bytes]:
    """The line of JSON that bytes begin with, None where it does not say that they are of this kind and format; and the rest."""
    line, _, rest = data.partition(b"\n")
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    return (head if isinstance(head, dict) and head.get(kind) == number else None), rest


def from_bytes(data: bytes, title: str, text: str | None, devices: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The executable. ValueError, with the first difference, for one of something else. `text`: None where any will do."""
    head, payload = parted(data, "meshjit", FORMAT)
    if head is None:
        raise ValueError(f"{title}: this is no compiled program of format {FORMAT}\n  fix: bytes of Compiled.serialize()")
    for name, here in _facts(text or "", devices, options).items():
        if head.get(name) != here and (name != "program" or text is not None):
            there = head.get(name)
            problem = "it is of another program" if name == "program" else f"its {name}: {there}; here: {here}"
            raise ValueError(f"{title}: the compiled program cannot be loaded: {problem}\n  fix: compile it anew")
    if head["payload"] != hashlib.sha256(payload).hexdigest():
        raise ValueError(f"{title}: the compiled program is damaged\n  fix: copy it again, or compile it anew")
    try:
        return _jaxlib.deserialize(devices[0].client, payload, devices, options)
    except _jaxlib.XlaError as error:
        raise ValueError(f"{title}: the compiled program cannot be loaded: {error}\n  fix: compile it anew") from None


def _facts(text: str, devices: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "jaxlib": _jaxlib.version,
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "options": {name: str(value) for name, value in sorted(options.items())},
        "program": hashlib.sha256(without_locations(text).encode()).hexdigest(),
    }
