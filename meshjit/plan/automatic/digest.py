"""A digest of what a plan depends on, the same in every process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from meshjit.core.printer import print_value
from sharding.spec import PartitionSpec


def digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([_plain(part) for part in parts]).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON, in one order; of what is no data, such as kernels that an installed jaxlib has, its kind."""
    if isinstance(value, Mapping):
        return sorted([[_plain(key), _plain(each)] for key, each in value.items()], key=str)
    if isinstance(value, frozenset):
        return sorted(map(_plain, value), key=str)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, PartitionSpec):
        return print_value(value)
    return [_plain(each) for each in value] if isinstance(value, Sequence) else type(value).__name__
