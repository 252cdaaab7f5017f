"""`jax._src.numpy.util`: arguments in their common dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.as_jax.jax._src.dtypes import to_complex_dtype
from meshjit.missing import explain as _explain
from meshjit.numpy.promote import cast, lifted, promoted


def promote_dtypes(*args: Any) -> list[Any]:
    """The arguments as arrays of the dtype that they promote to."""
    return [lifted(x) for x in promoted(*args)[0]]


def promote_dtypes_inexact(*args: Any) -> list[Any]:
    """The same; integers and bools become floats."""
    return [lifted(x) for x in promoted(*args, inexact=True)[0]]


def promote_dtypes_numeric(*args: Any) -> list[Any]:
    """The same; bools become integers."""
    arrays = promote_dtypes(*args)
    return [cast(x, np.int64) for x in arrays] if arrays and arrays[0].dtype == np.bool_ else arrays


def promote_dtypes_complex(*args: Any) -> list[Any]:
    """The same; all become complex numbers."""
    arrays, weak = promoted(*args)
    return [lifted(cast(x, to_complex_dtype(x.dtype), weak)) for x in arrays]


_explain(__name__)
