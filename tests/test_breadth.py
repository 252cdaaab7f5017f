"""Functions that are wide rather than deep against JAX: dtype, weakness, shape and elements of every call in
tests/tools/breadth_cases.py, as JAX 0.10 gave them (tests/goldens/breadth_surface.txt)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import meshjit as mj
from tests.tools.breadth_cases import calls, operands, scope
from tests.tools.numpy_cases import describe, unlike
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

GOLDEN = Path(__file__).parent / "goldens" / "breadth_surface.txt"
RESULTS = dict(line.split("  ->  ", 1) for line in GOLDEN.read_text().splitlines())

# Where we differ on purpose, and why.
_FLOATS = "booleans, as NumPy's; JAX's are the operand's dtype where a part has one element"
_ZEROS = "roots that are 0 are exact and stand last, as NumPy's; JAX takes them out of the same matrix as the others"
DIFFERENT = {
    **{f"np.logical_{name}.reduceat(v, np.array([0, 2, 1]))": _FLOATS for name in ("and", "or", "xor")},
    "np.roots(np.array([0., 1., -3., 2., 0.]))": _ZEROS,
    "np.roots(l)": _ZEROS,
    "scipy.signal.istft(scipy.signal.stft(z, nperseg=10)[2], nperseg=10)": "of several signals JAX gives as many times as signals",
}


def _group(call: str) -> str:
    return call[: call.index("(")]


GROUPS = {name: list(group) for name, group in itertools.groupby(sorted(RESULTS, key=_group), _group)}


def difference(call: str) -> str | None:
    """What is wrong with our result of the call, or None."""
    try:
        found = describe(eval(call, {**scope(mj), **operands(host)}))
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return unlike(found, RESULTS[call])


@pytest.mark.parametrize("group", GROUPS)
def test_as_jax(group: str) -> None:
    texts = {call: difference(call) for call in GROUPS[group] if call not in DIFFERENT}
    assert not {call: text for call, text in texts.items() if text is not None}


@pytest.mark.parametrize("call", DIFFERENT)
def test_what_differs_still_differs(call: str) -> None:
    assert difference(call) is not None, "this is as in JAX now; take it off the list"


def test_the_goldens_are_those_of_the_calls() -> None:
    assert set(RESULTS) <= set(calls()) and len(RESULTS) > 100
