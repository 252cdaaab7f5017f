"""Extents with a name: `jit(abstracted_axes=...)` calls dims by symbols, and printed Programs show them."""

from __future__ import annotations


class NamedExtent(int):
    """An int that remembers what it is called: 8 as `n` prints in types as `n=8`, and is 8 everywhere else."""

    name: str

    def __new__(cls, extent: int, name: str) -> NamedExtent:
        instance = super().__new__(cls, extent)
        instance.name = name
        return instance

    def __reduce__(self) -> tuple[type[NamedExtent], tuple[int, str]]:
        return (NamedExtent, (int(self), self.name))


def extent_text(extent: int) -> str:
    """`n=8` for a named extent, else `8`."""
    return f"{extent.name}={int(extent)}" if isinstance(extent, NamedExtent) else str(int(extent))


def parse_extent(text: str) -> int:
    """The inverse of extent_text; ValueError for other text."""
    name, _, digits = text.strip().rpartition("=")
    if not digits.isdecimal() or (name and not name.isidentifier()) or text.strip().startswith("="):
        raise ValueError(f"not an extent: {text!r}; write one such as 8 or n=8")
    return NamedExtent(int(digits), name) if name else int(digits)
