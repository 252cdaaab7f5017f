"""Wrong calls of loops and branches: what is said, that it is true, and JAX's kinds of errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax

pytestmark = pytest.mark.device

V = np.arange(4, dtype=np.float32)
LINE = r"\n  at test_lax_errors\.py:\d+ \(.*\)"


def step(c: Any, x: Any) -> Any:
    return c


NO_PAIR = rf"{LINE}\n  fix: return \(carry, None\) where there is no y"
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "scan of an array": (
        lambda: lax.scan(step, 0.0, V), TypeError, rf"scan: step must return a pair \(carry, y\), it returned an array f32\[\]{NO_PAIR}",
    ),
    "scan of a row": (
        lambda: lax.scan(lambda c, x: x, 0.0, np.ones((2, 3), np.float32)), TypeError,
        rf"scan: lambda must return a pair \(carry, y\), it returned an array f32\[3\]{NO_PAIR}",
    ),
    "scan of a number": (
        lambda: lax.scan(lambda c, x: 3, 0.0, V), TypeError, rf"scan: .* it returned an int{NO_PAIR}",
    ),
    "scan of three": (
        lambda: lax.scan(lambda c, x: (c, x, x), 0.0, V), TypeError, rf"scan: .*, it returned a tuple of 3{NO_PAIR}",
    ),
    "scan of nothing": (lambda: lax.scan(lambda c, x: None, 0.0, V), TypeError, rf"scan: .*, it returned None{NO_PAIR}"),
    "scan of a dict": (
        lambda: lax.scan(lambda c, x: {"c": c, "y": x}, 0.0, V), TypeError,
        rf"scan: .*, it returned a dict with keys \['c', 'y'\]{NO_PAIR}",
    ),
    "associative_scan of no function": (
        lambda: lax.associative_scan(3, V), TypeError, rf"associative_scan needs a function, was given int: 3{LINE}",  # type: ignore[arg-type]
    ),
    "scan of no function": (lambda: lax.scan(3, 0.0, V), TypeError, rf"scan needs a function, was given int: 3{LINE}"),  # type: ignore[arg-type]
    "unroll": (
        lambda: lax.scan(lambda c, x: (c, x), 0.0, V, unroll=-1), ValueError,
        rf"scan: unroll must be True or an int of 0 or more, it is -1{LINE}\n  fix: unroll=True for all iterations, .*",
    ),
    "fori_loop of half an iteration": (
        lambda: lax.fori_loop(0, 3.5, lambda i, c: c, 0.0), TypeError,
        rf"fori_loop: lower and upper must have one dtype, lower is i32\[\] and upper f32\[\]{LINE}\n  fix: int\(upper\), or n // 2 .*",
    ),
    "fori_loop of a traced float": (
        lambda: mj.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, 0.0))(3.0), TypeError,
        rf"fori_loop: lower and upper must have one dtype, .*{LINE}\n  fix: int\(upper\), .*",
    ),
    "fori_loop of two dtypes": (
        lambda: lax.fori_loop(mnp.int8(0), mnp.int32(3), lambda i, c: c, 0.0), TypeError,
        rf"fori_loop: lower and upper must have one dtype, lower is i8\[\] and upper i32\[\]{LINE}\n  fix: convert one: .*",
    ),
    "fori_loop up to a bool": (lambda: lax.fori_loop(0, True, lambda i, c: c, 0.0), TypeError, r"fori_loop: lower and upper .* bool.*"),
    "fori_loop up to unsigned": (
        lambda: lax.fori_loop(0, np.uint8(3), lambda i, c: c, 0.0), TypeError, r"fori_loop: lower and upper .* u8.*",
    ),
    "fori_loop up to a vector": (
        lambda: lax.fori_loop(0, np.array([3], np.int32), lambda i, c: c, 0.0), TypeError,
        rf"fori_loop: bounds are scalars, lower is i32\[\] and upper i32\[1\]{LINE}\n  fix: .*",
    ),
    "fori_loop of another tree": (
        lambda: lax.fori_loop(0, 3, lambda i, c: (c, c), 0.0), TypeError,
        rf"fori_loop: lambda must give back a carry like the one it is given{LINE}\n  given: PyTreeDef\(\*\)\n  returned: PyTreeDef\(\(\*, \*\)\)",
    ),
    "fori_loop of another dtype": (
        lambda: lax.fori_loop(0, 3, lambda i, c: {"x": c["x"] * 1.5}, {"x": np.int32(0)}), TypeError,
        r"fori_loop: the carry changes its type in lambda, at .*\n  init_val\['x'\] is i32\[\] at first and f32\[\] after one iteration.*",
    ),
    "while_loop of another tree": (
        lambda: lax.while_loop(lambda c: c < 3, lambda c: (c, c), 0.0), TypeError,
        rf"while_loop: lambda must give back a carry like the one it is given{LINE}.*",
    ),
    "while_loop of no function": (lambda: lax.while_loop(True, step, 0.0), TypeError, rf"while_loop needs a function, .*{LINE}"),  # type: ignore[arg-type]
    "cond without operands": (
        lambda: lax.cond(True, lambda x: x, lambda x: x), TypeError,
        r"cond: lambda\(x\) is called with the 0 operands behind the functions: missing a required argument: 'x'"
        rf"{LINE}\n  fix: give it its operands, cond\(..., x\), or write functions of none that close over what they need",
    ),
    "cond with too many": (
        lambda: lax.cond(True, lambda: 1, lambda: 2, V), TypeError, rf"cond: lambda\(\) is called with the 1 operands .*{LINE}.*",
    ),
    "cond of numbers": (
        lambda: lax.cond(True, 1, 2), TypeError,  # type: ignore[arg-type]
        rf"cond: true_fun and false_fun must be functions, got 1 and 2{LINE}\n  fix: .*",
    ),
    "switch without operands": (
        lambda: lax.switch(0, [lambda x: 1, lambda x: 2]), TypeError, rf"switch: lambda\(x\) is called with the 0 operands .*{LINE}.*",
    ),
    "switch of numbers": (lambda: lax.switch(0, [1, 2]), TypeError, rf"switch needs a function, was given int: 1{LINE}"),  # type: ignore[list-item]
    "switch of nothing": (lambda: lax.switch(0, []), ValueError, rf"switch: there are no branches{LINE}\n  fix: .*"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_texts(what: str) -> None:
    call, kind, text = WRONG[what]
    with pytest.raises(kind) as caught:
        call()
    assert re.fullmatch(text + r"(\n\(frames .*\))?", str(caught.value), re.DOTALL), str(caught.value)


def test_what_is_near_to_a_mistake_works_as_in_jax() -> None:
    carry, ys = lax.scan(lambda c, x: [c + x, x], 0.0, V)
    assert float(carry) == 6 and np.array_equal(ys, V)
    assert float(lax.fori_loop(0, mnp.int8(3), lambda i, c: c + 1, 0.0)) == 3
    assert float(lax.fori_loop(np.int64(0), 3, lambda i, c: c + 1, 0.0)) == 3
    assert float(lax.fori_loop(0.0, 3.0, lambda i, c: c + i, 0.0)) == 3
    assert float(mj.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + 1, 0.0))(np.int8(3))) == 3
    assert lax.cond(True, lambda x: x, lambda x: x, operand=None) is None
    assert float(lax.cond(False, lambda x: x, lambda x: x + 1, operand=1.0)) == 2
    assert float(lax.switch(1, [lambda *xs: 0.0, lambda *xs: xs[0]], 5.0)) == 5
    assert float(lax.cond(True, mnp.sin, mnp.cos, 0.0)) == 0
    assert float(mj.grad(lambda x: lax.scan(lambda c, _: (c * x, None), 1.0, None, 3, unroll=True)[0])(2.0)) == 12


CONVERTS_NOTHING = rf"convert nothing{LINE}\n  fix: x.astype\(...\), 1.0 in place of 1, or the function of meshjit.numpy"


@pytest.mark.parametrize("name", "add sub mul div rem max min pow atan2 eq lt nextafter betainc clamp".split())
def test_functions_of_several_operands_convert_nothing(name: str) -> None:
    function = getattr(lax, name)
    others = (V,) * (len({"betainc", "clamp"} & {name}))
    for other in (np.arange(4, dtype=np.float16), mnp.asarray(2.0, "bfloat16")):
        with pytest.raises(TypeError, match=rf"lax\.{name}: operands have dtypes float32 and {other.dtype}.*{CONVERTS_NOTHING}"):
            function(V, other, *others)
    if name != "pow":
        with pytest.raises(TypeError, match=f"lax.{name}(: operands have dtypes float32 and .*int32| takes .*, got int32)"):
            mj.jit(lambda x: function(x, 1, *others))(V)
    function(V, 1.0, *others)


def test_functions_that_move_elements_convert_nothing() -> None:
    whole, numbers = np.arange(2), lax.ScatterDimensionNumbers((), (0,), (0,))
    for call in [
        lambda: lax.concatenate([V, whole], 0), lambda: lax.pad(V, 0, [(1, 0, 0)]), lambda: lax.dynamic_update_slice(V, whole, (0,)),
        lambda: lax.dynamic_update_slice_in_dim(V, whole, 0, 0), lambda: lax.select(V > 0, V, np.arange(4)),
        lambda: lax.select_n(V > 0, V, np.arange(4)), lambda: lax.scatter_add(V, np.array([[0]]), np.array([1]), numbers),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match=rf"lax\.\w+: operands have dtypes \w+ and \w+; lax functions {CONVERTS_NOTHING}"):
            call()


@pytest.mark.parametrize(
    ("name", "refused", "taken"),
    [("sin", 1, 1.0), ("sqrt", np.int8(4), 1j), ("floor", 1j, 1.5), ("abs", np.uint8(1), -1), ("real", 1.0, 1j), ("is_finite", 1, 1.0),
     ("square", True, 2), ("bitwise_not", 1.0, True), ("shift_left", True, 1), ("ge", 1j, True), ("complex", 1, 1.0), ("max", [1.0], 1j),
     ("mulhi", 1.0, 7), ("rem", 1j, 3), ("cbrt", 1j, 8.0), ("reciprocal", 2, 2.0), ("igamma", 1, 1.0)],
)  # fmt: skip
def test_functions_take_the_kinds_of_numbers_that_they_are_for(name: str, refused: Any, taken: Any) -> None:
    count = 1 if name in "sin sqrt floor abs real is_finite square bitwise_not cbrt reciprocal".split() else 2
    with pytest.raises(TypeError, match=rf"lax\.{name} takes .*, got (\w+|a list){LINE}\n  fix: "):
        getattr(lax, name)(*[refused] * count)
    getattr(lax, name)(*[taken] * count)


def test_binary_functions_repeat_extents_of_one_and_add_no_dims() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for function, meaning in [(lax.mul, np.multiply), (lax.max, np.maximum), (lax.lt, np.less), (lax.atan2, np.arctan2)]:
        for other in (x[:, :1], x[:1], x[:1, :1], np.float32(2)):
            np.testing.assert_allclose(function(x, other), meaning(x, other), rtol=1e-6)
    assert lax.add(x[:, :1], x[:1]).shape == (3, 4) and lax.div(x[:, :0], x[:, :1] + 1).shape == (3, 0)
    for other in (x[0], x[:2]):
        with pytest.raises(TypeError, match=rf"add: operands have shapes \(3, 4\) and .*repeat extents of 1, and add no dims{LINE}"):
            lax.add(x, other)


IMAGE, KERNEL = np.ones((4, 9, 9, 4), np.float32), np.ones((3, 3, 4, 16), np.float32)
PLACES = "NHWC", "HWIO", "NHWC"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rhs": KERNEL[:, :, :3]}, ValueError, "4 features of f32.* are not 1 groups of 3 in features"),
        ({"rhs": KERNEL[:, :, :2, :15], "feature_group_count": 2}, ValueError, "it does not divide the 15 out features"),
        ({"feature_group_count": 0}, ValueError, "1 or more is needed"),
        ({"batch_group_count": 3}, ValueError, "batch_group_count is 3"),
        ({"window_strides": (1, 0)}, ValueError, "must be 1 or more"),
        ({"dimension_numbers": PLACES[:2]}, TypeError, "three are needed"),
        ({"rhs": KERNEL.astype(np.int32)}, TypeError, "lax functions convert nothing"),
    ],
)  # fmt: skip
def test_what_a_convolution_cannot_take_is_of_the_kind_of_jax(options: dict[str, Any], error: Any, text: str) -> None:
    """Strides of 0 were a ZeroDivisionError, and two dimension numbers one of zip's; of two dtypes one was converted."""
    usual = {"rhs": KERNEL, "window_strides": (1, 1), "padding": "SAME", "dimension_numbers": PLACES}
    with pytest.raises(error, match=text):
        lax.conv_general_dilated(IMAGE, **{**usual, **options})


@pytest.mark.parametrize("numbers", [(((1,), (0,)), ((1,), (1,))), (((1, 1), (0, 1)), ((), ())), (((1,), (0,)), ((0, 0), (1, 1)))])
def test_a_dim_is_contracted_or_batched_once(numbers: Any) -> None:
    """XLA's compiler said it."""
    with pytest.raises(TypeError, match="dot_general: of .* one is named twice"):
        lax.dot_general(np.ones((3, 3), np.float32), np.ones((3, 3), np.float32), numbers)


def test_what_selects_is_boolean_and_bounds_are_of_one_shape() -> None:
    with pytest.raises(TypeError, match=rf"select: the first operand is boolean, it is float32{LINE}"):
        lax.select(V, V, V)
    with pytest.raises(TypeError, match=r"clamp: shapes \(1,\), \(4,\) and \(\) must be equal"):
        lax.clamp(V[:1], V, np.float32(1))


@pytest.mark.device
def test_dims_that_are_broadcast_may_stand_in_any_order() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(lax.broadcast_in_dim(x, (3, 4, 2), (2, 0)), np.broadcast_to(x.T[:, None], (3, 4, 2)))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: lax.dot(x, x), "differ in extent"),
        (lambda x: lax.slice(x, (0,), (1,)), "operand .* needs 2 entries"),
        (lambda x: lax.reduce_precision(x, 0, 3), "exponent_bits"),
        (lambda x: lax.broadcasted_iota(np.int32, (3,), 1), "has 1 dims"),
    ],
)
def test_what_does_not_fit_is_an_error_of_both_kinds(call: Any, text: str) -> None:
    """JAX has ValueError here, and TypeError of other functions."""
    for error in (TypeError, ValueError):
        with pytest.raises(error, match=text):
            call(np.ones((3, 4), np.float32))
        with pytest.raises(error, match=text):
            mj.jit(call)(np.ones((3, 4), np.float32))
