"""An evaluator for ops outside of traces that runs their NumPy meanings: the numpy surface without XLA, in microseconds.

    with numpy_eager():
        y = mnp.exp(host(np.ones(3))) + 1        # y is a Host; np.asarray(y) its elements
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from meshjit.core.types import TensorType, type_of
from meshjit.numpy import install_methods
from meshjit.simulate.evaluate import evaluate
from meshjit.trace import register_concrete, set_eager


class Host:
    """A concrete array that is a NumPy array with a weak flag."""

    __array_priority__ = 100

    def __init__(self, array: Any, weak_type: bool = False) -> None:
        self.array = np.asarray(array)
        self.weak_type = weak_type

    @property
    def type(self) -> TensorType:
        return type_of(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return self.array.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.array, dtype)

    def __bool__(self) -> bool:
        return bool(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __float__(self) -> float:
        return float(self.array)

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        return f"Host({self.array!r}{', weak' if self.weak_type else ''})"

    __hash__ = None  # pyright: ignore[reportAssignmentType]


register_concrete(Host, lambda x: (x.type, x.weak_type))
install_methods(Host)


def _run_op(op: Any, operands: Any, params: Any, weak: bool) -> list[Host]:
    types = op.type_rule(tuple(type_of(np.asarray(x)) for x in operands), params)
    results = op.evaluate(*(np.asarray(x) for x in operands), **params)
    results = results if isinstance(results, tuple) else (results,)
    assert tuple(type_of(np.asarray(r)) for r in results) == types, f"{op.name}: {results} is not of types {types}"
    return [Host(r, weak) for r in results]


def _run_program(program: Any, operands: Any, weak: Any, mesh: Any = None) -> list[Host]:
    results = evaluate(program, [np.asarray(x) for x in operands])
    return [Host(r, w) for r, w in zip(results, weak, strict=True)]


def host(value: Any, dtype: Any = None) -> Host:
    return Host(np.asarray(value, dtype))


@contextmanager
def numpy_eager() -> Iterator[None]:
    """Ops and Programs outside of traces run as NumPy in this block."""
    before = set_eager(_run_op, _run_program)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        set_eager(*before)
