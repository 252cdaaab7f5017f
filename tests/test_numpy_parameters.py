"""Parameters of unusual kinds: numbers of NumPy's where ints are meant, scalars where arrays are, one array where a list is."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.dtypes
import meshjit.numpy as mnp
import meshjit.scipy.linalg
from meshjit import lax, nn, random

pytestmark = pytest.mark.device

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("k", [np.uint8(1), np.int64(1), np.array(1, np.uint8)])
def test_diagonals_are_counted_by_any_integer(k: Any) -> None:
    for name in ("tril", "triu", "diagonal"):
        np.testing.assert_array_equal(getattr(mnp, name)(X, k), getattr(np, name)(X, 1))
    for name in ("tril_indices", "triu_indices"):
        np.testing.assert_array_equal(getattr(mnp, name)(3, k), getattr(np, name)(3, 1))
    np.testing.assert_array_equal(mnp.triu(X, np.uint8(0)), np.triu(X))  # one less than 0 of no sign
    np.testing.assert_array_equal(mnp.tril_indices(1, mnp.uint8(0)), np.tril_indices(1, 0))
    np.testing.assert_array_equal(mnp.eye(3, k=k), np.eye(3, k=1))
    np.testing.assert_array_equal(mnp.linalg.diagonal(X, offset=k), np.diagonal(X, 1))


def test_a_diagonal_between_two_is_an_error() -> None:
    calls = [lambda: mnp.tril(X, 2.0), lambda: mnp.linalg.diagonal(X, offset=2.0), lambda: mnp.tri(2, k=1.5), lambda: mnp.triu_indices(2, 0.5)]
    for call in calls:
        with pytest.raises(TypeError, match=r"the number of a diagonal is an int, got float \d\.\d\n  at test_numpy_parameters\.py"):
            call()


def test_arrays_and_numbers_stand_for_lists_of_them() -> None:
    np.testing.assert_array_equal(mnp.select(mnp.asarray(X > 2), mnp.asarray(X)), np.select(list(X > 2), list(X)))
    np.testing.assert_array_equal(mnp.column_stack([np.float32(2), 3.0]), [[2, 3]])
    assert int(mnp.lexsort(np.array([3, 1]))) == 0 and mnp.lexsort(np.array([3, 1])).shape == ()
    assert [int(i) for i in mnp.unravel_index(np.array(4), 6)] == [4]


def test_scalars_times_arrays_are_of_the_dtype_that_is_preferred() -> None:
    half = mnp.ones(3, "bfloat16")
    for function in (mnp.dot, mnp.inner):
        assert function(half[0], half, preferred_element_type="float32").dtype == np.float32
        assert function(2, half).dtype == half.dtype


def test_weak_types_and_kinds_are_those_of_jax() -> None:
    ints = mnp.ones(1, int)
    assert not mnp.hypot(ints, 0.5).weak_type and mnp.hypot(1.0, 2.0).weak_type
    assert not lax.bitcast_convert_type(mnp.asarray(2), "int32").weak_type
    one = lax.bitcast_convert_type(mnp.float32(1), np.int64)  # which there is not without x64
    assert one.dtype == np.int32 and int(one) == 0x3F800000
    for value in (nn.identity(0), mnp.fft.ifftn(2), lax.tile(-1, ())):
        assert isinstance(value, mnp.ndarray)
    assert type(lax.shape_as_value((2, 3))) is np.ndarray


def test_softplus_of_integers_is_a_float_of_its_own() -> None:
    assert not nn.softplus(np.arange(2)).weak_type and nn.softplus(1.0).weak_type
    assert nn.softplus(np.float16(1)).dtype == np.float16 and nn.softplus(np.arange(2)).dtype == np.float32


def test_students_t_takes_its_shape_from_its_parameter() -> None:
    assert random.t(random.key(0), np.ones((2, 3), np.float32)).shape == (2, 3) and random.t(random.key(0), 2.0).shape == ()


@pytest.mark.parametrize("k", (np.int8(2), np.uint8(0), np.int32(-1)))
def test_a_vector_on_a_diagonal_that_numpy_numbers(k: Any) -> None:
    v = np.arange(3.0, dtype=np.float32)
    np.testing.assert_array_equal(mnp.diag(v, k), np.diag(v, int(k)))
    with pytest.raises(TypeError, match="the number of a diagonal is an int, got float 0.5"):
        mnp.diag(v, 0.5)


FORMS = {
    "NumPy's": lambda: np.array([2, 3]), "an array": lambda: mnp.array([2, 3]), "small": lambda: np.array([2, 3], np.uint8),
    "numbers": lambda: [np.int64(2), mnp.array(3)], "a range": lambda: range(2, 4),
}  # fmt: skip
SHAPED = {
    "broadcast_to": lambda shape: mnp.broadcast_to(np.ones((1, 3)), shape),
    "reshape": lambda shape: mnp.arange(6).reshape(shape),
    "zeros": mnp.zeros,
    "slice": lambda shape: lax.slice(mnp.ones((4, 4)), (0, 0), shape),
    "dynamic_slice": lambda shape: lax.dynamic_slice(mnp.ones((4, 4)), (0, 0), shape),
    "tile": lambda shape: mnp.tile(1.0, shape),
    "normal": lambda shape: random.normal(random.key(0), shape),
    "full_like": lambda shape: mnp.full_like(np.ones(1), 2, shape=shape),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SHAPED)
def test_shapes_are_whatever_holds_integers(name: str, form: str) -> None:
    assert SHAPED[name](FORMS[form]()).shape == (2, 3)
    assert int(mnp.ravel_multi_index((1, 1), [*FORMS[form]()])) == int(mnp.ravel_multi_index((1, 1), FORMS[form]())) == 4
    np.testing.assert_array_equal(mnp.roll(np.eye(4), FORMS[form](), (0, 1)), np.roll(np.eye(4), (2, 3), (0, 1)))


def test_nothing_has_the_shape_of_a_number() -> None:
    assert (mnp.shape(None), mnp.ndim(None), mnp.size(None)) == ((), 0, 1)


def test_numbers_of_numpys_stand_for_ints() -> None:
    one = np.int64(1)
    np.testing.assert_array_equal(mnp.median(X, axis=one), [1, 4])
    np.testing.assert_array_equal(mnp.quantile(X, 0.5, axis=one, keepdims=True), [[1], [4]])
    np.testing.assert_array_equal(mnp.unpackbits(np.array([7], np.uint8), count=np.int64(6)), [0, 0, 0, 0, 0, 1])
    first, second = lax.sort((np.array([2, 1]), np.array([1, 2])), num_keys=one)
    assert (first.tolist(), second.tolist()) == ([1, 2], [2, 1])
    for each in (random.permutation(random.key(0), np.int8(5)), random.choice(random.key(0), np.int8(5), (3,))):
        assert each.dtype == np.int32


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "uint32", "int32", "bool"])
def test_ldexp_takes_exponents_of_any_integers(dtype: str) -> None:
    """Of unsigned ones -127 and 129 were the same."""
    exponents = np.array([0, 1, 3, 127], np.int32).astype(dtype)
    expected = np.ldexp(np.float32(1.5), exponents.astype(np.int32))
    np.testing.assert_array_equal(mnp.ldexp(np.float32(1.5), exponents), expected)
    np.testing.assert_array_equal(mnp.ldexp(np.float32(0), exponents), 0 * expected)


def test_ldexp_of_exponents_beyond_the_dtype() -> None:
    assert float(mnp.ldexp(np.float32(1), np.uint32(2**32 - 1))) == np.inf and float(mnp.ldexp(np.float32(0), np.uint32(2**31))) == 0
    assert float(mnp.ldexp(np.float32(2.0**-149), np.uint8(255))) in (2.0**106, 0.0)  # denormals may be taken for 0


def test_buffers_and_ranges_become_arrays() -> None:
    assert mnp.asarray(range(1, 4)).tolist() == [1, 2, 3] and mnp.array(range(2)).dtype == np.int32
    assert mnp.array(bytearray(b"ab")).tolist() == [97, 98] and mnp.asarray(memoryview(X)).shape == X.shape
    with pytest.raises(TypeError, match="is not an array"):
        mnp.sum(range(3))


def test_the_dtype_of_a_number_that_does_not_fit_is_that_of_its_kind() -> None:
    assert mnp.result_type(2**40) == np.int32 and mnp.result_type(2**40, mnp.float32) == np.float32


def test_known_starts_before_the_first_place_are_clamped_along_one_dim() -> None:
    v = np.arange(5.0, dtype=np.float32)
    assert lax.dynamic_index_in_dim(v, -1, allow_negative_indices=False).tolist() == [0]
    assert lax.dynamic_index_in_dim(v, -1).tolist() == [4]


def test_whole_numbers_of_any_kind_stand_for_ints() -> None:
    two = np.int64(2)
    rows, kernel = np.arange(5, dtype=np.float32).reshape(1, 1, 5), np.ones((1, 1, 2), np.float32)
    assert lax.conv_general_dilated(rows, kernel, (1,), [(0, 0)], rhs_dilation=(two,)).tolist() == [[[2, 4, 6]]]
    assert mnp.roll(X, 1, axis=mnp.int32(1)).tolist() == np.roll(X, 1, 1).tolist()
    assert lax.broadcasted_iota("int32", (2, 3), mnp.int32(1)).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert lax.broadcasted_iota("int32", (2, 3), True).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert float(mj.scipy.linalg.expm(mnp.eye(2), max_squarings=np.uint32(3))[0, 0]) == pytest.approx(np.e)
    assert mnp.bitwise_count(True).dtype == np.uint8 and int(mnp.bitwise_count(True)) == 1
    assert mj.dtypes.scalar_type_of("int8") is int and mj.dtypes.scalar_type_of("bfloat16") is float
    assert mnp.asarray(array.array("f", [1, 2])).tolist() == [1, 2]


def test_numbers_beyond_the_dtypes_choose_branches() -> None:
    for call in (lambda x: lax.switch(2**35, [lambda: x, lambda: x + 2]), lambda x: lax.cond(2**40, lambda: x + 2, lambda: x)):
        assert int(call(1)) == 3 and int(mj.jit(call)(1)) == 3
    assert int(lax.switch(-(2**35), [lambda: 1, lambda: 2])) == 1
