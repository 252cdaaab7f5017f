"""`jax.experimental.sparse`: names that libraries import. meshjit has no sparse arrays, so there are no instances."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from meshjit.missing import explain as _explain


class JAXSparse:
    """The base of sparse arrays."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse(type(self).__name__)

    @classmethod
    def fromdense(cls, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        _refuse(cls.__name__)


class BCOO(JAXSparse):
    """Sparse arrays of elements with their indices."""


class BCSR(JAXSparse):
    """Sparse matrices of rows with their indices."""


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """Libraries decorate functions with it that they may never call: a call is refused."""

    @functools.wraps(f)
    def refused(*_: Any, **__: Any) -> NoReturn:
        _refuse("sparsify")

    return refused


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"jax.experimental.sparse.{name}: sparse arrays are not there\n"
        "  fix: keep rows, columns and elements as arrays; A @ x is jax.ops.segment_sum(elements * x[columns], rows, n)"
    )


_explain(__name__)
