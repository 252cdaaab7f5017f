"""einsum, matmul, dot and their kin against NumPy, on small integers as floats so that sums are exact."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from tests.tools.asserting import assert_same
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")


def some(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    numbers = np.random.default_rng(seed + len(shape)).integers(-3, 4, shape)
    imaginary = np.random.default_rng(seed).integers(-3, 4, shape) * 1j if np.dtype(dtype).kind == "c" else 0
    return (numbers + imaginary).astype(dtype)


EINSUMS = """
ij,jk->ik; 3 4, 4 5
ij,jk; 3 4, 4 5
ij,kj->ik; 3 4, 5 4
ij,ij->; 3 4, 3 4
ij->ji; 3 4
ij->j; 3 4
ij->; 3 4
ba; 3 4
ii->i; 4 4
ii; 4 4
iij->ij; 4 4 3
iji->j; 4 3 4
iijj->ij; 2 2 3 3
ii,i->i; 4 4, 4
iij,jk->ik; 3 3 4, 4 2
ij,jj->ij; 2 3, 3 3
bij,bjk->bik; 2 3 4, 2 4 5
bij,bjk->ikb; 2 3 4, 2 4 5
bhtd,bhsd->bhts; 2 3 4 5, 2 3 6 5
btd,dhk->bthk; 2 3 4, 4 2 5
i,j->ij; 3, 4
i,j->ji; 3, 4
i,i->i; 3, 3
i,i; 3, 3
,->; ,
,ij->ji; , 2 3
i,->i; 3,
ij,jk,kl->il; 2 3, 3 4, 4 5
ij,jk,kl->lji; 2 3, 3 4, 4 5
ij,ij,ij->i; 3 4, 3 4, 3 4
ij,jk,k->i; 2 3, 3 4, 4
i,j,k->kji; 2, 3, 4
ab,bc,cd,de->ae; 2 3, 3 2, 2 4, 4 2
abc,bd,cd->ad; 2 3 4, 3 5, 4 5
ij,j,j,i->; 3 4, 4, 4, 3
...ij,...jk->...ik; 2 3 4, 2 4 5
...ij,jk->...ik; 2 3 4, 4 5
...ij,...jk->...ik; 2 1 3 4, 5 4 2
...i->...; 2 3 4
...i,...i; 2 3, 2 3
i...->...; 2 3 4
i...j->j...; 2 3 4
...->...; 2 3
...,...->...; 2 3, 3
...ij->...ji; 2 3 4
ij...,jk...->ik...; 2 3 4, 3 2 4
...ii->...i; 2 3 3
ij,jk->ik; 1 4, 4 5
ij,jk->ik; 3 1, 4 5
ij,jk->ijk; 3 4, 1 5
bij,bjk->bik; 1 3 4, 2 4 5
ij,ij->ij; 1 4, 3 1
i,i->; 1, 3
ij,jk->ik; 0 4, 4 5
ij,jk->ik; 3 0, 0 5
ij->i; 3 0
aB,Bc->ac; 2 3, 3 4
i j , j k -> i k; 2 3, 3 4
ij,kl->; 2 3, 4 5
ijk->kj; 2 3 4
abcd,cdef->abef; 2 1 3 2, 3 2 1 4
"""


def _shapes(text: str) -> list[tuple[int, ...]]:
    return [tuple(int(n) for n in part.split()) for part in text.split(",")]


@pytest.mark.parametrize("case", EINSUMS.strip().splitlines())
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64])
def test_einsum(case: str, dtype: Any):
    subscripts, shapes = case.split("; ")
    operands = [some(*shape, dtype=dtype, seed=i) for i, shape in enumerate(_shapes(shapes))]
    assert_same(mnp.einsum(subscripts, *(host(x) for x in operands)), np.einsum(subscripts, *operands))


def test_einsum_by_lists_and_options():
    x, y = some(2, 3), some(3, 4)
    assert_same(mnp.einsum(host(x), [0, 1], host(y), [1, 2], [0, 2]), x @ y)
    assert_same(mnp.einsum(host(x), [Ellipsis, 1]), x)
    assert_same(mnp.einsum("ij,jk", host(x), host(y), optimize="optimal"), x @ y)
    wide = mnp.einsum("ij,jk", host(x.astype(np.float16)), host(y.astype(np.float16)), preferred_element_type=np.float32)
    assert_same(wide, x @ y)


@pytest.mark.parametrize(
    ("subscripts", "letters", "shapes"),
    [
        ("a1b,bc->a1c", "adb,bc->adc", [(3, 1, 4), (4, 5)]),
        ("a1b,bc", "adb,bc->dac", [(3, 1, 4), (4, 5)]),
        ("1,1->1", "a,a->a", [(3,), (3,)]),
        ("1...,1b->...b", "d...,db->...b", [(3, 4), (3, 5)]),
        ("é_2,2*->é*", "abc,cd->ad", [(2, 3, 4), (4, 5)]),
    ],
)
def test_einsum_takes_any_character_as_a_dim(subscripts: str, letters: str, shapes: Any):
    operands = [some(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert_same(mnp.einsum(subscripts, *(host(x) for x in operands)), np.einsum(letters, *operands))


def test_einsum_contracts_by_the_function_that_is_given():
    x, y, z = some(2, 3), some(3, 4), some(4, 5)
    calls: list[Any] = []

    def twice(a: Any, b: Any, dims: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
        calls.append((precision, np.dtype(preferred_element_type)))
        return 2 * lax.dot_general(a, b, dims, precision, preferred_element_type=preferred_element_type)

    once = mnp.einsum("ij,jk->ki", host(x), host(y), precision="highest", _dot_general=twice)
    assert_same(once, 2 * (x @ y).T)
    assert_same(mnp.einsum("ij,jk,kl", host(x), host(y), host(z), _dot_general=twice), 4 * (x @ y @ z))
    assert_same(mnp.einsum("ij->ji", host(x), _dot_general=twice), x.T)
    assert calls == [("highest", np.float32)] + 2 * [(None, np.float32)]
    low = [host(v.astype(np.float16)) for v in (x, y)]
    assert mnp.einsum("ij,jk", *low, _dot_general=twice).dtype == np.float16
    assert mnp.einsum("ij,jk", *low, _dot_general=twice, preferred_element_type=np.float32).dtype == np.float32
    gradient = mj.jit(mj.grad(lambda a: mnp.sum(mnp.einsum("ij,jk", a, y, _dot_general=twice))))(x)
    assert_same(gradient, 2 * np.broadcast_to(y.sum(1), x.shape))


@pytest.mark.parametrize(
    ("subscripts", "shapes", "text"),
    [
        ("ij,jk", [(2, 3), (4, 5)], "einsum 'ij,jk': j is 3 in one operand and 4 in operand 1 of shape (4, 5)"),
        ("ij", [(2, 3), (4, 5)], "einsum 'ij' names 1 operands, was given 2"),
        ("ijk,jk", [(2, 3), (4, 5)], "einsum 'ijk,jk': 'ijk' names 3 dims of an operand that has 2"),
        ("ij->ik", [(2, 3)], "einsum 'ij->ik': k of the output is in no operand"),
        ("ij->ii", [(2, 3)], "einsum 'ij->ii': i stands twice in the output"),
        ("i.->i", [(2, 3)], "einsum 'i.->i': '.' names no dim"),
        ("i->j->i", [(2,)], "einsum 'i->j->i': '-' names no dim"),
        ("ij...,jk", [(2,), (2, 2)], "einsum 'ij...,jk': 'ij...' names 2 dims of an operand that has 1"),
    ],
)
def test_wrong_einsums(subscripts: str, shapes: Any, text: str):
    with pytest.raises(ValueError) as caught:
        mnp.einsum(subscripts, *(host(some(*s)) for s in shapes))
    assert str(caught.value).splitlines()[0] == text
    assert "  at test_numpy_contraction.py:" in str(caught.value)


RANKS = [(4,), (3, 4), (4, 3), (2, 3, 4), (2, 4, 3), (1, 4, 2), (5, 1, 3, 4), (0, 4), (4, 0)]


@pytest.mark.parametrize("function", ["matmul", "dot", "inner"])
@pytest.mark.parametrize("a", RANKS)
def test_products_of_all_ranks(function: str, a: tuple[int, ...]):
    for b in RANKS:
        x, y = some(*a), some(*b, seed=7)
        try:
            expected = getattr(np, function)(x, y)
        except ValueError:
            with pytest.raises((TypeError, ValueError)):
                getattr(mnp, function)(host(x), host(y))
        else:
            assert_same(getattr(mnp, function)(host(x), host(y)), expected)


@pytest.mark.parametrize(("a", "b"), [((), (3,)), ((2, 3), ()), ((), ())])
def test_products_with_scalars(a: Any, b: Any):
    x, y = some(*a), some(*b, seed=3)
    for function in ("dot", "inner", "kron", "outer"):
        assert_same(getattr(mnp, function)(host(x), host(y)), getattr(np, function)(x, y))
    with pytest.raises(ValueError, match="matmul: operands need at least one dim"):
        mnp.matmul(host(x), host(y))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.complex64])
def test_other_products(dtype: Any):
    x, y, z = (some(*s, dtype=dtype) for s in ((3, 4), (4, 3), (2, 3, 4)))
    hx, hy, hz = host(x), host(y), host(z)
    for axes in (0, 1, 2, ((1,), (0,)), ((0, 1), (1, 0)), (1, 0), (-1, -2)):
        expected = np.tensordot(x, y if axes != 2 else x, axes)
        assert_same(mnp.tensordot(hx, hy if axes != 2 else hx, axes), expected)
    assert_same(mnp.tensordot(hz, hx, ([1, 2], [0, 1])), np.tensordot(z, x, ([1, 2], [0, 1])))
    assert_same(mnp.vdot(hx, hx), np.vdot(x, x))
    assert_same(mnp.vecdot(hz, hx), np.vecdot(z, x))
    assert_same(mnp.vecdot(hz, hz, axis=0), np.sum(z.conj() * z, axis=0, dtype=dtype))
    assert_same(mnp.outer(hx, hz), np.outer(x, z))
    assert_same(mnp.kron(hx, hy), np.kron(x, y))
    assert_same(mnp.kron(hz, hy), np.kron(z, y))
    assert_same(hx @ hy, x @ y)
    assert_same(x @ hy, x @ y)
    for k in (0, 1, -1, 9):
        assert_same(mnp.trace(hx, k), np.trace(x, k, dtype=None if dtype != np.uint8 else np.uint32).astype(mnp.trace(hx).dtype))


def test_products_promote():
    assert (host(some(2, 2)) @ host(some(2, 2), np.int32)).dtype == np.float32
    small = host(some(2, 2)).astype(mnp.bfloat16)
    assert (small @ small).dtype == mnp.bfloat16
    assert mnp.dot(small, small, preferred_element_type=np.float32).dtype == np.float32
    assert mnp.matmul(host(some(3)), host(np.ones((2, 3, 4), np.float32)), preferred_element_type=np.float32).shape == (2, 4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x, y: x @ y, "dim 1 of (2, 3) and dim 0 of (4, 5) are contracted, but have extents 3 and 4"),
        (lambda x, y: mnp.dot(x, y), "dot: dim 1 of (2, 3) and dim 0 of (4, 5) are contracted, but have extents 3 and 4"),
        (lambda x, y: mnp.inner(x, y), "inner: dim 1 of (2, 3) and dim 1 of (4, 5) are contracted, but have extents 3 and 5"),
        (lambda x, y: mnp.tensordot(x, y, 1), "tensordot: dim 1 of (2, 3) and dim 0 of (4, 5) are contracted"),
        (lambda x, y: mnp.tensordot(x, y, 3), "tensordot: 3 dims are contracted of arrays of 2 and 2 dims"),
        (lambda x, y: mnp.vdot(x, y), "vdot: dim 0 of (6,) and dim 0 of (20,) are contracted, but have extents 6 and 20"),
        (lambda x, y: x[None] @ mnp.stack([y, y]), "matmul: dim 2 of (1, 2, 3) and dim 1 of (2, 4, 5) are contracted"),
        (lambda x, y: mnp.ones((2, 2, 3)) @ mnp.ones((4, 3, 5)), "shapes (2,), (4,) do not fit together"),
    ],
)
def test_products_that_do_not_fit(call: Any, text: str):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(host(some(2, 3)), host(some(4, 5)))
    assert text in str(caught.value) and re.search(r"\n  at test_numpy_contraction.py:\d+ ", str(caught.value))


def test_precision_words():
    program = str(mj.jit(lambda x: mnp.dot(x, x, precision="highest")).trace(np.ones((2, 2), np.float32)).program)
    assert "precision='highest'" in program
    pair = str(mj.jit(lambda x: mnp.dot(x, x, precision=("default", "tensorfloat32"))).trace(np.ones((2, 2), np.float32)).program)
    assert "precision='high'" in pair
    with pytest.raises(ValueError, match="precision 'splendid' is not one of default, fastest, bfloat16, high"):
        mj.eval_shape(lambda x: mnp.dot(x, x, precision="splendid"), np.ones((2, 2), np.float32))


@pytest.mark.device
def test_einsum_under_jit():
    q, k = some(2, 5, 3, 4), some(2, 6, 3, 4, seed=1)
    found = mj.jit(lambda q, k: mnp.einsum("bthd,bshd->bhts", q, k))(q, k)
    assert_same(found, np.einsum("bthd,bshd->bhts", q, k))
    found = mj.jit(lambda x: mnp.einsum("ii,ij->j", x, x))(some(3, 3))
    assert_same(found, np.einsum("ii,ij->j", some(3, 3), some(3, 3)))


def test_convolutions_add_up_in_the_preferred_dtype() -> None:
    x, kernel = np.full((1, 1, 2), 100, np.int8), np.full((1, 1, 1), 2, np.int8)
    found = lax.conv_general_dilated(x, kernel, (1,), "SAME", preferred_element_type=np.int32)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [[[200, 200]]])
    half = mnp.ones((1, 300, 1), mnp.bfloat16)
    kernel = mnp.ones((1, 300, 1), mnp.bfloat16)
    wide = lax.conv_general_dilated(half, kernel, (1,), "SAME", preferred_element_type=np.float64)
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide, [[[300]]])
    assert mnp.dot(half[0].T, kernel[0], preferred_element_type=np.float64).dtype == np.float32


FACTORS = [
    # neither float holds the numbers of the other: 1.125 (three bits) and 2**-10 (a small exponent) both count
    ("float8_e4m3fn", "float8_e5m2", [1.125, 448.0], [2.0**-10, 0.25]),
    ("float8_e5m2", "float8_e4m3b11fnuz", [57344.0, 2.0**-14], [1.125, 0.875]),
    ("float8_e4m3fn", "float8_e8m0fnu", [1.125, -0.75], [2.0**-100, 2.0**90]),
    ("float16", "bfloat16", [1.0 + 2.0**-10, 2.0**-20], [2.0**100, 2.0**110]),
    ("int8", "uint32", [-3, 2], [5, 2**20]),
    ("uint8", "int4", [255, 3], [-8, 7]),
    ("int4", "float8_e5m2", [-8, 7], [2.0**-14, 1.75]),
]


@pytest.mark.parametrize(("first", "second", "a", "b"), FACTORS, ids=[f"{a}-{b}" for a, b, *_ in FACTORS])
def test_factors_of_two_dtypes_are_not_rounded_where_the_dtype_of_the_product_is_given(first: str, second: str, a: Any, b: Any):
    x, y = (np.asarray(values).astype(mnp.dtype(name)) for values, name in ((a, first), (b, second)))
    expected = np.float32(np.sum(np.float64(a) * np.float64(b)))

    def product(p: Any, q: Any) -> Any:
        return mnp.dot(p, q, preferred_element_type=mnp.float32)

    for fun in (product, mj.jit(product)):
        np.testing.assert_array_equal(np.asarray(fun(host(x), host(y))), expected)
        np.testing.assert_array_equal(np.asarray(fun(host(y), host(x))), expected)


def test_the_product_of_two_dtypes_is_of_the_greater_one_where_no_other_is_given():
    x, y = np.asarray([1.125], mnp.float8_e4m3fn), np.asarray([0.25], mnp.float8_e5m2)
    assert lax.dot_general(host(x), host(y), (((0,), (0,)), ((), ()))).dtype == mnp.float8_e5m2


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn", "float8_e5m2", "bfloat16", "float32"])
@pytest.mark.parametrize("scale", [2.0**-26, 2.0**2])
def test_cotangents_of_wider_products_keep_their_range(dtype: str, scale: float) -> None:
    """Rounded to the factors' dtype, small ones became 0, though their sum is not."""
    count, factor = 4096, mnp.asarray(2.0**-6, dtype)
    x, w, unit = mnp.ones((count, 3), dtype) * factor, mnp.ones((3, 2), dtype), mnp.ones((), dtype)
    expected = np.full((3, 2), 2.0**6 * scale).astype(mnp.dtype(dtype))  # 2**12 rows of 2**-6

    def products(w: Any) -> Any:
        flat = mnp.dot(x, w, preferred_element_type=np.float32)
        batched = mnp.einsum("bij,jk->bik", x.reshape(4, -1, 3), w, preferred_element_type=np.float32)
        return flat, batched

    for i in range(2):
        found = mj.jit(mj.grad(lambda w, i=i: mnp.sum(products(w)[i]) * np.float32(scale)))(w)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)
    if "float8" not in dtype:
        image, kernel = x.reshape(1, 64, 64, 3), w.reshape(1, 1, 3, 2)
        numbers, wide = ("NHWC", "HWIO", "NHWC"), np.float32

        def convolved(kernel: Any) -> Any:
            out = lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=numbers, preferred_element_type=wide)
            return mnp.sum(out) * wide(scale)

        np.testing.assert_array_equal(mj.jit(mj.grad(convolved))(kernel).reshape(3, 2), expected)
        assert mj.grad(lambda x: mnp.sum(mnp.dot(x, w * unit, preferred_element_type=wide)))(x).dtype == dtype


LISTED = [
    ([("i", "j"), ("j", "k"), ("i", "k")], "ij,jk->ik"),
    ([("z", "j"), ("j", "k")], "zj,jk"),  # the output's dims in the order of their names
    ([(26, 1), (1, 0)], "zb,ba->az"),
    ([(7, 1000), (1000, 70)], "ab,bc"),
    ([(("x", 1), ("x", 0)), (("x", 0), ("y",)), (("y",), ("x", 1))], "ba,ac->cb"),
    ([(..., "b"), ("b", "a"), ("a", ...)], "...b,ba->a..."),
]


@pytest.mark.parametrize(("names", "subscripts"), LISTED, ids=[text for _, text in LISTED])
def test_einsum_takes_lists_of_names(names: Any, subscripts: str):
    x, y = some(2, 3), some(3, 4)
    arguments = [host(x), [*names[0]], host(y), [*names[1]], *([*n] for n in names[2:])]
    assert_same(mnp.einsum(*arguments), np.einsum(subscripts, x, y))


def test_einsum_says_which_names_do_not_go():
    x, y = host(some(2, 3)), host(some(3, 4))
    with pytest.raises(TypeError, match=r"einsum: dims are named by numbers or by words, not by both: 'j', 1\n"):
        mnp.einsum(x, [..., "j"], y, ["j", 1])
    with pytest.raises(ValueError, match="einsum: no operand has a dim 9"):
        mnp.einsum(x, [0, 1], y, [1, 2], [0, 9])
