"""Programs as text: what is printed parses back to the same Program."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import meshjit.ops  # noqa: F401  the parser looks ops up by name
from meshjit.core.op import REGISTRY
from meshjit.core.parser import ParseError, parse_annotated, parse_program
from meshjit.core.printer import print_program, print_value
from meshjit.core.program import Builder, Eqn, Source, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.core.verify import IllegalProgram, verify
from sharding.mesh import AbstractMesh
from sharding.spec import Placement

ADD, EXP, CONSTANT = REGISTRY["add"], REGISTRY["exponential"], REGISTRY["constant"]


def small_program():
    with Builder("mlp") as builder:
        x = builder.input(TensorType.parse("f32[8,4]"), "x")
        with builder.at(Source("/home/me/train.py", 31, "mlp")):
            y = ADD(x, EXP(x))
        return builder.build([y, x])


def test_golden_text():
    assert str(small_program()) == (
        "program mlp(%x: f32[8, 4]) -> (f32[8, 4], f32[8, 4]) {\n"
        "  %1: f32[8, 4] = exponential(%x)  # train.py:31 mlp\n"
        "  %2: f32[8, 4] = add(%x, %1)  # train.py:31 mlp\n"
        "  return %2, %x\n"
        "}"
    )


def test_round_trip():
    text = str(small_program())
    assert str(verify(parse_program(text))) == text


def test_placements_are_printed_and_read_back():
    program = small_program()
    placements = {v: Placement((("data",), ("model",))) for v in program.vars()}
    placements[program.eqns[0].outputs[0]] = Placement((("data",), ()), (("model", "sum"),))
    text = print_program(program, placements)
    assert "%x: f32[8@data, 4@model]" in text
    assert "%1: f32[8@data, 4 | sum(model)]" in text
    again, found = parse_annotated(text)
    assert print_program(again, found) == text


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (5, 7)])
def test_constants_of_every_dtype_round_trip(dtype, shape):
    generator = np.random.default_rng(0)
    value = generator.normal(size=shape).astype(np.complex64 if dtype.startswith("c") else np.float32)
    value = value.astype(DTYPES[dtype])
    with Builder() as builder:
        program = builder.build([CONSTANT(value=value)])
    text = str(program)
    again = parse_program(text)
    assert str(again) == text
    assert again.eqns[0].params["value"].tobytes() == value.tobytes()


def test_special_values_keep_their_bits():
    value = np.array([np.nan, -np.nan, np.inf, -0.0, 1e-45], np.float32)
    with Builder() as builder:
        program = builder.build([CONSTANT(value=value)])
    assert parse_program(str(program)).eqns[0].params["value"].tobytes() == value.tobytes()


def test_values_are_a_closed_set():
    assert print_value((1, (2.5, None), "a", True, np.dtype(ml_dtypes.bfloat16))) == "(1, (2.5, None), 'a', True, dtype(bf16))"
    with pytest.raises(TypeError, match="a param of type list cannot be printed"):
        print_value([1])


def test_parse_errors_show_the_line():
    with pytest.raises(ParseError, match="line 2: expected"):
        parse_program("program f(%x: f32[2]) -> (f32[2]) {\n  %1 f32[2] = add(%x, %x)\n  return %1\n}")


def test_verify_names_the_pass_and_the_equation():
    program = small_program()
    broken = type(program)(program.name, (), program.eqns, program.outputs)
    with pytest.raises(IllegalProgram, match=r"after dce: exponential\(f32\[8,4\]\) at train.py:31 mlp uses"):
        verify(broken, "dce")


def test_verify_tells_each_way_in_which_values_are_not_defined_once_before_their_uses():
    program = small_program()
    first, *rest = program.eqns
    twice = type(program)(program.name, (*program.inputs, *program.inputs[:1]), program.eqns, program.outputs)
    again = type(program)(program.name, program.inputs, (first, first, *rest), program.outputs)
    nothing = type(program)(program.name, program.inputs, (), program.outputs)
    for broken, told in (
        (twice, "input of mlp: .* is defined twice"),
        (again, ".* is defined twice"),
        (nothing, "output .* of mlp is not defined"),
    ):
        for types in (True, False):
            with pytest.raises(IllegalProgram, match=told):
                verify(broken, types=types)


def test_types_are_looked_at_where_that_is_asked_for():
    program = small_program()
    last = program.eqns[-1]
    wrong = Var(TensorType.parse("f32[3]"))
    eqns = (*program.eqns[:-1], Eqn(last.op, last.inputs, (wrong,), last.params, last.source))
    broken = type(program)(program.name, program.inputs, eqns, (wrong,))
    assert verify(broken, types=False) is broken
    with pytest.raises(IllegalProgram, match=r"declares \(f32\[3\],\), its rule gives"):
        verify(broken)


def test_a_mesh_is_not_needed_to_print():
    assert AbstractMesh((2,), ("x",)).size == 2
