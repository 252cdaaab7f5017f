"""What the Array API standard asks a namespace about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.runtime import client

VERSION = "2024.12"
KINDS: Mapping[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


class ArrayNamespaceInfo:
    """https://data-apis.org/array-api/2024.12/API_specification/inspection.html"""

    def capabilities(self) -> dict[str, Any]:
        """A traced function has no arrays whose shape depends on values: no boolean indexing, no `unique_values`."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None: where an array without a device is made depends on `meshjit.default_device` and on what it is used with."""

    def devices(self) -> list[Any]:
        """All devices of all processes, and None, which leaves the choice open."""
        return [None, *client.devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of arrays made without one; 32 or 64 bits as `enable_x64` says."""
        wide = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}
        return {kind: canonical(np.dtype(name), config.enable_x64) for kind, name in wide.items()}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes of a kind, of several, or all. KeyError for what is no kind."""
        kinds = tuple(KINDS) if kind is None else kind if isinstance(kind, tuple) else GROUPS.get(kind, (kind,))
        if isinstance(kind, tuple):
            return {name: dtype for each in kinds for name, dtype in self.dtypes(kind=each).items()}
        dtypes = {name: np.dtype(name) for each in kinds for name in KINDS[each]}
        return {name: dtype for name, dtype in dtypes.items() if canonical(dtype, config.enable_x64) == dtype}


def __array_namespace_info__() -> ArrayNamespaceInfo:  # noqa: N807
    """What this namespace can do, on which devices, with which dtypes (Array API standard)."""
    return ArrayNamespaceInfo()
