"""Reports as plain data: what `--json` prints. Keys are the fields' names; what only Python can hold is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from meshjit.core.program import Source


def plain(value: Any) -> Any:
    """Dataclasses as dicts of their printed fields, tuples as lists."""
    if isinstance(value, Source):
        return {"file": value.file, "line": value.line, "function": value.function, "note": value.note}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.repr}
        return {name: plain(v) for name, v in named.items()}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
