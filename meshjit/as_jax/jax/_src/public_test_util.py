"""`jax._src.public_test_util`: comparisons with JAX's tolerances, which libraries' tests import."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.missing import explain as _explain
from meshjit.tree_util import tree_map

_TOLERANCES = {1: 0.0, 2: 1e-2, 4: 1e-6, 8: 1e-15}  # by bytes of a real number


def check_close(xs: Any, ys: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """AssertionError where two trees of arrays are not nearly equal, by tolerances of the less exact of two dtypes.

    atol, rtol: numbers, or dicts of them by dtype.
    """
    tree_map(lambda x, y: _check_leaf(np.asarray(x), np.asarray(y), atol, rtol, err_msg), xs, ys)


def _check_leaf(x: Any, y: Any, atol: Any, rtol: Any, err_msg: str) -> None:
    atol, rtol = (max(tolerance(x.dtype, given), tolerance(y.dtype, given)) for given in (atol, rtol))
    wide = [a.astype(np.promote_types(a.dtype, np.float32)) for a in (x, y)]
    np.testing.assert_allclose(*wide, rtol=rtol * y.size, atol=atol * x.size, err_msg=err_msg)


def tolerance(dtype: Any, tol: Any = None) -> float:
    """What is given, for this dtype; where nothing is, JAX's."""
    given = {} if tol is None else tol if isinstance(tol, dict) else {dtype: tol}
    own = {np.dtype(name): value for name, value in given.items()}.get(dtype)
    if own is not None:
        return own
    return 0.0 if dtype.kind in "biu" else _TOLERANCES[dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize]


_explain(__name__)
