"""Derivatives at kinks, guards and poles against JAX: value, tangent and cotangents of every case in tests/tools/kink_cases.py, as JAX
0.10 gave them (tests/goldens/kinks.txt). What meshjit does otherwise on purpose is listed with its reason (docs/jit.md)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from tests.tools.kink_cases import cases, names_of, outcome
from tests.tools.numpy_cases import parsed
from tests.tools.numpy_eager import numpy_eager

GOLDEN = Path(__file__).parent / "goldens" / "kinks.txt"
RESULTS = dict(line.split("  ->  ", 1) for line in GOLDEN.read_text().splitlines())

# Where the values of NumPy, which stands for XLA in most of these tests, or its choice among vectors that are all right, is another.
ON_DEVICE = (
    "lax.lgamma @ line", "lax.digamma @ line", "lambda x: lax.polygamma(1.0, x) @ line", "lambda x: jnp.power(x, 0.5) @ line",
    "jnp.log @ complexes", "lambda x: jnp.linalg.norm(x, 'nuc') @ [[1, 1], [1, 1]]", "lambda x: jnp.linalg.norm(x, -2) @ [[1, 1], [1, 1]]",
)  # fmt: skip

# Both singular values are the root of 5, so rounding decides which is the greater one, on every machine in its own way.
DECIDED_BY_ROUNDING = tuple(f"lambda x: jnp.linalg.norm(x, {order}) @ [[1, -2], [2, 1]]" for order in (2, -2))

# What differs on purpose: cases that begin so, and why.
_TO_THE_0 = "x ** 0 is 1 for every x, so its derivative with respect to x is 0; 0 * (1 / 0) is NaN in JAX, which calls that a to-do"
_SHARES = "beside an infinity the other operand has no share, and of two infinities the first has all; NaN or exp(x) in JAX"
_TIES = "what ties give depends on the order of comparisons: here one element after another, in JAX a tree"
_SINGULAR = "the logarithm of 0 has no derivative: NaN, in JAX infinities and NaN mixed"
_AT_NAN = "relu at NaN is NaN, with derivative 1; 0 in JAX. To ask costs a comparison more per element"
_OUTSIDE = "outside of the domain, where the value is NaN"
DIFFERENT = {
    "jnp.power @ pairs": _TO_THE_0,
    "jnp.float_power @ pairs": _TO_THE_0,
    "lax.pow @ pairs": _TO_THE_0,
    "lambda x: jnp.power(x, 0.0) @": _TO_THE_0,
    "jnp.logaddexp @ pairs": _SHARES,
    "jnp.logaddexp2 @ pairs": _SHARES,
    "lambda x: jnp.logaddexp(x, x) @": _SHARES,
    "lambda x: jnp.logaddexp(x, -jnp.inf) @": _SHARES,
    "lambda x: lax.cummax(x, 1) @ [[0, 0, 0], [0, 0, 0]]": _TIES,
    "lambda x: lax.cummin(x, 1) @ [[0, 0, 0], [0, 0, 0]]": _TIES,
    "lambda x: jnp.linalg.slogdet(x)[1] @ [[0]]": _SINGULAR,
    "lambda x: jnp.linalg.slogdet(x)[1] @ [[1, 2], [2, 4]]": _SINGULAR,
    "lambda x: jnp.linalg.slogdet(x)[1] @ [[1, 0], [0, 0]]": _SINGULAR,
    "lambda x: jnp.linalg.slogdet(x)[1] @ [[1, 2, 3], [2, 4, 6], [1, 1, 1]]": _SINGULAR,
    "lambda x: jnp.linalg.slogdet(x)[1] @ [[1, 0, 0": _SINGULAR,
    "nn.relu @ line": _AT_NAN,
    "nn.relu6 @ line": _AT_NAN,
    "nn.hard_sigmoid @ line": _AT_NAN,
    "nn.log1mexp @ line": _OUTSIDE,
    "jnp.arccosh @ line": _OUTSIDE,
    "lax.acosh @ line": _OUTSIDE,
    "jnp.sign @ complexes": "a complex sign turns with its argument; JAX gives it derivative 0",
    "jnp.sqrt @ complexes": "infinite at 0 as that of reals, NaN in JAX",
    "lambda x: jnp.modf(x)[0] @": "the fraction of infinity is 0, as in NumPy; NaN in JAX",
    "lambda x: jnp.ldexp(x, 2) @": "the derivative is 2 ** n at 0 and infinity, too; 1 in JAX",
    "lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), 'VALID') @ [-inf, -inf, 0, 1]": (
        "of a window of nothing but -inf no element is chosen, as of one of padding; the first in JAX"
    ),
}


def _result(case: str, jit: bool) -> str:
    if jit:
        return outcome(case, mj, names_of(mj, mnp), mj.jit)  # pyright: ignore[reportArgumentType]
    with numpy_eager():
        return outcome(case, mj, names_of(mj, mnp))  # pyright: ignore[reportArgumentType]


def _differs(case: str, jit: bool = False) -> str | None:
    """What is wrong with our result, or None."""
    found, expected = _result(case, jit), RESULTS[case]
    ours, theirs = parsed(found), parsed(expected)
    equal = [head for head, _ in ours] == [head for head, _ in theirs] and all(
        np.allclose(mine, other, rtol=1e-4, atol=1e-6, equal_nan=True)
        for (_, mine), (_, other) in zip(ours, theirs, strict=True)
    )
    return None if equal else f"gave {found}, JAX {expected}"


def _is_different(case: str) -> bool:
    return case.startswith(tuple(DIFFERENT))


def _group(case: str) -> str:
    """The function's name."""
    return case.removeprefix("lambda x: ").split("(")[0].split(" @ ")[0]


ALIKE = [case for case in RESULTS if not _is_different(case) and case not in DECIDED_BY_ROUNDING]
GROUPS = {
    name: list(group)
    for name, group in itertools.groupby(sorted((c for c in ALIKE if c not in ON_DEVICE), key=_group), _group)
}


@pytest.mark.parametrize("group", GROUPS)
def test_derivatives_are_those_of_jax(group: str) -> None:
    wrong = {case: _differs(case) for case in GROUPS[group]}
    assert not {case: text for case, text in wrong.items() if text is not None}


@pytest.mark.device
@pytest.mark.parametrize("case", ALIKE[::40])
def test_some_under_jit(case: str) -> None:
    assert _differs(case, jit=True) is None


@pytest.mark.parametrize("case", ON_DEVICE)
def test_what_xla_decides_is_as_recorded(case: str) -> None:
    """Not marked `device`: the newest XLA has other values at poles (digamma(0) is -inf, not NaN)."""
    assert _differs(case, jit=True) is None


@pytest.mark.parametrize("start", DIFFERENT)
def test_what_differs_still_differs(start: str) -> None:
    cases_of = [case for case in RESULTS if case.startswith(start)]
    assert cases_of and all(_differs(case) is not None for case in cases_of), "this is as in JAX now; take it off the list"


def test_the_goldens_are_those_of_the_cases() -> None:
    assert list(RESULTS) == list(dict.fromkeys(cases())) and set(DECIDED_BY_ROUNDING) <= set(RESULTS)


def test_a_wrong_derivative_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RESULTS, "lax.sqrt @ line", RESULTS["lax.rsqrt @ line"])
    assert _differs("lax.sqrt @ line") is not None
