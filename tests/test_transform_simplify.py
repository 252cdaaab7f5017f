"""Dead code, common subexpressions and folding: smaller Programs that compute the same to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshjit.ops  # noqa: F401
from meshjit.core.op import REGISTRY
from meshjit.core.parser import parse_program
from meshjit.core.printer import print_program
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.core.verify import verify
from meshjit.ops.base.constants import full
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce
from meshjit.transform.fold import fold
from meshjit.transform.pipeline import simplify

X = TensorType((2, 3), DTYPES["f32"])


def program_of(build: Callable[[Var], Var], type: TensorType = X) -> Program:
    with Builder("f") as builder:
        return verify(builder.build([build(builder.input(type, "x"))]))


def names(program: Program) -> list[str]:
    return [eqn.op.name for eqn in verify(program).eqns]


# -- dce


def test_equations_that_nobody_needs_go_and_inputs_stay() -> None:
    program = parse_program("""program f(%x: f32[2], %unused: f32[3]) -> (f32[2]) {
      %a: f32[2] = tanh(%x)
      %b: f32[2] = negate(%x)
      %c: f32[2] = add(%a, %a)
      return %b
    }""")
    assert names(dce(program)) == ["negate"]
    assert len(dce(program).inputs) == 2
    clean = dce(program)
    assert dce(clean) is clean, "what is known of a Program without dead code stays known"


def test_an_equation_with_one_needed_result_stays_whole() -> None:
    def build(x: Var) -> Var:
        return REGISTRY["sort"](x, REGISTRY["negate"](x), dimension=1, num_keys=1, is_stable=True)[1]

    assert names(dce(program_of(build))) == ["negate", "sort"]


# -- cse


def test_equal_equations_become_one() -> None:
    def build(x: Var) -> Var:
        return REGISTRY["add"](REGISTRY["tanh"](x), REGISTRY["tanh"](x))

    simple = cse(program_of(build))
    assert names(simple) == ["tanh", "add"]
    assert simple.eqns[1].inputs[0] is simple.eqns[1].inputs[1]


def test_equations_that_become_equal_become_one() -> None:
    def build(x: Var) -> Var:
        a, b = (REGISTRY["negate"](REGISTRY["tanh"](x)) for _ in range(2))
        return REGISTRY["add"](a, b)

    assert names(cse(program_of(build))) == ["tanh", "negate", "add"]


def test_other_params_are_other_equations() -> None:
    def build(x: Var) -> Var:
        a, b = (REGISTRY["cumsum"](x, axis=1, reverse=r) for r in (True, False))
        return REGISTRY["add"](a, b)

    assert len(cse(program_of(build)).eqns) == 3


def test_true_and_one_are_different_params() -> None:
    """1 == True in Python; as params they are not the same."""

    def build(x: Var) -> Var:
        a = REGISTRY["integer_pow"](x, exponent=1)
        return REGISTRY["add"](a, REGISTRY["integer_pow"](x, exponent=True))

    assert len(cse(program_of(build)).eqns) == 3


def test_constants_keep_a_copy_for_each_use() -> None:
    def build(x: Var) -> Var:
        return REGISTRY["maximum"](REGISTRY["minimum"](x, full(X, 2)), full(X, 2))

    assert names(simplify(program_of(build))).count("constant") == 2


# -- fold

SAME = {
    "convert to the same dtype": lambda x: REGISTRY["convert"](x, dtype=DTYPES["f32"]),
    "transpose in order": lambda x: REGISTRY["transpose"](x, permutation=(0, 1)),
    "broadcast to the same shape": lambda x: REGISTRY["broadcast_in_dim"](x, shape=(2, 3), dimensions=(0, 1)),
    "reshape to the same shape": lambda x: REGISTRY["reshape"](x, shape=(2, 3)),
    "reshape there and back": lambda x: REGISTRY["reshape"](REGISTRY["reshape"](x, shape=(6,)), shape=(2, 3)),
    "times one": lambda x: REGISTRY["multiply"](x, full(X, 1)),
    "one times": lambda x: REGISTRY["multiply"](full(X, 1), x),
    "by one": lambda x: REGISTRY["divide"](x, full(X, 1)),
    "less zero": lambda x: REGISTRY["subtract"](x, full(X, 0)),
    "no less than the least": lambda x: REGISTRY["maximum"](x, full(X, -np.inf)),
    "no more than the most": lambda x: REGISTRY["minimum"](full(X, np.inf), x),
    "first power": lambda x: REGISTRY["integer_pow"](x, exponent=1),
}


@pytest.mark.parametrize("what", SAME)
def test_no_ops_are_folded(what: str) -> None:
    program = program_of(SAME[what])
    simple = simplify(program)
    assert names(simple) == []
    assert simple.outputs == simple.inputs
    x = np.array([[0.0, -0.0, np.nan], [np.inf, -1.5, 3e-42]], np.float32)
    np.testing.assert_array_equal(x.view(np.int32), evaluate(program, [x])[0].view(np.int32))


KEPT = {
    "plus zero": lambda x: REGISTRY["add"](x, full(X, 0)),
    "less minus zero": lambda x: REGISTRY["subtract"](x, full(X, -0.0)),
    "one by": lambda x: REGISTRY["divide"](full(X, 1), x),
    "zero less": lambda x: REGISTRY["subtract"](full(X, 0), x),
    "no more than the least": lambda x: REGISTRY["minimum"](x, full(X, -np.inf)),
    "times two": lambda x: REGISTRY["multiply"](x, full(X, 2)),
    "transpose out of order": lambda x: REGISTRY["transpose"](x, permutation=(1, 0)),
    "convert": lambda x: REGISTRY["convert"](x, dtype=DTYPES["bf16"]),
    "not one everywhere": lambda x: REGISTRY["multiply"](
        x, REGISTRY["constant"](value=np.array([[1, 1, 1], [1, 1, 2]], np.float32))
    ),
}


@pytest.mark.parametrize("what", KEPT)
def test_what_changes_a_bit_is_kept(what: str) -> None:
    program = program_of(KEPT[what])
    assert names(simplify(program)) == names(program)


def test_integers_plus_zero_fold() -> None:
    program = program_of(lambda x: REGISTRY["add"](full(x.type, 0), x), TensorType((4,), DTYPES["i32"]))
    assert names(simplify(program)) == []


def test_a_broadcast_constant_is_a_constant() -> None:
    """One equation of the full shape, of which nothing is stored and that every use places as it likes."""

    def build(x: Var) -> Var:
        half = REGISTRY["convert"](REGISTRY["constant"](value=np.array(0.5)), dtype=DTYPES["f32"])
        return REGISTRY["multiply"](x, REGISTRY["broadcast_in_dim"](half, shape=(2, 3), dimensions=()))

    assert print_program(simplify(program_of(build))) == (
        "program f(%x: f32[2, 3]) -> (f32[2, 3]) {\n"
        "  %1: f32[2, 3] = constant() {value=splat(f32[2, 3], 0.5)}\n"
        "  %2: f32[2, 3] = multiply(%x, %1)\n"
        "  return %2\n"
        "}"
    )
    value = simplify(program_of(build)).eqns[0].params["value"]
    assert value.strides == (0, 0)


def test_arithmetic_of_constants_is_done_once() -> None:
    def build(x: Var) -> Var:
        mean = REGISTRY["divide"](full(TensorType((), X.dtype), 1), full(TensorType((), X.dtype), 6))
        return REGISTRY["multiply"](x, REGISTRY["broadcast_in_dim"](mean, shape=(2, 3), dimensions=()))

    simple = simplify(program_of(build))
    assert names(simple) == ["constant", "multiply"]
    assert simple.eqns[0].params["value"].reshape(-1)[0] == np.float32(1) / np.float32(6)


def test_transcendental_functions_of_constants_stay() -> None:
    """NumPy and XLA differ in the last bit."""
    program = program_of(lambda x: REGISTRY["add"](x, REGISTRY["exponential"](full(X, 1))))
    assert names(simplify(program)) == ["constant", "exponential", "add"]


def test_a_reshape_that_is_used_itself_stays() -> None:
    with Builder("f") as builder:
        x = builder.input(X)
        line = REGISTRY["reshape"](x, shape=(6,))
        program = builder.build([line, REGISTRY["reshape"](line, shape=(3, 2))])
    simple = simplify(program)
    assert names(simple) == ["reshape", "reshape"]
    assert simple.eqns[1].inputs == simple.inputs


def test_an_output_that_folds_to_an_input_is_that_input() -> None:
    program = fold(program_of(lambda x: REGISTRY["multiply"](x, full(X, 1))))
    assert program.outputs == program.inputs
    verify(program)
