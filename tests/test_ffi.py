"""Functions of the user's that XLA calls: values, batches, shards, side effects and errors, as with `jax.ffi`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxlib.cpu import _lapack

import meshjit as mj
import meshjit.numpy as jnp
from meshjit import ffi
from meshjit.core.parser import parse_program
from meshjit.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

Struct = mj.ShapeDtypeStruct
A = np.asarray(2 * np.eye(5) + np.arange(25).reshape(5, 5) % 3 % 2 * 0.1, np.float32)
SPD = A @ A.T
MANY = np.stack([SPD * (i + 1) for i in range(6)])
LOWER = np.uint8(ord("L"))


@pytest.fixture(autouse=True, scope="module")
def _lapack_is_registered() -> None:
    _lapack.initialize()
    for name in ("lapack_spotrf_ffi", "lapack_strsm_ffi"):
        ffi.register_ffi_target(name, _lapack.registrations()[name], platform="cpu")


def by_columns(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def cholesky(x: Any, method: str | None = None, effect: bool = False) -> Any:
    order = by_columns(x.ndim)
    results = (Struct(x.shape, x.dtype), Struct(x.shape[:-2], np.int32))
    call = ffi.ffi_call(
        "lapack_spotrf_ffi", results, vmap_method=method, has_side_effect=effect,
        input_layouts=[order], output_layouts=[order, None], input_output_aliases={0: 0},
    )  # fmt: skip
    return jnp.tril(call(x, uplo=LOWER)[0])


def solve(lower: Any, y: Any, method: str | None) -> Any:
    letters = {"side": "L", "uplo": "L", "diag": "N", "trans_x": "N"}
    call = ffi.ffi_call(
        "lapack_strsm_ffi", Struct(y.shape, y.dtype), vmap_method=method,
        input_layouts=[by_columns(lower.ndim), by_columns(y.ndim)], output_layouts=by_columns(y.ndim),
    )  # fmt: skip
    return call(lower, y, **{k: np.uint8(ord(v)) for k, v in letters.items()})


def near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-5, atol=1e-5)


def test_values_in_and_out_of_jit_and_in_control_flow() -> None:
    expected = np.linalg.cholesky(SPD)
    for function in (cholesky, mj.jit(cholesky), mj.jit(mj.checkpoint(cholesky))):
        near(function(SPD), expected)
    near(mj.jit(lambda x: mj.lax.cond(x[0, 0] > 0, cholesky, lambda x: x, x))(SPD), expected)
    near(mj.lax.scan(lambda c, x: (c, cholesky(x)), 0, MANY)[1], np.linalg.cholesky(MANY))


METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


@pytest.mark.parametrize("method", METHODS)
def test_batches(method: str) -> None:
    """Layouts by columns stay those of the last dims."""
    expected = np.linalg.cholesky(MANY)
    near(mj.vmap(lambda x: cholesky(x, method))(MANY), expected)
    moved = mj.jit(mj.vmap(lambda x: cholesky(x, method), in_axes=2, out_axes=1))(np.moveaxis(MANY, 0, 2))
    near(moved, np.moveaxis(expected, 0, 1))


@pytest.mark.parametrize("method", ("sequential", "broadcast_all"))
def test_batches_of_some_operands(method: str) -> None:
    ys = np.arange(30, dtype=np.float32).reshape(3, 5, 2)
    near(mj.vmap(lambda y: solve(SPD, y, method))(ys), np.linalg.solve(np.tril(SPD), ys))


def test_no_method_is_no_batch() -> None:
    with pytest.raises(NotImplementedError, match=r"vmap of ffi_call: nobody has said .*\n  fix: vmap_method='sequential'"):
        mj.vmap(cholesky)(MANY)


def placed(x: Any) -> Any:
    mesh = mj.make_mesh((4,), ("x",))
    return mj.device_put(x, NamedSharding(mesh, P("x"))), mesh


@pytest.mark.parametrize("effect", (False, True))
@pytest.mark.parametrize("count", (0, 3, 4, 6))
def test_sharded_operands_are_given_whole(count: int, effect: bool) -> None:
    """Uneven and empty, too; with side effects one device calls, and the others are sent the results."""
    x, _ = placed(np.concatenate([MANY, MANY])[:count])
    near(mj.jit(lambda x: cholesky(x, effect=effect))(x), np.linalg.cholesky(np.asarray(x)))


def test_in_shard_map_every_device_calls_with_its_shards() -> None:
    x, mesh = placed(np.concatenate([MANY, MANY])[:8])
    local = mj.jit(mj.shard_map(cholesky, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    near(local(x), np.linalg.cholesky(np.asarray(x)))
    text = local.lower(x).as_text()
    assert "tensor<2x5x5xf32>" in text and "all_gather" not in text


# -- a handler in Python, as custom calls were before the typed FFI: void(*)(void* out, const void** in)


class Handler:
    """Adds 1 to six f32, and counts."""

    def __init__(self) -> None:
        self.calls = 0
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))(self)

    def __call__(self, out: int, ins: Any) -> None:
        self.calls += 1
        floats = ctypes.c_float * 6
        source, target = floats.from_address(ins[0]), floats.from_address(out)
        target[:] = [x + 1 for x in source]


@pytest.fixture(scope="module")
def handler() -> Handler:
    handler = Handler()
    ffi.register_ffi_target("plus_one_of_test_ffi", ffi.pycapsule(handler.function), platform="cpu", api_version=0)
    return handler


def plus_one(x: Any, **options: Any) -> Any:
    return ffi.ffi_call("plus_one_of_test_ffi", Struct((6,), np.float32), custom_call_api_version=1, **options)(x)


SIX = np.arange(6, dtype=np.float32)


def test_a_capsule_of_ctypes(handler: Handler) -> None:
    assert np.asarray(plus_one(SIX)).tolist() == [1, 2, 3, 4, 5, 6] and handler.calls == 1


@pytest.mark.parametrize("devices", (1, 4))
def test_side_effects_happen_once(handler: Handler, devices: int) -> None:
    """Where nobody needs the results, too; what has none is then not called at all."""
    x = placed(SIX)[0] if devices == 4 else SIX
    for effect, calls in ((True, 1), (False, 0)):
        before = handler.calls
        mj.block_until_ready(mj.jit(lambda x, effect=effect: (plus_one(x, has_side_effect=effect), x * 2)[1])(x))
        assert handler.calls == before + calls


def test_programs_with_calls_are_text() -> None:
    traced = mj.jit(lambda x: cholesky(x, effect=True)).trace(SPD)
    text = traced.lower().as_text("meshjit")
    assert "ffi_call" in text and str(parse_program(text)).strip() == str(parse_program(str(parse_program(text)))).strip()


# -- derivatives, errors


def test_derivatives_are_the_users() -> None:
    error = r"ffi_call of 'lapack_spotrf_ffi' has no derivative: .*\n  fix: custom_jvp or custom_vjp around the call"
    calls: list[Callable[[], Any]] = [
        lambda: mj.grad(lambda x: cholesky(x).sum())(SPD),
        lambda: mj.jvp(cholesky, (SPD,), (SPD,)),
        lambda: mj.linear_transpose(cholesky, SPD)(SPD),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=error):
            call()
    own = mj.custom_jvp(cholesky)
    own.defjvp(lambda primals, tangents: (own(*primals), tangents[0]))
    near(mj.grad(lambda x: own(x).sum())(SPD), np.ones((5, 5)))


F = Struct((5,), np.float32)
WRONG: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, "ffi_call: there is no vmap_method 'foo'; there are 'sequential'", lambda: ffi.ffi_call("n", F, vmap_method="foo")),
    (ValueError, r"result_shape_dtypes\[1\] is 3, which has no shape and dtype", lambda: ffi.ffi_call("n", [F, 3])),
    (ValueError, "legacy_backend_config is for custom_call_api_version 1 to 3, got 4", lambda: ffi.ffi_call("n", F, legacy_backend_config="x")),
    (ValueError, r"attributes \(k\) are for custom_call_api_version 4, got 1", lambda: ffi.ffi_call("n", F, custom_call_api_version=1)(SPD, k=1)),
    (ValueError, "1 arguments and 2 input_layouts", lambda: ffi.ffi_call("n", F, input_layouts=[None] * 2)(SPD)),
    (ValueError, "1 results and 2 output_layouts", lambda: ffi.ffi_call("n", [F], output_layouts=[None] * 2)(SPD)),
    (ValueError, r"input_output_aliases\[1\] is 0, but there is no argument 1: there are 1", lambda: ffi.ffi_call("n", F, input_output_aliases={1: 0})(SPD)),
    (ValueError, r"the argument is float32\[5,5\] and the result float32\[5\]: they must be alike", lambda: ffi.ffi_call("n", F, input_output_aliases={0: 0})(SPD)),
    (TypeError, r"the attribute k is \[1\], which cannot be hashed", lambda: ffi.ffi_call("n", F)(SPD, k=[1])),
    (TypeError, "an attribute is <object object at .* of type object", lambda: ffi.ffi_call("n", F)(SPD, k=object())),
    (RuntimeError, "Wrong scalar data type", lambda: ffi.ffi_call("lapack_spotrf_ffi", (F, F))(SPD, uplo=3)),
    (RuntimeError, "'nobody_has_it'.: no function of this name is registered for cpu in this process\n  fix: ffi.register_ffi_target", lambda: ffi.ffi_call("nobody_has_it", F)(SPD)),
    (ValueError, "jaxlib takes types by register_ffi_type alone", lambda: ffi.register_ffi_type_id("n", None)),
    (RuntimeError, "Unsupported custom call target type", lambda: ffi.register_ffi_target("n", 3)),
]


@pytest.mark.parametrize(("error", "text", "call"), WRONG)
def test_wrong_calls(error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=text) as raised:
        call()
    assert "meshjit_ffi_call" not in str(raised.value)  # no fault of meshjit's: no file to report


def test_headers() -> None:
    assert os.path.isfile(os.path.join(ffi.include_dir(), "xla", "ffi", "api", "ffi.h"))
