"""The Array API standard's tables against meshjit.numpy: what does not hold is what docs/array_api.md gives a reason for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from tests.tools.array_api import count, faults, same, signature_faults

DOCUMENT = (Path(__file__).parents[1] / "docs" / "array_api.md").read_text()
EXCUSED = {"d(xp.searchsorted(a([1, 2]), a([1])))", "l(set_item(xp.zeros(2)))"}
ZEROS = [(-0.0, 1.0), (0.0, -1.0), (-3.0, 3.0), (3.0, -3.0), (-3.0, -3.0), (0.0, np.inf), (0.0, -np.inf), (5.0, -3.0), (-2.0, np.inf), (0.0, 0.0)]


@pytest.mark.device
def test_all_holds_that_is_not_excused() -> None:
    with mj.enable_x64(True):
        missing = list(faults(mnp))
    assert {name for name, _ in missing} == EXCUSED, missing
    assert f"{count() - len(missing)} of {count()} hold" in DOCUMENT


def test_the_checks_can_fail() -> None:
    assert signature_faults(lambda x: x, "x, /, *, axis=") == "takes no axis="
    assert signature_faults(lambda x: x, "x1, x2, /") == "takes 1 operands by place, not 2"
    assert signature_faults(lambda x, *, axis: x, "x, /, *, axis=") == "needs axis="
    assert not same(0.0, -0.0) and not same(1.0, True and 2.0) and not same(float("nan"), 0.0) and same(1 / 3, 0.3333333)


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no version '1999.12' of the Array API here\n  fix: '2024.12', or None"):
        mnp.zeros(1).__array_namespace__(api_version="1999.12")


def test_dtypes_follow_x64() -> None:
    info = mnp.__array_namespace_info__()
    assert {"int64", "float64"} & set(info.dtypes()) == set() and str(info.default_dtypes()["integral"]) == "int32"
    with mj.enable_x64(True):
        assert {"int64", "float64", "complex128"} <= set(info.dtypes()) and str(info.default_dtypes()["integral"]) == "int64"
    with pytest.raises(KeyError, match="nope"):
        info.dtypes(kind="nope")


def test_floor_divide_keeps_the_sign_of_zero_where_sharded() -> None:
    mesh = mj.make_mesh((4,), ("x",))
    x = mj.device_put(mnp.array([-0.0, 0.0, 0.25, -0.0, 0.0]), mj.NamedSharding(mesh, mj.P("x")))
    y = mnp.array([1.0, -1.0, 1.0, -1.0, 1.0])
    result = mj.jit(mnp.floor_divide)(x, y)
    assert mnp.signbit(result).tolist() == [True, True, False, False, False] and result.tolist() == [0.0] * 5


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_remainder_that_is_zero_has_the_sign_of_the_divisor(dtype: str) -> None:
    x, y = (mnp.array(values, dtype) for values in zip(*ZEROS, strict=True))
    with np.errstate(invalid="ignore"):
        wanted = np.remainder(*np.array(ZEROS, np.float32).T)
    mesh = mj.make_mesh((4,), ("x",))  # of ten elements, so that the last device holds one
    laid_out = [mj.device_put(z, mj.NamedSharding(mesh, mj.P("x"))) for z in (x, y)]
    for found in (x % y, mj.jit(mnp.remainder)(x, y), divmod(x, y)[1], mj.vmap(mnp.remainder)(x, y), mj.jit(mnp.remainder)(*laid_out)):
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.asarray(found, np.float32), wanted)
        assert (mnp.signbit(found) | mnp.isnan(found)).tolist() == (np.signbit(wanted) | np.isnan(wanted)).tolist()
    assert str(mj.lax.rem(mnp.float32(-3), mnp.float32(3))) == "-0.0"


@pytest.mark.device
def test_the_sign_of_a_zero_changes_no_derivative_of_a_remainder() -> None:
    for x, y, slopes in [(-0.0, 1.0, (1.0, 0.0)), (-3.0, 3.0, (1.0, 1.0)), (6.0, -3.0, (1.0, 2.0)), (5.0, -3.0, (1.0, 2.0))]:
        x, y = mnp.float32(x), mnp.float32(y)
        assert tuple(map(float, mj.grad(mnp.remainder, (0, 1))(x, y))) == slopes
        assert float(mj.jvp(mnp.remainder, (x, y), (mnp.float32(1), mnp.float32(0)))[1]) == slopes[0]
        assert float(mj.grad(lambda x: mj.grad(lambda x: mnp.remainder(x, y) ** 2)(x))(x)) == 2.0  # noqa: B023


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_sign_of_zeros_is_zero(dtype: str) -> None:
    x = mnp.array([-0.0, 0.0, 2.0, -3.0, np.nan, -np.inf], dtype)
    for found in (mnp.sign(x), mj.jit(mnp.sign)(x), mj.vmap(mnp.sign)(x)):
        assert [str(value) for value in found.tolist()] == ["0.0", "0.0", "1.0", "-1.0", "nan", "-1.0"] and found.dtype == dtype
    assert mj.grad(lambda x: mnp.sign(x).sum())(x).tolist() == [0.0] * 6
    assert str(float(mj.lax.sign(x)[0])) == "-0.0"
    assert mnp.sign(-0.0).weak_type and mnp.sign(-3).tolist() == -1 and mnp.sign(np.uint8(3)).dtype == np.uint8


@pytest.mark.device
def test_the_sign_of_complex_zeros_is_zero_and_that_of_nan_is_nan() -> None:
    x = np.array([complex(-0.0, -0.0), complex(-0.0, 0.0), complex(0.0, -0.0), 3 - 4j, complex(np.nan, 1), complex(0, np.nan)], np.complex64)
    for found in (mnp.sign(x), mj.jit(mnp.sign)(x)):
        assert [str(value) for value in found.tolist()[:3]] == ["0j"] * 3 and abs(found[3] - (0.6 - 0.8j)) < 1e-6
        assert all(math.isnan(part) for value in found.tolist()[4:] for part in (value.real, value.imag))


@pytest.mark.device
@pytest.mark.parametrize("k", [2**31, 2**63, 2**70, -(2**31), -(2**63), -(2**70)])
def test_diagonals_may_lie_as_far_away_as_they_like(k: int) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    near = max(min(k, 5), -5)
    for name in ("tril", "triu", "diagonal", "trace"):
        function, wanted = getattr(mnp, name), getattr(np, name)(x, near)
        np.testing.assert_array_equal(function(x, k), wanted)
        np.testing.assert_array_equal(mj.jit(function, static_argnums=1)(x, k), wanted)
    for name in ("eye", "tri"):
        np.testing.assert_array_equal(getattr(mnp, name)(2, 3, k), getattr(np, name)(2, 3, near))
    for name in ("tril_indices", "triu_indices"):
        np.testing.assert_array_equal(getattr(mnp, name)(2, k, 3), getattr(np, name)(2, near, 3))
    for axis in (None, 0, (1,)):
        extent = 6 if axis is None else 2 if axis == 0 else 3
        np.testing.assert_array_equal(mnp.roll(x, k, axis), np.roll(x, k % extent, axis))
