"""Arrays by the shapes of others, functions that stand for one op, and names for annotations, as `jax.lax` has them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from meshjit.api import jit
from meshjit.lax.convolution import ConvDimensionNumbers
from meshjit.numpy.creation import zeros
from meshjit.numpy.promote import broadcast_to, lifted, shape_of

DotDimensionNumbers: TypeAlias = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]
ConvGeneralDilatedDimensionNumbers: TypeAlias = tuple[str, str, str] | ConvDimensionNumbers | None
PrecisionLike: TypeAlias = Any  # a word, a lax.Precision, or a pair of either


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """`arr` spread to the shape of `like_arr`, by NumPy's rules."""
    return lifted(broadcast_to(arr, shape_of(like_arr)))


def empty(shape: Sequence[int], dtype: Any, *, out_sharding: Any = None) -> Any:
    """Zeros: nothing is left as it was."""
    return zeros(shape, dtype, device=out_sharding)


def shape_as_value(shape: Sequence[int]) -> Any:
    """The extents, which are known, as a vector of i32 of NumPy. TypeError for what is no integer."""
    return np.array([operator.index(n) for n in shape], np.int32)


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """`decomposition` as one op `name`: of arguments by place and attributes by keyword, the latter no tracers. XLA's backends
    know no such names, so that name and version are not written to programs."""
    del version

    @functools.wraps(decomposition)
    def called(*args: Any, **attributes: Any) -> Any:
        body = functools.partial(decomposition, **attributes)
        return jit(functools.update_wrapper(lambda *args: body(*args), decomposition, updated=()))(*args)

    called.__name__ = str(name)
    return called
