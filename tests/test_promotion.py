"""Promotion against JAX's: every pair of dtypes, every dtype with every Python scalar, as JAX 0.10 gives them."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.core.promotion import canonical, dtype_of_python_scalar, promote
from meshjit.core.types import DTYPES, SMALL_FLOATS, SMALL_INTEGERS, short_name

# jnp.promote_types under x64; `-` is an error.
_PAIRS = """
     bool i8 i16 i32 i64 u8 u16 u32 u64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
bool bool i8 i16 i32 i64 u8 u16 u32 u64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
i8 i8 i8 i16 i32 i64 i16 i32 i64 f64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
i16 i16 i16 i16 i32 i64 i16 i32 i64 f64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
i32 i32 i32 i32 i32 i64 i32 i32 i64 f64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
i64 i64 i64 i64 i64 i64 i64 i64 i64 f64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
u8 u8 i16 i16 i32 i64 u8 u16 u32 u64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
u16 u16 i32 i32 i32 i64 u16 u16 u32 u64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
u32 u32 i64 i64 i64 i64 u32 u32 u32 u64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
u64 u64 f64 f64 f64 f64 u64 u64 u64 u64 bf16 f16 f32 f64 c64 c128 f8e4m3fn f8e5m2
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 f32 f64 c64 c128 - -
f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f16 f32 f64 c64 c128 - -
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 c64 c128 - -
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 c128 c128 - -
c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c128 c64 c128 - -
c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 - -
f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn - - - - - - f8e4m3fn -
f8e5m2 f8e5m2 f8e5m2 f8e5m2 f8e5m2 f8e5m2 f8e5m2 f8e5m2 f8e5m2 f8e5m2 - - - - - - - f8e5m2
"""

# An array of the dtype with True, 1, 1.0 and 1j under x64; a star marks a weak result.
_SCALARS = """
bool     bool     i64*     f64*     c128*
i8       i8       i8       f64*     c128*
i16      i16      i16      f64*     c128*
i32      i32      i32      f64*     c128*
i64      i64      i64      f64*     c128*
u8       u8       u8       f64*     c128*
u16      u16      u16      f64*     c128*
u32      u32      u32      f64*     c128*
u64      u64      u64      f64*     c128*
bf16     bf16     bf16     bf16     c64
f16      f16      f16      f16      c64
f32      f32      f32      f32      c64
f64      f64      f64      f64      c128
c64      c64      c64      c64      c64
c128     c128     c128     c128     c128
f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn -
f8e5m2   f8e5m2   f8e5m2   f8e5m2   -
"""

_HEAD, *_ROWS = (line.split() for line in _PAIRS.strip().splitlines())
PAIRS = {(row[0], b): found for row in _ROWS for b, found in zip(_HEAD, row[1:], strict=True)}
_OTHERS = [name for name in (*map(short_name, SMALL_FLOATS), "f8e8m0fnu") if name not in _HEAD]  # as the two in the tables
for _a in _OTHERS:
    PAIRS |= {(_a, _b): "-" for _b in (*_OTHERS, "f8e4m3fn", "f8e5m2")} | {(_b, _a): "-" for _b in ("f8e4m3fn", "f8e5m2")}
    PAIRS |= {pair: PAIRS["f8e5m2", _b].replace("f8e5m2", _a) for _b in _HEAD[:-2] for pair in ((_a, _b), (_b, _a))}
    PAIRS[_a, _a] = _a
    _SCALARS += f"{_a} {_a} {_a} {_a} -\n"
for _a in map(short_name, SMALL_INTEGERS):  # which promote to nothing, and bool to them
    PAIRS |= {pair: "-" for _b in DTYPES for pair in ((_a, _b), (_b, _a))}
    PAIRS |= {pair: _a for pair in ((_a, _a), (_a, "bool"), ("bool", _a))}
    _SCALARS += f"{_a} {_a} {_a} - -\n"
SCALARS = [
    (row[0], scalar, found)
    for row in (line.split() for line in _SCALARS.strip().splitlines())
    for scalar, found in zip((True, 1, 1.0, 1j), row[1:], strict=True)
]


def test_the_table_covers_every_pair_of_dtypes():
    assert set(PAIRS) == set(itertools.product(DTYPES, DTYPES))


@pytest.mark.parametrize("a", DTYPES)
def test_pairs_of_dtypes(a: str):
    for b in DTYPES:
        expected, given = PAIRS[a, b], [(DTYPES[a], False), (DTYPES[b], False)]
        if expected == "-":
            with pytest.raises(TypeError, match="have no common dtype: convert one of them with .astype first"):
                promote(given)
        else:
            assert promote(given)[0] == DTYPES[expected], (a, b)


@pytest.mark.parametrize(("a", "scalar", "expected"), SCALARS)
def test_dtypes_with_python_scalars(a: str, scalar: complex, expected: str):
    given = [(DTYPES[a], False), (dtype_of_python_scalar(scalar), not isinstance(scalar, bool))]
    for infos in (given, given[::-1]):
        if expected == "-":
            with pytest.raises(TypeError, match="have no common dtype"):
                promote(infos)
        else:
            assert promote(infos) == (DTYPES[expected.rstrip("*")], expected.endswith("*"))


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [("i32", 1.0, "f32*"), ("u8", 2, "u8"), ("bool", 1, "i32*"), ("u32", 1j, "c64*"), ("bf16", 1.5, "bf16"), ("f32", 1j, "c64")],
)
def test_without_x64_scalars_have_32_bits(dtype: str, scalar: complex, expected: str):
    weak = canonical(dtype_of_python_scalar(scalar), x64=False)
    assert promote([(DTYPES[dtype], False), (weak, True)]) == (DTYPES[expected.rstrip("*")], expected.endswith("*"))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(1, 1, "i32"), (1, 1.0, "f32"), (1, 1j, "c64"), (1.0, 1.0, "f32"), (1.0, 1j, "c64"), (1j, 1j, "c64")],
)
def test_scalars_among_themselves_stay_weak(a: complex, b: complex, expected: str):
    infos = [(canonical(dtype_of_python_scalar(x), x64=False), True) for x in (a, b)]
    assert promote(infos) == (DTYPES[expected], True)


def test_promotion_is_associative_where_it_is_defined():
    """A least upper bound does not depend on the order, as far as all of it exists."""
    names = ["bool", "i8", "u8", "i32", "u32", "bf16", "f16", "f32", "c64"]
    for a, b, c in itertools.product(names, repeat=3):
        all_at_once = promote([(DTYPES[n], False) for n in (a, b, c)])[0]
        first = promote([(DTYPES[a], False), (DTYPES[b], False)])
        assert promote([first, (DTYPES[c], False)])[0] == all_at_once


@pytest.mark.parametrize(
    ("dtype", "narrow"),
    [("float64", "float32"), ("int64", "int32"), ("uint64", "uint32"), ("complex128", "complex64"), ("int8", "int8")],
)
def test_canonical(dtype: str, narrow: str):
    assert canonical(dtype, x64=False) == np.dtype(narrow)
    assert canonical(dtype, x64=True) == np.dtype(dtype)


@pytest.mark.parametrize("name", ["abs", "floor", "exp2", "reciprocal", "real", "positive", "deg2rad", "sinc", "sign", "round"])
def test_functions_of_python_numbers_adapt_as_the_numbers_do(name: str) -> None:
    half = mnp.ones(2, ml_dtypes.bfloat16)
    function = getattr(mnp, name)
    assert (function(0.5) * half).dtype == ml_dtypes.bfloat16
    assert mj.jit(lambda x: function(0.5) * x)(half).dtype == ml_dtypes.bfloat16


def test_functions_of_two_python_numbers_adapt_and_logarithms_to_a_base_do_not() -> None:
    half = mnp.ones(2, ml_dtypes.bfloat16)
    for found in (mnp.hypot(3.0, 4), mnp.logaddexp(0.5, 1), mnp.copysign(1, -2.0), mnp.clip(0.5, 0, 1), nn.softplus(0.5), nn.mish(1)):
        assert (found * half).dtype == ml_dtypes.bfloat16
    assert not mnp.log2(8.0).weak_type and float(mnp.log2(8.0)) == 3 and not mnp.max(mnp.asarray([0.5])).weak_type


def test_initial_has_the_dtype_of_the_result() -> None:
    small = mnp.ones(1, np.int8)
    assert mnp.max(small, initial=2.5).dtype == np.int8 and int(mnp.max(small, initial=2.5)) == 2
    assert mnp.max(mnp.zeros(2, np.bool_), initial=1).dtype == np.bool_
    assert mnp.prod(mnp.ones(1, ml_dtypes.bfloat16), initial=mnp.float32(2)).dtype == ml_dtypes.bfloat16


def test_logaddexp_keeps_small_differences() -> None:
    """log(1 + exp(-20)) is not log(1); half-precision numbers lose the same way sooner."""
    assert abs(float(nn.softplus(mnp.float32(-20.0))) / 2.0611537e-09 - 1) < 1e-5
    half = float(nn.softplus(mnp.asarray(-2.0, ml_dtypes.bfloat16)))
    assert abs(half / 0.126928 - 1) < 4e-3
    x = mnp.asarray(np.float32([0, 0, np.inf, -np.inf, np.nan, 3]))
    y = mnp.asarray(np.float32([0, -np.inf, np.inf, -np.inf, 1, np.nan]))
    wanted = [np.log(2), 0, np.inf, -np.inf, np.nan, np.nan]
    np.testing.assert_allclose(np.asarray(mnp.logaddexp(x, y)), wanted, rtol=1e-6)
    assert float(mj.grad(nn.softplus)(0.0)) == 0.5 and float(mj.grad(mj.grad(nn.softplus))(0.0)) == 0.25
    assert float(mj.grad(mnp.logaddexp)(1.0, -np.inf)) == 1


# --- lists of NumPy's scalars, and arrays of 64 bits where x64 is off

F16, I8, U8 = np.float16, np.int8, np.uint8


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([0, F16(1)], "float16"), ([F16(1), 1.5], "float16"), ([[0, F16(1)], [2, 3]], "float16"), ((True, F16(1)), "float16"),
        ([F16(1), np.int32(1)], "float16"), ([np.float32(1), F16(1)], "float32"), ([I8(1), 1], "int8"), ([1, I8(1)], "int8"),
        ([I8(1), U8(1)], "int16"), ([U8(1), 2.5], "float32"), ([np.uint64(1), 1], "uint32"), ([F16(1), 1j], "complex64"),
        ([np.zeros(2, F16), [0, 1]], "float16"), ([np.array(1, F16), 2], "float16"), ([np.float64(1), F16(1)], "float32"),
        ([np.bool_(1), 2], "int32"), ([mnp.float16(1), 2.5], "float16"), ([[mnp.int8(1), 1], [2, 3]], "int8"),
        ([mnp.bfloat16(1), 1], "bfloat16"), ([[], []], "float32"), ([1, 2.5], "float32"), ([np.ones(2, I8), np.ones(2, F16)], "float16"),
    ],
)  # fmt: skip
def test_numbers_in_lists_adapt_to_numpys_scalars_and_arrays(given, dtype):
    for made in (mnp.array(given), mnp.asarray(given), mj.jit(lambda: mnp.array(given))()):
        assert made.dtype == mnp.dtype(dtype) and not made.weak_type
    np.testing.assert_array_equal(np.asarray(mnp.array(given, np.float32)), np.array(given, np.complex64).real)


def test_traced_values_in_nested_lists_are_what_numbers_beside_them_adapt_to() -> None:
    made = mj.jit(lambda x: mnp.array([[x, 1], [2, 3]]))(np.int8(4))
    assert made.dtype == np.int8
    np.testing.assert_array_equal(made, [[4, 1], [2, 3]])
    assert mj.jit(lambda x: mnp.array([x, F16(1)]))(1.0).dtype == np.float16


@pytest.mark.parametrize("given", [[U8(1), 300], [U8(1), -1], [np.int32(1), 2**31]])
def test_a_number_that_does_not_fit_the_scalars_beside_it_is_an_error(given):
    with pytest.raises(OverflowError, match="does not fit"):
        mnp.array(given)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_arrays_of_64_bits_keep_them_among_themselves(dtype):
    with mj.enable_x64(True):
        x = mnp.arange(1, 4).astype(dtype)
    large = 2**40 if dtype != "uint64" else 2**63
    with mj.enable_x64(True):
        wide = mnp.array([large, 1, 2], dtype)
    for made in (
        x * x, -x, x + wide, lax.mul(x, x), mnp.add(x, x), mnp.where(x == x, x, x), mnp.concatenate([x, x]), mnp.stack([x, x]),
        mnp.asarray(x), mnp.array(x), mnp.copy(x), mnp.zeros_like(x), mnp.full_like(x, 2), mnp.pad(x, 1), x.at[0].set(1),
        x.at[np.array([0, 1])].add(2), mj.jit(lambda x: x * x)(x), mj.vmap(lambda x: x * x)(x), mnp.reshape(x, (3, 1)),
    ):  # fmt: skip
        assert made.dtype == dtype
    np.testing.assert_array_equal(np.asarray(x + wide), np.array([large + 1, 3, 5], dtype))
    for made in (x * 1.5, x + mnp.ones(3, np.float32)):
        assert made.dtype.itemsize == (8 if dtype == "complex128" else 4)  # promoted, so it is narrow
    assert mnp.sin(x).dtype.itemsize == (16 if dtype == "complex128" else 8)


def test_loops_run_as_python_keep_64_bits() -> None:
    def body(carry, x):
        with mj.enable_x64(True):
            return carry, mnp.asarray(x).astype("int64") + 2**40

    with mj.disable_jit():
        _, stacked = lax.scan(body, 0, mnp.arange(3))
        mapped = lax.map(lambda x: body(0, x)[1], mnp.arange(3))
    for made in (stacked, mapped):
        assert made.dtype == np.int64
        np.testing.assert_array_equal(made, 2**40 + np.arange(3))


def test_conj_of_lax_is_complex() -> None:
    for x in (mnp.ones(2), np.ones(2, np.float32), 1.0, mnp.asarray(1.0)):
        for conj in (lax.conj, mj.jit(lax.conj)):
            assert conj(x).dtype == np.complex64 and conj(x).weak_type == (np.ndim(x) == 0)
            np.testing.assert_array_equal(conj(x), np.ones(np.shape(x)))
    np.testing.assert_array_equal(lax.conj(mnp.array([1 + 2j])), [1 - 2j])
    with mj.enable_x64(True):
        assert lax.conj(mnp.ones(2)).dtype == np.complex128
    assert mnp.conj(mnp.ones(2)).dtype == np.float32
    assert float(mj.grad(lambda x: lax.real(lax.conj(x)))(2.0)) == 1
    for dtype in ("float16", "bfloat16", "int32", "bool"):
        with pytest.raises(TypeError, match=f"conj: complex numbers, f32 and f64 have conjugates, not {dtype}"):
            lax.conj(mnp.ones(2, dtype))


@pytest.mark.device
def test_promotion_may_be_forbidden() -> None:
    i, f = mnp.ones(2, "int32"), mnp.ones(2, "float32")
    fine = [(i, 1, "int32"), (f, 1, "float32"), (f, 1.0, "float32"), (i, i, "int32")]
    wrong = [(i, f), (i, 1.0), (f, 1j), (i, i.astype("int8")), (f, f.astype("bfloat16")), (i > 0, 1), (f, True)]
    with mj.numpy_dtype_promotion("strict"):
        for a, b, dtype in fine:
            assert (a + b).dtype == mnp.result_type(a, b) == dtype
        for a, b in wrong:
            for call in (mnp.multiply, mnp.result_type, mj.jit(mnp.multiply)):
                with pytest.raises(mj.dtypes.TypePromotionError, match="numpy_dtype_promotion='strict' forbids"):
                    call(a, b)
        with mj.numpy_dtype_promotion("standard"):
            assert (i + f).dtype == "float32"


@pytest.mark.device
def test_broadcasting_of_ranks_may_be_mentioned() -> None:
    a, b = mnp.ones(3), mnp.ones((2, 3))
    with mj.numpy_rank_promotion("raise"):
        assert (a + 1).shape == (3,) and (b * mnp.ones((1, 3))).shape == (2, 3)
        with pytest.raises(ValueError, match=r"^shapes \(2, 3\), \(3,\) of different ranks are broadcast, and numpy_rank_promotion is 'raise'"):
            a + b
    with mj.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="of different ranks are broadcast"):
        assert (a + b).shape == (2, 3)


def test_dtypes_of_keys_and_floats_are_of_their_kinds() -> None:
    dtypes, key = mj.dtypes, mj.random.key(0).dtype
    for kind in (dtypes.prng_key, dtypes.extended, np.generic, key):
        assert dtypes.issubdtype(key, kind) and mnp.issubdtype(key, kind)
    assert not dtypes.issubdtype(key, np.floating) and not dtypes.issubdtype(np.float32, dtypes.prng_key)
    assert dtypes.issubdtype(dtypes.bfloat16, np.floating) and dtypes.issubdtype(dtypes.prng_key, dtypes.extended)
    assert dtypes.canonicalize_dtype("float64") == "float32" and dtypes.canonicalize_dtype(key, allow_extended_dtype=True) == key
    with pytest.raises(ValueError, match="is no dtype of numbers"):
        dtypes.canonicalize_dtype(key)
    assert dtypes.result_type(1, np.int8(1), return_weak_type_flag=True) == (np.dtype("int8"), False)
    assert dtypes.result_type(1, return_weak_type_flag=True) == (np.dtype("int32"), True)
    assert dtypes.itemsize_bits("bfloat16") == 16 and dtypes.scalar_type_of(np.int8(1)) is int and dtypes.scalar_type_of(2.0) is float


def test_strict_updates_and_promoted_types():
    x, i = mnp.arange(3.0), mnp.arange(3)
    with mj.numpy_dtype_promotion("strict"):
        for wrong in (lambda: x.at[0].set(i[0]), lambda: x.at[0].add(i[0]), lambda: x.at[0].subtract(np.int32(1)), lambda: i.at[0].set(1.5)):
            with pytest.raises(mj.dtypes.TypePromotionError, match="numpy_dtype_promotion='strict' forbids"):
                wrong()
        with pytest.raises(mj.dtypes.TypePromotionError):
            mnp.promote_types("float32", "int32")
        assert x.at[0].set(1)[0] == x.at[0].set(x[1])[0] == 1 and mnp.promote_types("float32", "float32") == np.float32
    assert x.at[0].set(i[1])[0] == 1 and mnp.promote_types("float32", "int32") == np.float32


@pytest.mark.device
@pytest.mark.parametrize(
    ("base", "exponent", "dtype", "weak", "expected"),
    [
        (2, np.int8(10), "int32", True, 1024),  # was an int8 of 0
        (3, np.uint8(6), "int32", True, 729),
        (np.uint8(20), np.int8(2), "uint8", False, 144),
        (np.array([2, 3], np.int8), np.int32(2), "int8", False, [4, 9]),
        (np.int8(3), np.uint32(2), "int8", False, 9),
        (True, np.int8(3), "int32", False, 1),
        (np.float16(3), np.int32(2), "float16", False, 9),
        (2.0, np.int8(-1), "float32", True, 0.5),
    ],
    ids=str,
)
def test_one_integer_exponent_that_is_known_leaves_the_dtype(base: object, exponent: object, dtype: str, weak: bool, expected: object) -> None:
    known = mnp.asarray(exponent)
    for power in (mnp.power(base, known), mnp.power(base, exponent)):
        assert (power.dtype, power.weak_type, power.tolist()) == (dtype, weak, expected)
    with pytest.raises(TypeError, match="integers .* cannot be raised to the negative power -1"):
        mnp.power(2, mnp.asarray(-1, np.int8))
    traced = mj.jit(lambda x, y: x**y)(np.array([2, 3], np.int8), known)  # promotes both
    assert traced.dtype == mnp.promote_types(np.int8, known.dtype)


@pytest.mark.device
def test_powers_of_numbers_are_not_weak() -> None:
    """As JAX's: a weak number beside int8 would be an int8, and overflow."""
    for function in (lambda n: 2**n, lambda n: n**n, lambda n: mnp.power(n, n), lambda n: mnp.arange(3) ** n):
        power = mj.jit(function)(3)
        assert (power.dtype, power.weak_type) == (np.int32, False)
    assert mj.jit(lambda n: 2**n * mnp.int8(3))(10) == 3072 and mj.jit(lambda n: n**2)(3).weak_type
    integers, booleans = mnp.array([1, 2], np.uint8), mnp.array([True, False])
    assert not (2.5**integers).weak_type and not (2j**integers).weak_type and not (2**booleans).weak_type
    assert (2.5**booleans).weak_type and (integers**2.5).weak_type and mj.jit(lambda x, y: x**y)(2.5, 3).weak_type


def test_what_replaces_nan_is_not_weak() -> None:
    for x in (2.0, float("nan"), mnp.asarray(2.0)):
        assert not mnp.nan_to_num(x).weak_type
    assert mnp.nan_to_num(3).weak_type


X = [5, -7, 100]


@pytest.mark.device
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint32])
def test_the_remainder_of_lax_modulo_zero_is_the_dividend(dtype: Any) -> None:
    """It was 0, which it is for `numpy.fmod`."""
    x = np.array(X).astype(dtype)
    for fun in (mj.lax.rem, mj.jit(mj.lax.rem)):
        assert fun(x, np.array([0, 3, 0], dtype)).tolist() == [x[0], np.fmod(x[1], dtype(3)), x[2]]
    assert mnp.fmod(x, np.zeros_like(x)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("axis", [None, 0])
def test_places_of_distinct_elements_are_of_the_index_dtype(axis: int | None) -> None:
    for x64, dtype in ((True, "int64"), (False, "int32")):
        with mj.enable_x64(x64):
            results = mnp.unique(np.array([1, 1, 2], np.float32), True, True, True, axis=axis)
            assert [r.dtype.name for r in results[1:]] == [dtype] * 3
            assert mnp.unique_inverse(mnp.arange(3)).inverse_indices.dtype == dtype


@pytest.mark.parametrize(
    ("fun", "dtype", "weak"),
    [
        (lambda: mj.nn.relu(np.array([True, False])), "int32", True),  # was a bool
        (lambda: mj.nn.softplus(mnp.array([True, False])), "float32", True),
        (lambda: mj.nn.gelu(1.0), "float32", False),
        (lambda: mj.nn.gelu(1.0, approximate=False), "float32", False),
        (lambda: mnp.choose(0, [1, 2]), "int32", False),
        (lambda: mnp.nextafter(1, 2), "float32", True),
        (lambda: mnp.nextafter(1.0, np.float32(2)), "float32", False),
        (lambda: mj.flatten_util.ravel_pytree([3, 4])[0], "int32", True),
        (lambda: mj.flatten_util.ravel_pytree([3, 4.0])[0], "float32", False),
        (lambda: mj.lax.pow(2.0, mnp.int32(3)), "float32", False),
        (lambda: mj.lax.pow(2.0, 3), "float32", True),
    ],
    ids=range(11),
)
def test_results_are_as_weak_as_those_of_jax(fun: Any, dtype: str, weak: bool) -> None:
    assert (fun().dtype, fun().weak_type) == (dtype, weak)


@pytest.mark.device
@pytest.mark.parametrize(
    "fun",
    [
        lambda x, i: x[i],
        lambda x, i: mnp.take(x, i),
        lambda x, i: x.at[i].get(),
        lambda x, i: x.at[i].set(i),
        lambda x, i: x.at[i].add(1),
        lambda x, i: x.at[1:3].set(i),
        lambda x, i: x.at[::2].set(i),
        lambda x, i: x.at[:].set(5),
        lambda x, i: x.at[i].divide(2),
        lambda x, i: mnp.pad(x, 1),
        lambda x, i: mnp.pad(x, 1, constant_values=(1, 2)),
        lambda x, i: mnp.diag(x),
        lambda x, i: mnp.insert(x, 1, i),
        lambda x, i: mnp.roll(x, i[0]),
        lambda x, i: mnp.fill_diagonal(x.reshape(2, 2), 7, inplace=False),
        lambda x, i: mnp.interp(x, x, x),
    ],
)  # fmt: skip
def test_elements_at_places_are_as_weak_as_the_array(fun: Any) -> None:
    """They were strong for an index array is, so that `full(4, 2.0)[i]` beside bfloat16 came to float32."""
    places = mnp.array([0, 2], np.int32)
    for call in (fun, mj.jit(fun)):
        assert call(mnp.full(4, 2.0), places).weak_type and not call(mnp.ones(4), places).weak_type
        assert (call(mnp.full(4, 2.0), places) + mnp.ones((), mnp.bfloat16)).dtype == mnp.bfloat16


@pytest.mark.device
def test_counts_of_lesser_elements_are_not_weak() -> None:
    assert not mnp.searchsorted(mnp.full(3, 2), 1).weak_type


def test_names_of_pythons_numbers_are_dtypes_like_any_other() -> None:
    """They were objects of their own, without a name, whose limits were those of 32 bits."""
    for name, wide, narrow in (("int_", "int64", "int32"), ("float_", "float64", "float32"), ("complex_", "complex128", "complex64")):
        kind = getattr(mnp, name)
        assert kind is getattr(mnp, wide) and isinstance(kind, type) and kind.__name__ == wide == np.dtype(kind).name
        assert mnp.zeros(2, kind).dtype == kind(1).dtype == mnp.dtype(narrow)
    assert mnp.uint is mnp.uint64 and mnp.bool_.__name__ == "bool"
    assert mnp.iinfo(mnp.int_).max == 2**63 - 1
