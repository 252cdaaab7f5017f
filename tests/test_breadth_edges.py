"""Functions of scipy, lax and random at the edges of what they take against JAX: dtype, weakness, shape and elements, or the kind of
error, of every call in tests/tools/edge_cases.py, as JAX 0.10 gave them (tests/goldens/edge_surface.txt)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import meshjit as mj
from tests.tools.breadth_cases import operands, scope
from tests.tools.edge_cases import calls, outcome
from tests.tools.numpy_cases import unlike
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

GOLDEN = Path(__file__).parent / "goldens" / "edge_surface.txt"
RESULTS = dict(line.split("  ->  ", 1) for line in GOLDEN.read_text().splitlines())

# Where we differ on purpose, and why.
DIFFERENT = {
    "scipy.special.loggamma(-c - 2.5)": "on the negative axis the sign of the zero says from which side, as SciPy's; JAX takes none",
    "scipy.stats.bernoulli.pmf(w % 2, -v)": "nan where p is no probability, as SciPy's; JAX gives numbers above 1",
    "random.gamma(random.key(0), c)": "complex parameters are refused, as JAX's pareto and chisquare do; here it drops a part",
}


def _group(call: str) -> str:
    return call[: call.index("(")].rpartition(".")[0]


GROUPS = {name: list(group) for name, group in itertools.groupby(sorted(RESULTS, key=_group), _group)}


def difference(call: str) -> str | None:
    """What is wrong with our outcome of the call, or None."""
    found, expected = outcome(call, {**scope(mj), **operands(host)}), RESULTS[call]
    if found.startswith("!") or expected.startswith("!"):
        alike = found[0] == expected[0] and set(found.split()[1:]) & set(expected.split()[1:])
        return None if alike else f"gave {found[:200]}, JAX {expected[:200]}"
    return unlike(found, expected)


@pytest.mark.parametrize("group", GROUPS)
def test_as_jax(group: str) -> None:
    texts = {call: difference(call) for call in GROUPS[group] if call not in DIFFERENT}
    assert not {call: text for call, text in texts.items() if text is not None}


@pytest.mark.parametrize("call", DIFFERENT)
def test_what_differs_still_differs(call: str) -> None:
    assert difference(call) is not None, "take it out of DIFFERENT"


def test_every_call_is_recorded() -> None:
    assert list(dict.fromkeys(calls())) == list(RESULTS)
