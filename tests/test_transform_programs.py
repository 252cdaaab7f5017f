"""jvp, gradient, vjp and batch as Program → Program: legal, and right against differences, one another and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit.numpy as mnp
from meshjit import tree
from meshjit.config import config
from meshjit.core.parser import parse_program
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.core.types import TensorType, is_inexact
from meshjit.core.verify import verify
from meshjit.simulate.evaluate import evaluate
from meshjit.trace import Argument, trace_to_program
from meshjit.transform.batch import batch
from meshjit.transform.jvp import jvp
from meshjit.transform.pipeline import simplify
from meshjit.transform.transpose import gradient, vjp
from tests.tools.fuzz import case


def program_of(fun: Any, *types: str) -> Program:
    """The function's Program with x64 on."""
    arguments = [Argument(TensorType.parse(t), False, f"x{i}") for i, t in enumerate(types)]
    before = config.enable_x64
    config.update("enable_x64", True)
    try:
        return verify(trace_to_program(fun, arguments, tree.structure((tuple(types), {}))).program)
    finally:
        config.update("enable_x64", before)


def mlp(x: Any, up: Any, down: Any) -> Any:
    return mnp.sum(mnp.tanh(mnp.dot(x, up)) ** 2 * mnp.dot(x, down))


MLP = program_of(mlp, "f64[2, 3]", "f64[3, 4]", "f64[3, 4]")
ALL = [True, True, True]


def drawn(seed: int, equations: int = 6) -> tuple[Program, list[Any]]:
    program, _, _, _, arrays = case(seed, equations)
    return program, arrays


def directions(seed: int, types: Any) -> list[np.ndarray[Any, Any]]:
    """Small integers, so that sums of products are exact."""
    generator = np.random.default_rng(seed)
    return [generator.integers(-2, 3, t.shape).astype(t.dtype) for t in types if is_inexact(t.dtype)]


# -- against differences


def test_gradient_is_the_difference_quotient() -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=t.shape) for t in MLP.input_types]
    program = verify(gradient(MLP, ALL))
    _, *found = evaluate(program, [*arrays, np.ones(())])
    step = 1e-6
    for i, cotangent in enumerate(found):
        for place in np.ndindex(arrays[i].shape):
            moved = [a.copy() for a in arrays]
            moved[i][place] += step
            up = evaluate(MLP, moved)[0]
            moved[i][place] -= 2 * step
            slope = (up - evaluate(MLP, moved)[0]) / (2 * step)
            np.testing.assert_allclose(cotangent[place], slope, rtol=1e-7, atol=1e-8)


def test_gradient_of_gradient_is_symmetric() -> None:
    once = gradient(program_of(lambda x: mnp.sum(mnp.sin(x) * mnp.prod(x)), "f64[3]"), [True])
    twice = verify(gradient(once, [True, False]))
    assert [str(t) for t in twice.input_types] == ["f64[3]", "f64[]", "f64[]", "f64[3]"]
    x, rows = np.array([0.3, -0.8, 1.2]), []
    for direction in np.eye(3):
        rows.append(evaluate(twice, [x, np.ones(()), np.zeros(()), direction])[-1])
    np.testing.assert_allclose(np.array(rows), np.array(rows).T, rtol=1e-12)
    step = 1e-6
    for row, e in zip(rows, np.eye(3), strict=True):
        ends = [evaluate(once, [x + s * step * e, np.ones(())])[1] for s in (1, -1)]
        np.testing.assert_allclose(row, (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-8)


def test_jvp_of_gradient_is_gradient_of_jvp() -> None:
    """Both are the Hessian times a direction."""
    program = program_of(lambda x: mnp.sum(mnp.exp(x) * mnp.cumsum(x)), "f64[4]")
    x, v, one = np.array([0.1, 0.2, -0.3, 0.4]), np.array([1.0, -1.0, 2.0, 0.5]), np.ones(())
    forward, flags = jvp(gradient(program, [True]), [True, False])
    assert flags == (True, True)
    slope = evaluate(verify(forward), [x, one, v])[-1]
    tangent, _ = jvp(program, [True])
    backward = gradient(tangent, [True, False])
    np.testing.assert_allclose(evaluate(verify(backward), [x, v, np.zeros(()), one])[-1], slope, rtol=1e-12)


# -- laws on drawn programs


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_transposition(start: int) -> None:
    """<ct, J t> == <J' ct, t>."""
    for seed in range(start, start + 10):
        program, arrays = drawn(seed)
        wrt = [True] * len(program.inputs)
        forward, flags = jvp(program, wrt)
        tangents = directions(seed, program.input_types)
        cotangents = directions(seed + 1, program.output_types)
        count = len(program.outputs)
        slopes = evaluate(verify(forward), [*arrays, *tangents])[count:]
        backward = evaluate(verify(gradient(program, wrt)), [*arrays, *cotangents])[count:]
        marked = [ct for ct, flag in zip(cotangents, flags, strict=True) if flag]
        left = sum(float(np.sum(np.float64(a) * b)) for a, b in zip(marked, slopes, strict=True))
        right = sum(float(np.sum(np.float64(a) * b)) for a, b in zip(tangents, backward, strict=True))
        assert left == pytest.approx(right, rel=1e-4, abs=1e-4), f"seed {seed}\n{program}"


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_vjp_is_gradient_in_two_programs(start: int) -> None:
    for seed in range(start, start + 10):
        program, arrays = drawn(seed)
        wrt = [True] * len(program.inputs)
        cotangents = directions(seed, program.output_types)
        count = len(program.outputs)
        pulled = vjp(program, wrt)
        assert not {*pulled.forward.vars()} & {*pulled.backward.vars()}
        rest = evaluate(verify(pulled.forward), arrays)
        found = evaluate(verify(pulled.backward), [*rest[count:], *cotangents])
        whole = evaluate(gradient(program, wrt), [*arrays, *cotangents])
        for got, want in zip([*rest[:count], *found], whole, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_batch_is_a_loop(start: int) -> None:
    for seed in range(start, start + 10):
        generator = np.random.default_rng(seed)
        program, arrays = drawn(seed)
        size = int(generator.integers(1, 4))
        places = [int(generator.integers(t.rank + 1)) for t in program.input_types]
        in_dims = [None if generator.random() < 0.3 else place for place in places]
        out_dims = [int(generator.integers(t.rank + 1)) for t in program.output_types]
        given, members = [], [[] for _ in range(size)]
        for array, dim in zip(arrays, in_dims, strict=True):
            each = [array if dim is None else generator.integers(-3, 4, array.shape).astype(array.dtype) for _ in range(size)]
            given.append(array if dim is None else np.stack(each, dim))
            for member, x in zip(members, each, strict=True):
                member.append(x)
        found = evaluate(verify(batch(program, in_dims, size, out_dims)), given)
        loops = [evaluate(program, member) for member in members]
        for i, (got, dim) in enumerate(zip(found, out_dims, strict=True)):
            np.testing.assert_array_equal(got, np.stack([loop[i] for loop in loops], dim), f"seed {seed}\n{program}")


@pytest.mark.parametrize("seed", range(10))
def test_transformed_programs_are_legal_and_parse_back(seed: int) -> None:
    program, _ = drawn(seed)
    wrt = [True] * len(program.inputs)
    batched = batch(gradient(program, wrt), [0] * len(program.inputs) + [0] * len(program.outputs), 3,
                    [0] * (len(program.outputs) + len(program.inputs)))  # fmt: skip
    for each in (jvp(program, wrt)[0], gradient(program, wrt), vjp(program, wrt).backward, batched, simplify(batched)):
        text = print_program(verify(each))
        assert print_program(parse_program(text)) == text


# -- what flows and what does not


def test_integers_have_no_tangents() -> None:
    program = program_of(lambda x, i: (x[i], i + 1), "f64[4]", "i32[2]")
    forward, flags = jvp(program, [True, True])
    assert flags == (True, False)
    assert [str(t) for t in forward.input_types] == ["f64[4]", "i32[2]", "f64[4]"]
    pulled = vjp(program, [True, False])
    assert pulled.takes == (True, False)


def test_gradient_with_respect_to_integers_is_an_error() -> None:
    program = program_of(lambda x, i: x[i], "f64[4]", "i32[2]")
    with pytest.raises(TypeError, match=r"no derivative with respect to Var\(x1: i32\[2\]\): its dtype is not floating"):
        gradient(program, [True, True])


def test_inputs_that_do_not_matter_get_zeros() -> None:
    program = gradient(program_of(lambda x, y: mnp.sum(x), "f64[2]", "f64[3]"), [True, True])
    np.testing.assert_array_equal(evaluate(verify(program), [np.ones(2), np.ones(3), np.ones(())])[2], np.zeros(3))


def test_only_what_is_asked_for_is_computed() -> None:
    """The cotangent of one weight needs no product for the other."""
    counts = []
    for wrt in ([True, True, True], [False, True, True], [False, False, True]):
        counts.append(sum(eqn.op.name == "dot_general" for eqn in gradient(MLP, wrt).eqns))
    assert counts == [6, 4, 3]


def test_backward_equations_carry_their_line_and_a_note() -> None:
    program = gradient(MLP, ALL)
    notes = {eqn.source.note for eqn in program.eqns if eqn.source is not None}
    assert "backward" in notes
    assert all(eqn.source is None or eqn.source.function == "mlp" for eqn in program.eqns)


def test_residuals_are_only_what_backward_uses() -> None:
    """tanh needs its result, a sum nothing."""
    pulled = vjp(program_of(lambda x: mnp.sum(x), "f64[5]"), [True])
    assert len(pulled.forward.outputs) == 1
    pulled = vjp(program_of(lambda x: mnp.sum(mnp.sin(x)), "f64[5]"), [True])
    assert [str(v.type) for v in pulled.forward.outputs] == ["f64[]", "f64[5]"]
