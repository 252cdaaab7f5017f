"""What wrong calls say: the relation with both numbers and the user's line. Also operators with Python scalars."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

LINE = r"\n  at test_numpy_errors\.py:\d+ \(<lambda>\)"


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    return host(np.ones(shape, dtype))


WRONG: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: ones(2, 3) + ones(4),
        ValueError,
        r"Incompatible shapes for broadcasting: shapes \(2, 3\), \(4,\) do not fit together: "
        r"extents must be equal or 1, counted from the last dim"
        rf"{LINE}\n  fix: reshape or transpose one of them, for example x\[:, None\]",
    ),
    (lambda: mnp.where(ones(2), ones(3), 1), ValueError, rf"Incompatible shapes .* \(2,\), \(3,\), \(\) do not fit together: .*{LINE}.*"),
    (lambda: mnp.broadcast_to(ones(2), (3,)), ValueError, rf"shape \(2,\) cannot be broadcast to \(3,\){LINE}\n  fix: extents of 1 .*"),
    (lambda: ones(2, 3).reshape(4), TypeError,
     rf"cannot reshape \(2, 3\) \(6 elements\) to \(4,\) \(4\){LINE}\n  fix: the products must be equal; -1 .* x.reshape\(-1, 3\)"),
    (lambda: ones(2, 3).reshape(-1, 4), TypeError, rf"cannot reshape \(2, 3\) \(6 elements\) to \(-1, 4\){LINE}\n  fix: .*"),
    (lambda: ones(2, 3).reshape(-1, -1), TypeError,
     rf"cannot reshape \(2, 3\) \(6 elements\) to \(-1, -1\){LINE}\n  fix: at most one extent may be -1"),
    (lambda: ones(0, 3).reshape(0, -1), TypeError, rf"cannot reshape \(0, 3\) \(0 elements\) to \(0, -1\){LINE}\n  fix: .*"),
    (lambda: mnp.sum(ones(2, 3), axis=2), ValueError,
     rf"axis 2 is out of range for an array of 2 dims{LINE}\n  there are: from -2 to 1"),
    (lambda: mnp.sum(ones(2, 3), axis=2), IndexError, r"axis 2 .*"),  # NumPy's AxisError is both
    (lambda: mnp.sum(ones(), axis=0), ValueError, rf"axis 0 is out of range for an array of 0 dims{LINE}\n  there are: none"),
    (lambda: mnp.sum(ones(2, 3), axis=1.0), TypeError, rf"an axis is an int, got float 1.0{LINE}\n  fix: 1; n // 2 .*"),
    (lambda: mnp.sort(ones(2, 3), axis=1.0), TypeError, rf"an axis is an int, got float 1.0{LINE}\n  fix: .*"),
    (lambda: mnp.argmax(ones(2, 3), axis="a"), TypeError, rf"an axis is an int, got str 'a'{LINE}\n  fix: lax.psum.*"),
    (lambda: mnp.zeros((3.0,)), TypeError, rf"shapes hold integers: the shape is float 3.0{LINE}\n  fix: 3; n // 2 .*"),
    (lambda: mnp.zeros((2, "a")), TypeError, rf"shapes hold integers: entry 1 of the shape \(2, 'a'\) is str 'a'{LINE}\n  fix: .*"),
    (lambda: mnp.ones(None), TypeError, rf"a shape is an int or a sequence of ints, got None{LINE}\n  fix: for example \(3, 4\)"),
    (lambda: mnp.zeros((-1, 3)), TypeError,
     rf"shapes hold no negative extents: entry 0 of \(-1, 3\) is -1{LINE}\n  fix: the extent .*; only reshape takes -1, .*"),
    (lambda: ones(2, 3).reshape(3.0, 2), TypeError, rf"shapes hold integers: entry 0 .*{LINE}\n  fix: 3; .*"),
    (lambda: mnp.tile(ones(2), -2), TypeError, rf"shapes hold no negative extents: .* is -2{LINE}\n  fix: an extent of 0 or more"),
    (lambda: mnp.repeat(ones(2), 1.5), TypeError, rf"shapes hold integers: the shape is .*1.5.*{LINE}\n  fix: .*"),
    (lambda: mnp.eye(-1), ValueError, rf"eye: rows must not be negative, it is -1{LINE}\n  fix: 0 or more"),
    (lambda: mnp.linspace(0, 1, -2), ValueError, rf"linspace: num must not be negative, it is -2{LINE}\n  fix: 0 or more"),
    (lambda: mnp.broadcast_shapes((-1,)), TypeError, rf"shapes hold no negative extents: .*{LINE}.*"),
    (lambda: mnp.zeros(3, 4), TypeError, rf"int 4 is no data type{LINE}\n  fix: a shape of several dims is one tuple, such as \(3, 4\)"),
    (lambda: mj.random.normal(mj.random.key(0), 3, 4), TypeError, rf"int 4 is no data type{LINE}\n  fix: a shape .* is one tuple.*"),
    (lambda: mj.random.key(0) + 1, TypeError, rf"keys are no numbers: \+ was applied to one{LINE}\n  fix: random.fold_in\(key, n\).*"),
    (lambda: ones(3).at[0] + 1, TypeError, rf"x.at\[...\] is no array: it was used with \+{LINE}\n  fix: x.at\[index\].add\(y\) .*"),
    (lambda: 2 / ones(3).at[0], TypeError, rf"x.at\[...\] is no array: it was used with /{LINE}\n  fix: x.at\[index\].divide\(y\) .*"),
    (lambda: ones(3).at[0].plus(1), AttributeError, r"x.at\[...\] has no method 'plus'; did you mean add\? There are set, add, .*"),
    (lambda: ones(3).at[0].multipy(1), AttributeError, r"x.at\[...\] has no method 'multipy'; did you mean multiply\? .*"),
    (lambda: ones(3).at.set(1), AttributeError, r"x.at has no 'set'; it takes an index first: x.at\[index\].set\(...\)"),
    (lambda: list(ones()), TypeError, rf"iteration over f32\[\], an array of 0 dims{LINE}\n  fix: x.reshape\(-1\) .*"),
    (lambda: mj.lax.conv(ones(3, 4), ones(3, 4), (1, 1), "SAME"), ValueError,
     r"convolution: window_strides \(1, 1\) has 2 entries, but lhs \(3, 4\) has 0 spatial dims behind batch and feature"
     rf"{LINE}\n  fix: x\[None, None\] adds a batch and a feature dim"),
    (lambda: mj.lax.conv(ones(1, 1, 4, 4), ones(1, 1, 2), (1, 1), "SAME"), TypeError,
     rf"convolution: lhs \(1, 1, 4, 4\) has 4 dims and rhs \(1, 1, 2\) 3; they must be equal{LINE}\n  fix: .*"),
    (lambda: mj.lax.conv_transpose(ones(3, 4), ones(3, 4), (1, 1), "SAME"), ValueError, rf"convolution: .*{LINE}\n  fix: .*"),
    (lambda: mj.lax.pad(ones(3, 4), 0.0, [(1, 1, 0)]), ValueError, rf"lax.pad: 1 entries for 2 dims{LINE}\n  fix: .*"),
    (lambda: mj.lax.pad(ones(3), 0.0, [(1, 1)]), ValueError, rf"lax.pad: entry 0 is \(1, 1\){LINE}\n  fix: .*"),
    (lambda: mj.lax.pad(ones(3), ones(3), [(1, 1, 0)]), ValueError, rf"lax.pad: the padding value has shape \(3,\){LINE}\n  fix: .*"),
    (lambda: mj.lax.pad(ones(3), 0.0, [(-5, 0, 0)]), ValueError, rf"lax.pad: .* of shape \(3,\) gives \(-2,\){LINE}\n  fix: .*"),
    (lambda: mj.lax.reduce(ones(2, 3), 0.0, mj.lax.add, (0, 0)), ValueError, rf"axis \(0, 0\) names a dim twice{LINE}"),
    (lambda: ones(2, 3).max(axis=(0, -2)), ValueError, rf"axis \(0, -2\) names a dim twice{LINE}"),
    (lambda: mnp.transpose(ones(2, 3), (0, 0)), (TypeError, ValueError), rf".*\(0, 0\).*{LINE}.*"),
    (lambda: mnp.concatenate([ones(2), ones(2, 3)]), (TypeError, ValueError), rf"concatenate: .*{LINE}"),
    (lambda: mnp.concatenate([]), ValueError, rf"concatenate: needs at least one array{LINE}"),
    (lambda: mnp.stack([ones(2), ones(3)]), (TypeError, ValueError), rf".*{LINE}"),
    (lambda: mnp.squeeze(ones(2, 3), 0), ValueError, rf"squeeze: dim 0 of shape \(2, 3\) has extent 2, not 1{LINE}"),
    (lambda: mnp.split(ones(5), 2), ValueError, rf"split: 5 cannot be divided into 2 equal parts; use array_split{LINE}"),
    (lambda: mnp.max(ones(0, 3)), ValueError, rf"max of an empty array of shape \(0, 3\) has no value; give initial={LINE}"),
    (lambda: mnp.argmax(ones(0)), ValueError,
     rf"argmax: dim 0 of shape \(0,\) is empty: there is no place to give{LINE}\n  fix: ask x.size first, .*"),
    (lambda: mj.lax.argmin(ones(2, 0), 1, np.int32), ValueError, rf"argmin: dim 1 of shape \(2, 0\) is empty.*{LINE}.*"),
    (lambda: mnp.add("a", 1), TypeError, rf"argument is not an array: str 'a'{LINE}\n  fix: pass an array, .*"),
    (lambda: mnp.add(None, 1), TypeError, rf"argument is not an array: NoneType None{LINE}\n  fix: .*"),
    (lambda: mnp.sum(["a"]), TypeError, rf"argument is not an array: of dtype <U1 .*{LINE}\n  fix: .*"),
    (lambda: mnp.asarray([[1, 2], [3]]), (TypeError, ValueError), rf".*{LINE}.*"),
    (lambda: ones(2, dtype=np.int32) ** -1, TypeError, rf"power: integers i32\[2\] cannot be raised to the negative power -1{LINE}.*"),
    (lambda: ones(2, dtype=bool) - ones(2, dtype=bool), TypeError, rf"subtract of two boolean arrays{LINE}\n  fix: .*"),
    (lambda: ones(2) & ones(2), TypeError, rf"and: .*{LINE}"),
    (lambda: ones(2) + 2**40 * ones(2, dtype=np.int32), OverflowError, rf"the integer 1099511627776 does not fit int32{LINE}\n  fix: .*"),
    (
        lambda: mnp.sum(ones(2), where=ones(2, dtype=np.int32)),
        ValueError,
        rf"where must be an array of booleans, it is int32{LINE}\n  fix: where != 0",
    ),
    (lambda: mnp.nanmean(ones(2), where=ones(2)), ValueError, rf"where must be an array of booleans, it is float32{LINE}.*"),
    (lambda: mj.nn.softmax(ones(2), where=ones(2)), ValueError, rf"where must be an array of booleans, it is float32{LINE}.*"),
    (lambda: mnp.std(ones(3), ddof=1, correction=1), ValueError, rf"var: ddof=1 and correction=1 mean the same, give one of them{LINE}"),
    (
        lambda: mnp.var(ones(3, dtype=np.complex64), dtype=np.float32),
        ValueError,
        rf"var: complex64 has no deviations in float32{LINE}\n  fix: var\(x\).astype\(float32\)",
    ),
    (lambda: mnp.mean(ones(2), dtype=bool), TypeError, rf"mean: a mean is no boolean{LINE}\n  fix: mean\(x\) != 0"),
    (
        lambda: mnp.arange(0j, 5 + 0j),
        ValueError,
        rf"arange: complex numbers have no order, got 0j, \(5\+0j\), 1{LINE}\n  fix: arange of real numbers, times a complex step",
    ),
    (lambda: mnp.arange(2, dtype=bool), TypeError, rf"arange: booleans do not count{LINE}\n  fix: arange\(...\) != 0"),
    (lambda: mnp.cov(ones(2, 2, 2)), ValueError, rf"cov: x must have at most 2 dims, it has shape \(2, 2, 2\){LINE}"),
    (lambda: mnp.rollaxis(ones(2, 3), 0, 3), ValueError, rf"rollaxis: start is 3, beyond the 2 dims of shape \(2, 3\){LINE}"),
    (lambda: mnp.ldexp(ones(2), 1.5), TypeError, rf"ldexp: the exponent must be an integer, it is float32{LINE}"),
    (lambda: mnp.where(ones(2), 1), ValueError, r"where: give condition, x and y; or condition alone .*"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_texts(call: Any, kind: Any, text: str):
    with pytest.raises(kind) as caught:
        call()
    assert re.fullmatch(text, str(caught.value), re.DOTALL), str(caught.value)


TRACED: dict[str, tuple[Any, str]] = {
    "zeros": (lambda n: mnp.zeros(n), "a shape was made of it"),
    "full": (lambda n: mnp.full((2, n), 1.0), "a shape was made of it"),
    "eye": (lambda n: mnp.eye(n), "a shape was made of it"),
    "linspace": (lambda n: mnp.linspace(0, 1, n), "a shape was made of it"),
    "reshape": (lambda n: mnp.ones((3, 4)).reshape(n, 4), "a shape was made of it"),
    "broadcast_to": (lambda n: mnp.broadcast_to(1.0, n), "a shape was made of it"),
    "tile": (lambda n: mnp.tile(mnp.ones(2), n), "a shape was made of it"),
    "random": (lambda n: mj.random.normal(mj.random.key(0), (n,)), "a shape was made of it"),
    "one_hot": (lambda n: mj.nn.one_hot(mnp.arange(2), n), "a shape was made of it"),
    "axis": (lambda n: mnp.sum(mnp.ones((3, 4)), axis=n), "it was used as an axis"),
    "format": (lambda n: f"{n:.3f}", "it was formatted with '.3f'"),
}


@pytest.mark.device
@pytest.mark.parametrize("what", TRACED)
def test_traced_numbers_where_a_program_needs_to_know_them(what: str) -> None:
    call, why = TRACED[what]
    with pytest.raises(mj.errors.ConcretizationTypeError) as caught:
        mj.jit(lambda n: call(n))(3)
    text = str(caught.value)
    assert re.match(rf"Traced<i32\[\] weak> has no value while lambda is traced: {why} at test_numpy_errors.py:\d+", text), text
    assert "\n  the value: argument n\n  fix: " in text


@pytest.mark.device
def test_what_becomes_of_the_fixes() -> None:
    x = mnp.arange(4.0)
    assert mnp.zeros(3 // 1).shape == mj.jit(mnp.zeros, static_argnums=0)(3).shape == (3,)
    assert mnp.zeros(mnp.array(3)).shape == mnp.broadcast_to(1.0, 3).shape == (3,)
    assert mj.lax.conv(mnp.ones((3, 4))[None, None], mnp.ones((2, 2))[None, None], (1, 1), "SAME").shape == (1, 1, 3, 4)
    assert x.at[0].add(1)[0] == 1 and hasattr(x.at[0], "set") and not hasattr(x.at[0], "plus")
    assert f"{x[1]:.3f}" == "1.000" and mj.jit(lambda a: f"{a}" and a)(1.0) == 1
    assert [float(e) for e in x[0].reshape(-1)] == [0.0]
    with pytest.raises(TypeError, match=r"the format '.3f' is for one number, not for f32\[4\]\n  fix: "):
        f"{x:.3f}"
    with pytest.raises(TypeError, match=r"iteration over f32\[\], an array of 0 dims \(argument a\)\n  at test_numpy_errors.py"):
        mj.jit(lambda a: list(a))(1.0)


def test_the_same_texts_while_tracing():
    with pytest.raises(TypeError, match=r"shapes \(2,\), \(3,\) do not fit together") as caught:
        mj.eval_shape(lambda x, y: x * y, np.ones(2, np.float32), np.ones(3, np.float32))
    assert "at test_numpy_errors.py:" in str(caught.value)


@pytest.mark.device
@pytest.mark.parametrize("wrap", [lambda f: f, mj.jit])
def test_shape_and_dtype_cannot_be_set(wrap: Any) -> None:
    for name, fix in (("shape", r"x = x.reshape\(...\)"), ("dtype", r"x = x.astype\(...\), or .*")):
        with pytest.raises(AttributeError) as caught:
            wrap(lambda x, name=name: setattr(x, name, (4,)))(mnp.ones((2, 2)))
        text = rf"the {name} of an array cannot be set, to \(4,\)\n  at test_numpy_errors\.py:\d+ \(.*\)\n  fix: {fix}"
        assert re.match(text, str(caught.value)), str(caught.value)
    assert mnp.ones((2, 2)).shape == (2, 2)


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
