"""jax.image: values by hand and by properties, derivatives, and that sharded images give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import image
from meshjit.sharding import AxisType, NamedSharding, PartitionSpec as P

METHODS = ("linear", "cubic", "lanczos3", "lanczos5")
PICTURE = np.random.default_rng(0).normal(size=(2, 7, 9, 3)).astype(np.float32)


def test_values_by_hand() -> None:
    row = np.arange(4, dtype=np.float32)
    assert image.resize(row, (8,), "nearest").tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert image.resize(row, (2,), "linear").tolist() == pytest.approx([5 / 7, 16 / 7])  # weights 3, 3, 1 of 7
    assert image.resize(row, (2,), "linear", antialias=False).tolist() == [0.5, 2.5]
    assert image.resize(row, (8,), "bilinear").tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]
    wave = image.resize(np.array([0.0, 0, 1, 0, 0], np.float32), (10,), "cubic")
    assert float(wave[4]) == pytest.approx(0.8671875)  # Keys at 1/4


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(2, 14, 5, 3), (2, 3, 4, 3), (2, 7, 20, 3), (1, 7, 9, 3)])
def test_what_is_constant_stays_so(method: str, shape: tuple[int, ...]) -> None:
    for antialias in (True, False):
        resized = image.resize(np.full_like(PICTURE, 3.0), shape, method, antialias)
        np.testing.assert_allclose(resized, np.full(shape, 3.0), rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_moving_by_whole_elements(method: str) -> None:
    moved = image.scale_and_translate(PICTURE, PICTURE.shape, (1, -2), np.ones(2), np.array([2.0, -1.0]), method)
    expected = np.zeros_like(PICTURE)
    expected[:, 2:, :-1] = PICTURE[:, :-2, 1:]
    np.testing.assert_allclose(moved, expected, atol=1e-5)


def test_scaling_is_resizing() -> None:
    scaled = image.scale_and_translate(PICTURE, (2, 14, 3, 3), (1, 2), np.array([2, 1 / 3]), np.zeros(2), "cubic")
    np.testing.assert_allclose(scaled, image.resize(PICTURE, (2, 14, 3, 3), "cubic"), atol=1e-5)


def test_dtypes_and_empty_images() -> None:
    assert image.resize(np.arange(6).reshape(2, 3), (3, 3), "linear").dtype == np.float32
    assert image.resize(np.arange(6).reshape(2, 3), (4, 6), "nearest").dtype == np.int32
    assert image.resize(mj.numpy.ones((2, 3), "bfloat16"), (4, 3), "cubic").dtype == mj.numpy.bfloat16
    assert image.resize(1j * PICTURE[0, :, :, 0], (4, 4), "linear").dtype == np.complex64
    assert image.resize(PICTURE[:0], (0, 4, 4, 3), image.ResizeMethod.LANCZOS3).shape == (0, 4, 4, 3)
    assert image.resize(PICTURE, (2, 0, 4, 3), "linear").shape == (2, 0, 4, 3)


def test_derivatives() -> None:
    def shrunk(x: Any) -> Any:
        return image.resize(x, (3, 3), "cubic")

    x, step = PICTURE[0, :, :, 0], PICTURE[1, :, :, 0]
    np.testing.assert_allclose(mj.jvp(shrunk, (x,), (step,))[1], shrunk(step), atol=1e-5)
    back = mj.vjp(shrunk, x)[1](np.ones((3, 3), np.float32))[0]
    np.testing.assert_allclose((back * step).sum(), shrunk(step).sum(), atol=1e-4)

    def energy(translation: Any) -> Any:
        return (image.scale_and_translate(x, (5, 5), (0, 1), np.array([0.7, 0.9]), translation, "lanczos3") ** 2).sum()

    at, e = np.array([0.31, 0.57], np.float32), np.array([1e-2, 0], np.float32)
    numeric = (energy(at + e) - energy(at - e)) / 2e-2
    np.testing.assert_allclose(mj.grad(energy)(at)[0], numeric, rtol=3e-2)


@pytest.mark.parametrize("spec", [P("a", "b"), P(None, "a", "b"), P(None, ("a", "b")), P(None, None, None, "b")])
def test_sharded_images(spec: Any) -> None:
    mesh = mj.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    sharded = mj.device_put(PICTURE, NamedSharding(mesh, spec))
    for method in ("nearest", "cubic"):
        smaller = mj.jit(lambda x, method=method: image.resize(x, (2, 3, 13, 3), method))
        np.testing.assert_allclose(smaller(sharded), smaller(PICTURE), atol=1e-5)


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="there is no method 'quadratic'\n  fix: use one of nearest, linear, bilinear"):
        image.resize(PICTURE, PICTURE.shape, "quadratic")
    with pytest.raises(ValueError, match="shape must have length equal to the number of dimensions"):
        image.resize(PICTURE, (3, 3), "linear")
    one, two = np.ones(1), np.ones(2)
    with pytest.raises(ValueError, match="dim 1 is no spatial one, and its extent changes from 7 to 5"):
        image.scale_and_translate(PICTURE, (2, 5, 5, 3), (2,), one, one, "linear")
    with pytest.raises(
        ValueError, match=r"2 spatial dims need as many scales and translations; these have shapes \(1,\) and \(2,\)"
    ):
        image.scale_and_translate(PICTURE, (2, 5, 5, 3), (1, 2), one, two, "linear")
    with pytest.raises(ValueError, match='"nearest" has no weights'):
        image.scale_and_translate(PICTURE, (2, 5, 5, 3), (1, 2), two, two, "nearest")
