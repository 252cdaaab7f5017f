"""Tracing: what becomes an equation, an input or a constant; source lines; and why a Tracer is not a number."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import tree
from meshjit.core.program import Source
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from meshjit.trace import Argument, Traced, Tracer, active_trace, line_of, trace_to_program, user_source
from meshjit.trace.names import function_name, hint_of
from meshjit.trace.program import argument_of

HERE = os.path.basename(__file__)
F = "f32[2, 3]"


def trace(fun: Callable[..., Any], *types: str, names: tuple[str, ...] = ()) -> Traced:
    names = names or tuple(f"x{i}" for i in range(len(types)))
    arguments = [Argument(TensorType.parse(t), False, n) for t, n in zip(types, names, strict=True)]
    traced = trace_to_program(fun, arguments, tree.structure((types, {})))
    verify(traced.program)
    assert active_trace() is None
    return traced


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as error:
        call()
    return str(error.value)


# -- source lines


def inner(x: Any) -> Any:
    return mnp.tanh(x)  # the innermost line of the user


def outer(x: Any) -> Any:
    return inner(x) * 2


def test_equations_carry_the_innermost_line_outside_of_the_package() -> None:
    sources = {eqn.op.name: eqn.source for eqn in trace(outer, F).program.eqns}
    tanh, times = sources["tanh"], sources["multiply"]
    assert isinstance(tanh, Source) and isinstance(times, Source)
    assert (tanh.file, tanh.line, tanh.function) == (__file__, inner.__code__.co_firstlineno + 1, "inner")
    assert (times.line, times.function) == (outer.__code__.co_firstlineno + 1, "outer")


def test_user_source_is_the_line_that_asks() -> None:
    line = test_user_source_is_the_line_that_asks.__code__.co_firstlineno + 2
    assert line_of(user_source()) == f"{HERE}:{line} (test_user_source_is_the_line_that_asks)"
    assert line_of(None) == "an unknown line"


def test_lines_of_one_function_differ() -> None:
    def two(x: Any) -> Any:
        x = mnp.sin(x)
        return mnp.cos(x)

    first, second = (eqn.source.line for eqn in trace(two, F).program.eqns if eqn.source)
    assert second == first + 1


def test_type_errors_of_ops_name_the_line() -> None:
    text = message(TypeError, lambda: trace(lambda x: mj.lax.transpose(x, (0, 0)), F))
    assert re.search(rf"\n  at {HERE}:\d+ \(test_type_errors_of_ops_name_the_line\.<locals>", text), text


# -- inputs, constants, captured values


def test_inputs_are_named_after_their_arguments() -> None:
    program = trace(lambda a, b: a + b, F, F, names=("params['w1']", "x")).program
    assert str(program).startswith("program lambda(%params_w1: f32[2, 3], %x: f32[2, 3]) -> (f32[2, 3]) {")


def test_outputs_may_be_inputs_and_repeat() -> None:
    program = trace(lambda x: (x, x, x + x), F).program
    assert program.outputs[0] is program.outputs[1] is program.inputs[0]


def test_equal_numbers_are_alike_constants_at_their_own_lines() -> None:
    def update(x: Any, y: Any) -> Any:
        first = 0.5 * x
        return first + 0.5 * y, 0.5 * x[0], np.float32(0.5) * y

    program = mj.jit(update).trace(*[mj.ShapeDtypeStruct((2, 3), np.float32)] * 2).program
    constants = [eqn for eqn in program.eqns if eqn.op.name == "constant"]
    assert [eqn.outputs[0].shape for eqn in constants] == [(2, 3), (2, 3), (3,), (2, 3)]
    first, second, other, strong = constants
    assert first.params is second.params is strong.params is not other.params
    assert first.outputs[0] is not second.outputs[0]
    assert first.source is not None and second.source is not None and second.source.line == first.source.line + 1


def test_numpy_arrays_are_constants_and_copied() -> None:
    table = np.array([1.0, 2.0, 3.0], np.float32)
    program = trace(lambda x: x + table, F).program
    table[:] = 0
    (value,) = [eqn.params["value"] for eqn in program.eqns if eqn.op.name == "constant"]
    np.testing.assert_array_equal(value, [1, 2, 3])


def test_arrays_are_captured_once_as_inputs() -> None:
    array = mnp.arange(3.0)
    traced = trace(lambda x: (x + array) * array, F)
    assert len(traced.captured) == 1 and traced.captured[0] is array
    assert [str(v.type) for v in traced.program.inputs] == ["f32[2,3]", "f32[3]"]
    assert all(eqn.op.name != "constant" for eqn in traced.program.eqns)


def test_values_of_the_trace_around_are_captured() -> None:
    found: list[Traced] = []

    def around(x: Any) -> Any:
        doubled = x * 2
        found.append(trace_to_program(lambda y: y * doubled + doubled, [argument_of(x)], tree.structure(((0,), {}))))
        return x

    trace(around, F)
    (traced,) = found
    assert len(traced.captured) == 1 and isinstance(traced.captured[0], Tracer)
    assert [eqn.op.name for eqn in verify(traced.program).eqns] == ["multiply", "add"]
    assert len(traced.program.inputs) == 2


def test_ops_without_traced_operands_are_staged_too() -> None:
    assert [eqn.op.name for eqn in trace(lambda: mnp.arange(3)).program.eqns] == ["iota"]


def test_python_scalars_are_weak_and_do_not_widen() -> None:
    traced = trace(lambda x: (x * 2.5, 3), "bf16[2]")
    assert [str(t) for t in traced.program.output_types] == ["bf16[2]", "i32[]"]
    assert traced.out_weak == (False, True)


def test_nothing_is_left_active_after_an_error() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("mine")

    assert message(KeyError, lambda: trace(fails, F)) == "'mine'"
    assert active_trace() is None


def test_names_of_functions_and_hints() -> None:
    import functools

    assert function_name(functools.partial(inner)) == "inner"
    assert function_name(lambda: 0) == "lambda"
    assert hint_of("params['w1'].x[0]") == "params_w1_x_0"


class AnythingAsked:
    """A callable that has every attribute, as a mock or a proxy of a remote object has."""

    def __getattr__(self, name: str) -> AnythingAsked:
        return self

    def __call__(self, x: Any) -> Any:
        return x * 2


class Numbered:
    def __init__(self) -> None:
        self.__name__ = 3

    def __call__(self, x: Any) -> Any:
        return x * 2


@pytest.mark.parametrize("kind", [AnythingAsked, Numbered])
def test_objects_that_are_called_may_have_any_name(kind: type[Any]) -> None:
    assert function_name(kind()) == kind.__name__
    f = kind()
    for transform in (mj.jit, mj.grad, mj.checkpoint, mj.jacfwd, mj.jacrev, mj.custom_jvp, mj.value_and_grad):
        transform(f)
    assert mj.jit(f)(1.0) == mj.grad(f)(1.0) == mj.jacrev(mj.checkpoint(f))(1.0) == 2
    assert mj.vmap(f)(np.ones(2)).tolist() == [2, 2]


# -- what a Tracer is not


def test_truth_values() -> None:
    def choose(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    text = message(TracerBoolConversionError, lambda: trace(choose, F))
    line = choose.__code__.co_firstlineno + 1
    assert text == (
        f"Traced<bool[]> has no value while choose is traced: its truth value was asked for at {HERE}:{line} "
        "(test_truth_values.<locals>.choose)\n"
        f"  the value: computed at {HERE}:{line} (test_truth_values.<locals>.choose)\n"
        "  fix: mnp.where(cond, a, b) or lax.cond for a choice, lax.while_loop for a loop, & | ~ instead of and or not, "
        "or static_argnames=... if it is an argument that rarely changes"
    )


CONVERSIONS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "list index": (lambda n: [1, 2][n], TracerIntegerConversionError, "it was used as a Python integer"),
    "range": (lambda n: range(n), TracerIntegerConversionError, "it was used as a Python integer"),
    "int": (lambda n: int(n), ConcretizationTypeError, "int() was called on it"),
    "float": (lambda n: float(n), ConcretizationTypeError, "float() was called on it"),
    "complex": (lambda n: complex(n), ConcretizationTypeError, "complex() was called on it"),
    "np.asarray": (lambda n: np.asarray(n), TracerArrayConversionError, "NumPy asked for its elements"),
    "np.array": (lambda n: np.array([n]), TracerArrayConversionError, "NumPy asked for its elements"),
    "item": (lambda n: n.item(), ConcretizationTypeError, ".item() was called on it"),
    "tolist": (lambda n: n.tolist(), ConcretizationTypeError, ".tolist() was called on it"),
    "while": (lambda n: next(0 for _ in iter(lambda: bool(n), False)), TracerBoolConversionError, "its truth value"),
}


@pytest.mark.parametrize("what", CONVERSIONS)
def test_conversions_name_the_line_and_the_argument(what: str) -> None:
    fun, kind, text = CONVERSIONS[what]
    said = message(kind, lambda: trace(fun, "i32[]", names=("steps",)))
    first, second, third = said.splitlines()
    assert first.startswith(f"Traced<i32[]> has no value while lambda is traced: {text}")
    assert re.search(rf"at {HERE}:\d+ \(<lambda>", first)
    assert second == "  the value: argument steps"
    assert third.startswith("  fix: ")


def test_hashing() -> None:
    text = message(TypeError, lambda: trace(lambda x: {x: 1}, F))
    assert text == "unhashable type: Traced<f32[2,3]>, argument x0; traced values have no elements to hash"


# -- leaks


def test_a_leaked_tracer_says_where_it_is_from() -> None:
    kept: list[Any] = []

    def leaks(x: Any) -> Any:
        kept.append(mnp.sin(x))
        return x

    trace(leaks, F)
    line = leaks.__code__.co_firstlineno + 1
    said = (
        rf"Traced<f32\[2,3\]> belongs to the trace of leaks, which has ended; used at {HERE}:\d+ \(.*\)\n"
        rf"  the value: computed at {HERE}:{line} \(.*leaks\)\n"
        r"  fix: return it from the function instead of keeping it in a global, an attribute or a closure"
    )
    for use in (lambda: kept[0] + 1, lambda: trace(lambda x: x + kept[0], F), lambda: bool(kept[0]), lambda: np.asarray(kept[0])):
        assert re.fullmatch(said, message(UnexpectedTracerError, use))


def test_a_tracer_of_another_thread() -> None:
    errors: list[str] = []

    def use(x: Any) -> None:
        errors.append(message(UnexpectedTracerError, lambda: mnp.sin(x)))

    def fun(x: Any) -> Any:
        thread = threading.Thread(target=use, args=(x,))
        thread.start()
        thread.join()
        return x

    trace(fun, F)
    assert "belongs to the trace of fun, which runs in another thread" in errors[0]


# -- arguments and results that are no arrays


def test_results_that_are_no_arrays_are_named_by_path() -> None:
    text = message(TypeError, lambda: trace(lambda x: {"loss": x, "name": "adam"}, F))
    assert text == (
        "lambda returned result['name'], which is not an array: str 'adam'\n"
        "  arguments and results of traced functions are arrays, Python numbers, and trees of them\n"
        "  fix: leave it out of the result"
    )


def test_arguments_that_are_no_arrays_are_named_by_path() -> None:
    text = message(TypeError, lambda: argument_of("relu", "config['activation']"))
    assert text.startswith("argument config['activation'] is not an array: str 'relu'\n")
    text = message(TypeError, lambda: argument_of(np.array(["a"]), "x"))
    assert text.startswith("argument x is not an array: ndarray with dtype <U1 array(['a'], dtype='<U1')")
