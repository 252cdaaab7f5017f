"""`numpy.vectorize` beside NumPy's; save and load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp

pytestmark = pytest.mark.device


def product(m: Any, v: Any) -> Any:
    return m @ v


@pytest.mark.parametrize(("m", "v"), [((2, 3), (3,)), ((5, 2, 3), (3,)), ((5, 1, 2, 3), (4, 3)), ((1, 2, 3), (1, 1, 3))])
def test_a_signature_over_leading_dims(m: tuple[int, ...], v: tuple[int, ...]) -> None:
    a, b = np.arange(np.prod(m, dtype=int), dtype=np.float32).reshape(m), np.arange(np.prod(v, dtype=int), dtype=np.float32).reshape(v)
    expected = np.vectorize(product, signature="(n,m),(m)->(n)")(a, b)
    ours = mnp.vectorize(product, signature="(n,m),(m)->(n)")
    for f in (ours, mj.jit(ours)):
        assert f(a, b).shape == expected.shape and np.array_equal(f(a, b), expected)
    assert np.array_equal(mj.vmap(ours)(np.stack([a, a]), np.stack([b, b])), np.stack([expected, expected]))


def test_no_positions_at_all() -> None:
    assert mnp.vectorize(product, signature="(n,m),(m)->(n)")(np.ones((0, 2, 3)), np.ones(3)).shape == (0, 2)


def test_scalars_several_results_and_what_is_excluded() -> None:
    x, y = np.arange(3), np.arange(4)[:, None]
    assert np.array_equal(mnp.vectorize(lambda a, b: a + 2 * b)(x, y), x + 2 * y)
    assert mnp.vectorize(lambda a: mnp.stack([a, a]))(x).shape == (3, 2)
    pair = mnp.vectorize(lambda a: (a, 2 * a), signature="()->(),()")(x)
    assert isinstance(pair, tuple) and np.array_equal(pair[1], 2 * x)
    assert np.array_equal(mnp.vectorize(lambda a, word: a * len(word), excluded={1})(x, "abc"), 3 * x)
    assert np.array_equal(mnp.vectorize(lambda a, *, n: a * n)(x, n=3), 3 * x)
    default = mnp.vectorize(lambda a, n=None: a if n is None else a * n, signature="(k),()->(k)")
    assert np.array_equal(default(x, None), x) and np.array_equal(default(x, 2), 2 * x)


@pytest.mark.parametrize(
    ("signature", "fun", "args", "error", "text"),
    [
        ("(k->k)", None, (), ValueError, "not a gufunc signature: '(k->k)'"),
        ("(k)->()", lambda a: a, (2,), ValueError, "an argument of shape () has not the dims (k)"),
        ("(k)->()", lambda a: a, (np.ones(3),), ValueError, "a result of shape (3,) has not the dims ()"),
        ("(k)->(k)", lambda a: a[:2], (np.ones(3),), ValueError, "dim k has extents 3 and 2"),
        ("(k),(k)->()", lambda a, b: a @ b, (np.ones(3), np.ones(4)), ValueError, "dim k has extents 3 and 4"),
        ("(k)->()", lambda a, b: a, (np.ones(3), 1), TypeError, "the signature has 1 arguments, got 2"),
        ("(k)->(k)", lambda a: (a, a), (np.ones(3),), TypeError, "the signature has 1 results, the function gave 2"),
        ("(k),(k)->(k)", lambda a, b: a, (np.ones(3), None), ValueError, "argument 1 is None, but the signature names its dims"),
    ],
)  # fmt: skip
def test_what_does_not_fit(signature: str, fun: Any, args: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        mnp.vectorize(fun, signature=signature)(*args)
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
def test_files(tmp_path: Path, dtype: str) -> None:
    x = mnp.ones((2, 3), dtype)
    mnp.save(tmp_path / "x.npy", x)
    loaded = mnp.load(tmp_path / "x.npy")
    assert isinstance(loaded, mj.Array) and loaded.dtype == dtype and np.array_equal(loaded, x)
    mnp.savez(tmp_path / "x.npz", x, y=x[0])
    assert sorted(mnp.load(tmp_path / "x.npz")) == ["arr_0", "y"]
