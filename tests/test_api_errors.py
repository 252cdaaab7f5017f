"""What jit and its kin say of bad input: the argument's path, the two things that do not fit, and a fix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.errors import (
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.tools.asserting import message

pytestmark = pytest.mark.device

PARAMS = {"w1": np.ones((10, 4), np.float32)}


def grid() -> Mesh:
    return Mesh(np.array(mj.devices()).reshape(4, 2), ("data", "model"))


def identity(**kwargs: Any) -> Any:
    return mj.jit(lambda params: params, **kwargs)


# --- specs that do not fit

PLACES: dict[str, Callable[[P], Any]] = {
    "in_shardings for params['w1']": lambda spec: identity(in_shardings=spec)(PARAMS),
    "out_shardings for result['w1']": lambda spec: identity(out_shardings=spec)(PARAMS),
    "device_put of x['w1']": lambda spec: mj.device_put(PARAMS, spec),
    "with_sharding_constraint of x['w1']": lambda spec: mj.lax.with_sharding_constraint(PARAMS, spec),
}
SPECS = {
    P("modle"): 'axis "modle" in P("modle") is not in the mesh, whose axes are "data": 4, "model": 2\n'
    '  fix: P("model") or P(None)',
    P("model", "model"): 'axis "model" of size 2 is used twice in P("model", "model")\n'
    '  fix: P("model", None) or P(None, "model")',
    P("data", None, "model"): 'P("data", None, "model") has 3 entries but the array has 2 dims (10, 4)\n'
    '  fix: P("data", None)',
}


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("where", PLACES)
def test_specs_that_do_not_fit(where: str, spec: P) -> None:
    with grid():
        assert message(ValueError, lambda: PLACES[where](spec)) == f"{where}: {SPECS[spec]}"


def test_constraints_inside_jit_say_the_same() -> None:
    with grid():
        text = message(ValueError, lambda: mj.jit(lambda p: mj.lax.with_sharding_constraint(p, P("modle")))(PARAMS))
    assert text == f"with_sharding_constraint of x['w1']: {SPECS[P('modle')]}"


@pytest.mark.parametrize("where", [w for w in PLACES if not w.startswith("device_put")])
def test_a_spec_without_a_mesh(where: str) -> None:
    assert message(ValueError, lambda: PLACES[where](P("model"))) == (
        f"{where}: P('model',) needs a mesh, and there is none\n"
        "  fix: call inside `with mesh:`, or write NamedSharding(mesh, spec)"
    )


def test_device_put_without_a_mesh() -> None:
    assert message(ValueError, lambda: mj.device_put(PARAMS, P("model"))) == (
        "device_put of x['w1']: P('model',) needs a mesh\n"
        "  fix: write NamedSharding(mesh, P('model',))"
    )


def test_prefixes_that_do_not_fit() -> None:
    place = NamedSharding(grid(), P())
    how = "\n  a prefix has the same containers as the value, down to some level, and one entry for each subtree below\n"
    assert message(ValueError, lambda: identity(in_shardings=({"w2": place},))(PARAMS)) == (
        "in_shardings[0] does not fit: it is a dict with keys ['w2'], the value in its place is a dict with keys ['w1']"
        f"{how}  fix: give one entry for all of in_shardings[0], or the same keys as the value"
    )
    assert message(ValueError, lambda: identity(in_shardings=(place, place))(PARAMS)) == (
        "jit(lambda): in_shardings has 2 entries, but the call has 1 positional argument (static ones do not count)\n"
        "  fix: in_shardings=(...,), or one entry for all"
    )
    assert message(ValueError, lambda: identity(in_shardings={"w1": place})(PARAMS)) == (
        "jit(lambda): in_shardings is a dict, but the call has 1 positional argument (static ones do not count)\n"
        "  fix: in_shardings=(that dict,), a tuple with an entry per argument"
    )
    assert message(ValueError, lambda: identity(out_shardings={"w1": [place]})(PARAMS)).startswith(
        "out_shardings['w1'] does not fit: it is a list of 1, the value in its place is a leaf"
    )


def test_no_sharding_at_all() -> None:
    fix = '\n  fix: use PartitionSpec("model") under a mesh, or NamedSharding(mesh, PartitionSpec("model"))'
    assert message(TypeError, lambda: identity(in_shardings="model")) == f"in_shardings is 'model' of type str{fix}"
    assert message(TypeError, lambda: identity(out_shardings=({"a": "model"},))) == (
        f"out_shardings[0]['a'] is 'model' of type str{fix}"
    )
    assert message(TypeError, lambda: identity(in_shardings=mj.devices()[0])).endswith("fix: use SingleDeviceSharding(device)")
    assert message(TypeError, lambda: identity(in_shardings=grid())).endswith(
        "fix: use NamedSharding(mesh, PartitionSpec(...))"
    )
    assert message(TypeError, lambda: identity(in_shardings=(3,))) == (
        "in_shardings[0] is 3 of type int\n  fix: use a NamedSharding, a PartitionSpec (under a mesh), None or AUTO"
    )
    assert message(ValueError, lambda: mj.device_put(PARAMS, "cpu")) == (
        "device_put of x['w1']: 'cpu' is neither a device nor a sharding\n"
        "  fix: use one of meshjit.devices(), a NamedSharding, a PartitionSpec under a mesh, or a meshjit.memory.Space"
    )
    assert message(TypeError, lambda: mj.lax.with_sharding_constraint(PARAMS, "x")) == (
        "with_sharding_constraint of x['w1']: 'x' is no sharding\n"
        "  fix: use a NamedSharding, or a PartitionSpec under a mesh"
    )


# --- arguments that do not fit


def test_what_is_no_array() -> None:
    how = (
        "\n  arguments and results of traced functions are arrays, Python numbers, and trees of them\n"
        "  fix: for an argument that is a setting, mark it static (static_argnames=...); else leave it out of the tree"
    )
    call = mj.jit(lambda params, cfg: cfg)
    assert message(TypeError, lambda: call(PARAMS, {"name": "adam"})) == f"argument cfg['name'] is not an array: str 'adam'{how}"
    text = message(TypeError, lambda: call(PARAMS, np.array(["a"])))
    assert text == f"argument cfg is not an array: ndarray with dtype <U1 array(['a'], dtype='<U1'){how}"
    text = message(TypeError, lambda: mj.device_put({"a": "b"}))
    assert text == "device_put: x['a'] is not an array: str 'b'\n  fix: leave it out of the tree"
    assert message(OverflowError, lambda: call(PARAMS, 2**40)) == (
        "jit(lambda), argument cfg: Python integer 1099511627776 out of bounds for int32\n"
        "  fix: config.update('enable_x64', True), or pass a float"
    )


def test_arguments_that_people_pass_by_mistake() -> None:
    class Model:
        @mj.jit
        def apply(self, x: Any) -> Any:
            return x

    text = message(TypeError, lambda: Model().apply(3))
    assert text.startswith("argument self is not an array: Model <")
    assert text.endswith(
        "fix: mark it static (static_argnums=0), or make its class a pytree: meshjit.tree_util.register_dataclass"
    )
    shape = mj.ShapeDtypeStruct((8,), np.float32)
    text = message(TypeError, lambda: identity()(shape))
    assert text.startswith("argument params is not an array: ShapeDtypeStruct ShapeDtypeStruct(shape=(8,), dtype=float32)\n")
    assert text.endswith("fix: pass an array; for shapes alone there are .lower(...), .trace(...) and meshjit.eval_shape")
    assert message(TypeError, lambda: mj.jit(lambda p: {"f": max})(3)) == (
        "lambda returned result['f'], which is not an array: builtin_function_or_method <built-in function max>\n"
        "  arguments and results of traced functions are arrays, Python numbers, and trees of them\n"
        "  fix: leave it out of the result"
    )


def test_arrays_of_different_meshes() -> None:
    small = Mesh(np.array(mj.devices()[:4]), ("data",))
    a = mj.device_put(PARAMS["w1"], NamedSharding(grid(), P("data")))
    b = mj.device_put(PARAMS["w1"], NamedSharding(small, P("data")))
    assert message(ValueError, lambda: mj.jit(lambda p, q: p["w1"] + q)({"w1": a}, b)) == (
        "jit(lambda): argument p['w1'] is on Mesh('data': 4, 'model': 2) of devices [0, 1, 2, 3, 4, 5, 6, 7],"
        " but argument q is on Mesh('data': 4) of devices [0, 1, 2, 3]\n"
        "  one compiled function runs on one set of devices\n"
        "  fix: move one of them first with meshjit.device_put, or use the same mesh for both"
    )


def test_captured_arrays_are_named() -> None:
    w = mj.device_put(PARAMS["w1"], mj.devices()[2])
    params = {"w1": w}

    class Model:
        def __init__(self) -> None:
            self.w = w

        def apply(self, x: Any) -> Any:
            return x + self.w

    w.delete()
    y = mj.device_put(PARAMS["w1"], mj.devices()[2])
    for f, name in ((lambda x: x + w, "w"), (lambda x: x + params["w1"], "params['w1']"), (Model().apply, "self.w")):
        text = message(RuntimeError, lambda f=f: mj.jit(f)(y))
        assert f"captured array {name}: Array f32[10,4] has been deleted by its delete()" in text


def test_a_committed_argument_elsewhere_than_in_shardings() -> None:
    placed = {"w1": mj.device_put(PARAMS["w1"], NamedSharding(grid(), P("data")))}
    assert message(ValueError, lambda: identity(in_shardings=NamedSharding(grid(), P("model")))(placed)) == (
        "argument params['w1'] f32[10,4] is committed to P('data',) on Mesh('data': 4, 'model': 2),"
        " but in_shardings say P('model',) on Mesh('data': 4, 'model': 2)\n"
        "  fix: meshjit.device_put(params['w1'], sharding) before the call, or leave in_shardings out to use the"
        " argument's own"
    )


def test_in_shardings_and_keywords() -> None:
    call = identity(in_shardings=NamedSharding(grid(), P()))
    assert message(ValueError, lambda: call(params=PARAMS)) == (
        "jit(lambda): in_shardings place positional arguments, but this call passes params by keyword\n"
        "  fix: pass every argument by position"
    )


# --- static and donated arguments


def test_static_arguments() -> None:
    power = mj.jit(lambda x, n: x, static_argnames="n")
    assert message(ValueError, lambda: power(1.0, [2])) == (
        "jit(lambda): static argument 'n' is a list, which is not hashable\n"
        "  static values are part of the cache key\n"
        "  fix: pass a tuple or another hashable value, or do not mark 'n' static"
    )
    assert message(ValueError, lambda: mj.jit(lambda x, n: x, static_argnames="m")) == (
        "jit(lambda): static_argnames has 'm', which is not one of its parameters (x, n)\n  fix: use one of these names"
    )
    assert message(ValueError, lambda: mj.jit(lambda x, n: x, donate_argnums=2)) == (
        "jit(lambda): donate_argnums has 2, but the function takes 2 positional arguments (x, n)\n"
        "  fix: use a number from -2 to 1"
    )
    text = message(ValueError, lambda: mj.jit(lambda x, n: x, static_argnums=1, donate_argnames="n"))
    assert text == "jit(lambda): argument 'n' is both static and donated; drop one"
    assert message(TypeError, lambda: mj.jit(3)) == "jit needs a function, was given int: 3"


# --- traced values


def test_traced_values_are_no_numbers() -> None:
    cases: list[tuple[type[Exception], Any, str]] = [
        (TracerBoolConversionError, lambda n: 1 if n else 2, "its truth value was asked for"),
        (TracerIntegerConversionError, lambda n: list(range(n)), "it was used as a Python integer (an index, a range, a size)"),
        (TracerArrayConversionError, lambda n: np.asarray(n), "NumPy asked for its elements"),
    ]
    for kind, use, why in cases:
        text = message(kind, partial(mj.jit(use), 3))
        first, value, fix = text.split("\n")
        assert first.startswith(f"Traced<i32[] weak> has no value while lambda is traced: {why} at test_api_errors.py:")
        assert value == "  the value: argument n" and fix.startswith("  fix: ")


def test_leaked_tracers() -> None:
    kept: list[Any] = []
    mj.jit(lambda n: kept.append(n * 2))(3)
    for use in (lambda: kept[0] + 1, lambda: mj.jit(lambda x: x + kept[0])(1), lambda: mj.jit(lambda x: x)(kept[0])):
        text = message(UnexpectedTracerError, use)
        assert text.startswith("Traced<i32[] weak> belongs to the trace of lambda, which has ended; used at test_api_errors.py:")
        assert "\n  the value: computed at test_api_errors.py:" in text
        assert text.endswith("fix: return it from the function instead of keeping it in a global, an attribute or a closure")


# --- Compiled


def test_wrong_arguments_for_a_compiled_function() -> None:
    place = NamedSharding(grid(), P("data"))
    compiled = identity(in_shardings=place).lower(PARAMS).compile()
    np.testing.assert_array_equal(compiled(PARAMS)["w1"], PARAMS["w1"])
    assert message(TypeError, lambda: compiled({"w1": np.ones(3, np.float32)})) == (
        "jit(lambda) was compiled for params['w1']: f32[10,4], called with f32[3]\n"
        "  fix: convert or reshape the argument, or lower and compile for this type"
    )
    text = message(TypeError, lambda: compiled({"w2": PARAMS["w1"]}))
    assert text.startswith("jit(lambda) was compiled for arguments ") and text.endswith(
        "fix: call it with the same containers, or lower and compile for these"
    )
    moved = {"w1": mj.device_put(PARAMS["w1"], NamedSharding(grid(), P("model")))}
    assert message(ValueError, lambda: compiled(moved)) == (
        "jit(lambda) was compiled for params['w1'] f32[10,4] at P('data',) on Mesh('data': 4, 'model': 2),"
        " called with one committed to P('model',) on Mesh('data': 4, 'model': 2)\n"
        "  fix: meshjit.device_put(params['w1'], compiled.input_shardings[...]) before the call,"
        " or lower and compile for this sharding"
    )
    assert message(TypeError, lambda: mj.jit(lambda x: compiled({"w1": x}))(mnp.ones((10, 4)))) == (
        "jit(lambda) is compiled already and cannot become part of a traced function\n"
        "  fix: call the jitted function itself there; a Compiled takes concrete arrays"
    )
