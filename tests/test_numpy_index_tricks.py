"""mgrid, ogrid, r_, c_, s_, index_exp and ix_ give what NumPy's give, in the dtypes of JAX."""

from __future__ import annotations

import numpy as np
import pytest

import meshjit.numpy as mnp
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

CALLS = """mgrid[0:3, 0:2]; mgrid[1:4:2, 0:1:3j]; mgrid[:4]; mgrid[0:1:5j]; ogrid[0:3, 0:2]; ogrid[:2, 0.:1., 0:4:2]; r_[1, 2, 3];
r_[np.array([1, 2]), 0, np.array([4., 5.])]; r_[-1:1:6j, [0] * 3, 5]; r_['-1', np.ones((2, 3)), np.zeros((2, 1))];
r_['0,2', [1, 2, 3], [4, 5, 6]]; r_['0,2,0', [1, 2, 3], [4, 5, 6]]; r_['1,2,0', [1, 2, 3], [4, 5, 6]]; r_[0:3, 5:8:2];
r_['0,3', [1, 2], [[3, 4]]]; r_['0,3,1', [1, 2], [3, 4]]; c_[[1, 2, 3], [4, 5, 6]]; c_[[[1, 2, 3]], 0, 0, [[4, 5, 6]]]; c_[1, 2];
ix_([0, 1], [2, 4]); ix_([True, False, True], [2]); s_[1:2, ...]; index_exp[1:2]"""


@pytest.mark.parametrize("call", [c.strip() for c in CALLS.split(";")])
def test_is_that_of_numpy(call: str) -> None:
    ours, theirs = eval(f"mnp.{call}"), eval(f"np.{call}")
    if call.startswith(("s_", "index_exp")):
        assert ours == theirs
        return
    for x, y in zip(*([v] if not isinstance(v, list | tuple) else v for v in (ours, theirs)), strict=True):
        assert x.dtype == {"f": np.float32, "i": np.int32}[y.dtype.kind]
        np.testing.assert_allclose(host(x), y, rtol=1e-6)


def test_letters_make_rows_and_columns() -> None:
    assert np.asarray(mnp.r_["r", [1, 2], [3]]).tolist() == [[1, 2, 3]]
    assert np.asarray(mnp.r_["c", [1, 2], [3]]).tolist() == [[1], [2], [3]]  # as in JAX, which has no np.matrix


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        ("r_['a', 1]", ValueError, "'a' is no directive"),
        ("r_[1, '0']", ValueError, "a string must stand first"),
        ("mgrid[1, 2:3]", TypeError, "take slices here, not int"),
        ("ix_([[1]])", ValueError, r"argument 0 has shape \(1, 1\), not one dim"),
    ],
)
def test_refuses(call: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        eval(f"mnp.{call}")
