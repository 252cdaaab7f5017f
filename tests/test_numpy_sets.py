"""Sets, bits, phases and windows under jit and over shards that differ in extent, against NumPy; and their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax

X = (np.arange(13) * 7 % 5 - 1).astype(np.int32)
Y = np.array([3, 0, 9, 3, 5], np.int32)
PHASES = np.cumsum(np.arange(13, dtype=np.float32))

CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "isin": (lambda x: mnp.isin(x, Y), np.isin(X, Y)),
    "isin by halving": (lambda x: mnp.isin(Y, x, invert=True, method="sort"), np.isin(Y, X, invert=True)),
    "union1d": (lambda x: mnp.union1d(x, Y, size=7), np.union1d(X, Y)),
    "setdiff1d": (lambda x: mnp.setdiff1d(x, Y, size=3), np.setdiff1d(X, Y)),
    "setxor1d": (lambda x: mnp.setxor1d(x, Y, size=5), np.setxor1d(X, Y)),
    "intersect1d": (lambda x: mnp.intersect1d(x, Y, size=2, return_indices=True), np.intersect1d(X, Y, return_indices=True)),
    "packbits": (mnp.packbits, np.packbits(X != 0)),
    "unpackbits": (lambda x: mnp.unpackbits(x.astype(np.uint8), count=90), np.unpackbits(X.astype(np.uint8), count=90)),
    "unwrap": (lambda x: mnp.unwrap(PHASES + 0 * x), np.unwrap(PHASES)),
    "frexp": (mnp.frexp, np.frexp(X)),
    "split": (lambda x: lax.split(x, (5, 8)), (X[:5], X[5:])),
    "tile": (lambda x: lax.tile(x, (3,)), np.tile(X, 3)),
}


@pytest.mark.device
@pytest.mark.parametrize("name", CALLS)
def test_under_jit_and_over_uneven_shards(name: str) -> None:
    function, expected = CALLS[name]
    mesh = mj.make_mesh((8,), ("a",))
    sharded = mj.device_put(X, mj.NamedSharding(mj.make_mesh((1,), ("a",)), mj.P("a")))
    uneven = mj.jit(lambda x: function(lax.with_sharding_constraint(x, mj.NamedSharding(mesh, mj.P("a")))))
    for result in (mj.jit(function)(sharded), uneven(X)):
        for ours, numpys in zip(*(r if isinstance(r, tuple | list) else [r] for r in (result, expected)), strict=True):
            np.testing.assert_allclose(np.asarray(ours), numpys, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: mnp.isin(x, Y, method="hash"), ValueError, "isin: method 'hash' is not one of auto, compare_all"),
        (lambda x: mnp.packbits(x * 0.5), TypeError, "packbits takes integers or booleans, got float32"),
        (lambda x: mnp.packbits(x, bitorder="up"), ValueError, "packbits: bitorder is 'up'"),
        (mnp.unpackbits, TypeError, "unpackbits takes uint8, got int32"),
        (lambda x: mnp.unwrap(x * 1j), ValueError, "unwrap takes real numbers, got complex64"),
        (lambda x: mnp.frexp(x * 1j), TypeError, "frexp takes real numbers, got complex64"),
        (lambda x: mnp.i0(x * 1j), ValueError, "i0 takes real numbers, got complex64"),
        (lambda x: mnp.unique(x[:0], size=2), ValueError, "unique: an empty array has no elements to fill size=2 with"),
        (lambda x: mnp.hanning(-1), TypeError, "shapes hold no negative extents"),
        (lambda x: lax.split(x, (5, 5)), ValueError, r"lax.split: sizes \(5, 5\) have the sum 10, dim 0 of \(13,\) has extent 13"),
        (lambda x: lax.stack([x, x * 0.5]), TypeError, "lax.stack: array 1 is float32, the first int32"),
        (lambda x: lax.tile(x, (1, 2)), TypeError, "lax.tile: 2 numbers for 1 dims"),
        (mj.jit(lambda x: mnp.setxor1d(x, Y)), mj.errors.ConcretizationTypeError, "setxor1d"),
        (mj.jit(lambda x: mnp.intersect1d(x, Y)), mj.errors.ConcretizationTypeError, "intersect1d"),
    ],
)
def test_what_cannot_be_says_so(call: Callable[[Any], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(mnp.asarray(X))


def test_large_beta_does_not_overflow() -> None:
    np.testing.assert_allclose(np.asarray(mnp.kaiser(9, 200.0)), np.kaiser(9, 200.0), rtol=3e-5, atol=1e-30)


def test_slopes_of_phases_mantissas_and_bessel_functions() -> None:
    x = np.array([0.3, -2.5, 40.0], np.float32)
    slopes = mj.grad(lambda x: mnp.sum(mnp.frexp(x)[0] + mnp.unwrap(x)))(x)
    np.testing.assert_allclose(np.asarray(slopes), 1 + 2.0 ** -np.frexp(x)[1], rtol=1e-6)
    near = x.astype(np.float64)[:, None] + [-1e-4, 1e-4]
    rise = np.diff(np.i0(near))[:, 0] / 2e-4
    np.testing.assert_allclose(np.asarray(mj.grad(lambda x: mnp.sum(mnp.i0(x)))(x)), rise, rtol=1e-4)
