"""What wrong calls say: the relation with both numbers and the user's line. Also operators with Python scalars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from tests.numpy_eager import host, numpy_eager

LINE = r"\n  at test_numpy_errors\.py:\d+ \(<lambda>\)"


@pytest.fixture(autouse=True)
def eager(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("device"):
        yield
    else:
        with numpy_eager():
            yield


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    return host(np.ones(shape, dtype))


WRONG: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: ones(2, 3) + ones(4),
        ValueError,
        r"shapes \(2, 3\), \(4,\) do not fit together: extents must be equal or 1, counted from the last dim"
        rf"{LINE}\n  fix: reshape or transpose one of them, for example x\[:, None\]",
    ),
    (lambda: mnp.where(ones(2), ones(3), 1), ValueError, rf"shapes \(2,\), \(3,\), \(\) do not fit together: .*{LINE}.*"),
    (lambda: mnp.broadcast_to(ones(2), (3,)), ValueError, rf"shape \(2,\) cannot be broadcast to \(3,\){LINE}"),
    (lambda: ones(2, 3).reshape(4), ValueError, rf"cannot reshape \(2, 3\) \(6 elements\) to \(4,\){LINE}"),
    (lambda: ones(2, 3).reshape(-1, 4), ValueError, rf"cannot reshape \(2, 3\) \(6 elements\) to \(-1, 4\){LINE}"),
    (lambda: ones(2, 3).reshape(-1, -1), ValueError, rf"cannot reshape \(2, 3\) \(6 elements\) to \(-1, -1\){LINE}"),
    (lambda: ones(0, 3).reshape(0, -1), ValueError, rf"cannot reshape \(0, 3\) \(0 elements\) to \(0, -1\){LINE}"),
    (lambda: mnp.sum(ones(2, 3), axis=2), IndexError, rf"axis 2 is out of range for an array of 2 dims{LINE}"),
    (lambda: ones(2, 3).max(axis=(0, -2)), ValueError, rf"axis \(0, -2\) names a dim twice{LINE}"),
    (lambda: mnp.transpose(ones(2, 3), (0, 0)), (TypeError, ValueError), rf".*\(0, 0\).*{LINE}.*"),
    (lambda: mnp.concatenate([ones(2), ones(2, 3)]), (TypeError, ValueError), rf"concatenate: .*{LINE}"),
    (lambda: mnp.concatenate([]), ValueError, rf"concatenate: needs at least one array{LINE}"),
    (lambda: mnp.stack([ones(2), ones(3)]), (TypeError, ValueError), rf".*{LINE}"),
    (lambda: mnp.squeeze(ones(2, 3), 0), ValueError, rf"squeeze: dim 0 of shape \(2, 3\) has extent 2, not 1{LINE}"),
    (lambda: mnp.split(ones(5), 2), ValueError, rf"split: 5 cannot be divided into 2 equal parts; use array_split{LINE}"),
    (lambda: mnp.max(ones(0, 3)), ValueError, rf"max of an empty array of shape \(0, 3\) has no value; give initial={LINE}"),
    (lambda: mnp.argmax(ones(0)), (TypeError, ValueError), rf"argmax: .*{LINE}"),
    (lambda: mnp.add("a", 1), TypeError, rf"argument is not an array: str 'a'{LINE}\n  fix: pass an array, .*"),
    (lambda: mnp.add(None, 1), TypeError, rf"argument is not an array: NoneType None{LINE}\n  fix: .*"),
    (lambda: mnp.sum(["a"]), TypeError, rf"argument is not an array: of dtype <U1 .*{LINE}\n  fix: .*"),
    (lambda: mnp.asarray([[1, 2], [3]]), (TypeError, ValueError), rf".*{LINE}.*"),
    (lambda: ones(2, dtype=np.int32) ** -1, TypeError, rf"power: integers i32\[2\] cannot be raised to the negative power -1{LINE}.*"),
    (lambda: ones(2, dtype=bool) - ones(2, dtype=bool), TypeError, rf"subtract of two boolean arrays{LINE}\n  fix: .*"),
    (lambda: ones(2) & ones(2), TypeError, rf"and: .*{LINE}"),
    (lambda: ones(2) + 2**40 * ones(2, dtype=np.int32), OverflowError, rf"the integer 1099511627776 does not fit int32{LINE}\n  fix: .*"),
    (lambda: mnp.where(ones(2), 1), ValueError, r"where: give condition, x and y; or condition alone .*"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_texts(call: Any, kind: Any, text: str):
    with pytest.raises(kind) as caught:
        call()
    assert re.fullmatch(text, str(caught.value), re.DOTALL), str(caught.value)


def test_the_same_texts_while_tracing():
    with pytest.raises(ValueError, match=r"shapes \(2,\), \(3,\) do not fit together") as caught:
        mj.eval_shape(lambda x, y: x * y, np.ones(2, np.float32), np.ones(3, np.float32))
    assert "at test_numpy_errors.py:" in str(caught.value)


def test_in_place_operators_make_new_arrays():
    x = y = host([1.0, 2.0])
    x += 1
    x *= 2
    x -= 1
    x /= 2
    x **= 2
    assert np.asarray(x).tolist() == [2.25, 6.25] and np.asarray(y).tolist() == [1, 2]
    i = host([7, 5])
    i //= 2
    i %= 2
    i <<= 3
    i |= 1
    i ^= 8
    i &= 9
    assert np.asarray(i).tolist() == [1, 9] and i.dtype == np.int32
    m = host(np.eye(2, dtype=np.float32))
    m @= m
    assert m.shape == (2, 2)


def test_numpy_on_the_left_gives_way():
    x = host([1.0, 2.0])
    for result in (np.ones(2, np.float32) + x, np.float32(3) * x, np.array(2.0) ** x, np.ones((2, 2), np.float32) @ x):
        assert type(result) is type(x) and result.dtype == np.float32
    assert np.asarray(np.arange(2) < x).tolist() == [True, True]


def test_comparisons_with_strangers():
    x = host([1.0, 2.0])
    assert (x == "a") is False and (x != None) is True  # noqa: E711
    with pytest.raises(TypeError, match="not supported between"):
        x < "a"  # noqa: B015
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "a"
    with pytest.raises(TypeError, match="unsupported operand"):
        x + [1.0, 2.0]


def test_chains_of_comparisons_ask_for_truth():
    x = host(1.0)
    assert 0 < x < 2
    with pytest.raises(mj.errors.TracerBoolConversionError, match="its truth value was asked for at test_numpy_errors.py"):
        mj.eval_shape(lambda x: 0 < x < 2, np.float32(1))


@pytest.mark.parametrize(
    ("scalar", "dtype"), [(2**31 - 1, "int32"), (-(2**31), "int32"), (1.0, "float32"), (True, "bool"), (1j, "complex64")]
)
def test_scalars_get_32_bits(scalar: Any, dtype: str):
    assert mnp.asarray(scalar).dtype == dtype


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**70])
def test_integers_that_do_not_fit(value: int):
    for call in (lambda: mnp.asarray(value), lambda: ones(2, dtype=np.int32) + value, lambda: mnp.full(2, value)):
        with pytest.raises(OverflowError) as caught:
            call()
        assert str(caught.value).startswith(f"the integer {value} does not fit int32\n") and "test_numpy_errors.py" in str(caught.value)


def test_integers_that_fit_where_they_go():
    assert np.asarray(mnp.asarray(2**31, dtype=np.uint32)).tolist() == 2**31
    assert np.asarray(mnp.array([2**31, 1], dtype=np.uint32)).tolist() == [2**31, 1]
    assert np.asarray(mnp.full(2, 2**32 - 1, np.uint32)).tolist() == [2**32 - 1] * 2
    assert mnp.asarray(2.0**40).dtype == np.float32
    for numbers in ([2**31], [[1], [2**70]]):
        with pytest.raises(OverflowError, match=r"a list \[.*\] does not fit int32\n  at test_numpy_errors.py"):
            mnp.asarray(numbers)
    with pytest.raises(OverflowError, match=r"the integer -1 does not fit uint8"):
        mnp.asarray(-1, dtype=np.uint8)
