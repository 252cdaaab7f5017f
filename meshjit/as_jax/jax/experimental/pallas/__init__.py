"""`jax.experimental.pallas`: names that libraries import beside what does the same without. meshjit runs no such kernels."""

from __future__ import annotations

from typing import Any, NoReturn

from meshjit.missing import explain as _explain


class BlockSpec:
    """How an operand is cut into blocks. Refused, as all that describes or runs kernels."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("BlockSpec")


class GridSpec:
    """The grid of a kernel and the blocks of its operands. Refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("GridSpec")


def pallas_call(*_: Any, **__: Any) -> NoReturn:
    """Refused."""
    refuse("pallas_call")


def program_id(axis: int) -> NoReturn:
    """Refused."""
    refuse("program_id")


def num_programs(axis: int) -> NoReturn:
    """Refused."""
    refuse("num_programs")


def refuse(name: str) -> NoReturn:
    """NotImplementedError for a name of this package."""
    raise NotImplementedError(
        f"jax.experimental.pallas.{name}: there are no kernels of users' own\n"
        "  fix: write it with jax.numpy and jax.lax, which XLA compiles, or call a kernel of another compiler by jax.ffi"
    )


_explain(__name__)
