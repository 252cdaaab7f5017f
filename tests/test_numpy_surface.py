"""The numpy and lax surfaces against JAX: dtype, weakness, shape and elements of every call in tests/tools/numpy_cases.py, as JAX 0.10
gave them (tests/goldens/numpy_surface.txt)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from tests.tools.numpy_cases import calls, describe, operands, parsed
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

GOLDEN = Path(__file__).parent / "goldens" / "numpy_surface.txt"
RESULTS = dict(line.split("  ->  ", 1) for line in GOLDEN.read_text().splitlines())

# Where we differ on purpose, and why.
_INVERSE = "an integer to a negative power is the true power rounded towards 0, in JAX its inverse modulo 2**32"
DIFFERENT = {
    "np.power(u,i)": _INVERSE,
    "np.power(3,i)": _INVERSE,
    "np.fmod(b,b[::-1])": "modulo 0 is 0 for booleans as it is for integers",
}


def _tolerance(head: str) -> float:
    return 0.02 if head.startswith("bfloat16") else 2e-3 if head.startswith("float16") else 3e-5


def _differs(call: str, expected: str) -> str | None:
    """What is wrong with our result of the call, or None."""
    try:
        found = describe(eval(call, {"np": mnp, "lax": lax}, operands(host)))
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return _compare(found, expected)


def _compare(found: str, expected: str) -> str | None:
    ours, theirs = parsed(found), parsed(expected)
    if [head for head, _ in ours] != [head for head, _ in theirs]:
        return f"gave {found[:120]}, JAX {expected[:120]}"
    for (head, mine), (_, other) in zip(ours, theirs, strict=True):
        if not np.allclose(mine, other, rtol=_tolerance(head), atol=1e-6, equal_nan=True):
            return f"gave {found[:120]}, JAX {expected[:120]}"
    return None


def _group(call: str) -> str:
    return call[: call.index("(")] if call.startswith(("np.", "lax.")) and "(" in call else "operators"


GROUPS = {name: list(group) for name, group in itertools.groupby(sorted(RESULTS, key=_group), _group)}


@pytest.mark.parametrize("group", GROUPS)
def test_as_jax(group: str):
    wrong = {call: _differs(call, RESULTS[call]) for call in GROUPS[group] if call not in DIFFERENT}
    assert not {call: text for call, text in wrong.items() if text is not None}


@pytest.mark.parametrize("call", DIFFERENT)
def test_what_differs_still_differs(call: str):
    assert _differs(call, RESULTS[call]) is not None, "this is as in JAX now; take it off the list"


def test_the_goldens_are_those_of_the_calls():
    assert set(RESULTS) <= set(calls())
    assert len(RESULTS) > 1400


def test_a_wrong_result_is_seen():
    assert _differs("np.add(f,2)", RESULTS["np.add(f,s)"]) is not None
    assert _differs("np.add(i,2)", RESULTS["np.add(i,2.5)"]) is not None


@pytest.mark.device
@pytest.mark.parametrize("call", [call for call in list(RESULTS)[::40] if call not in DIFFERENT])
def test_some_under_jit(call: str):
    """The same through XLA; now and then a value differs in the last places."""
    try:
        results = mj.jit(lambda **names: eval(call, {"np": mnp, "lax": lax}, names))(**operands(np.asarray))
    except mj.errors.ConcretizationTypeError:
        pytest.skip("needs elements to know its shape")
    assert _compare(describe(results), RESULTS[call]) is None


def test_equality_of_nan_and_the_name_of_an_operand():
    x = np.float32([1, np.nan])
    assert mnp.broadcast_to(array=x, shape=(3, 2)).shape == (3, 2)
    assert mnp.array_equal(x, x, equal_nan=True) and not mnp.array_equal(x, x) and not mnp.array_equal(x, x[:1], equal_nan=True)
    assert mnp.array_equiv(x[:1], np.float32([[1], [1]]))
