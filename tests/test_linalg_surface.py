"""fft and linalg against JAX: dtype, weakness, shape and elements of every call in tests/tools/linalg_cases.py, as JAX 0.10 gave
them (tests/goldens/linalg_surface.txt)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, scipy
from tests.tools.linalg_cases import calls
from tests.tools.numpy_cases import describe, operands, parsed
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

GOLDEN = Path(__file__).parent / "goldens" / "linalg_surface.txt"
RESULTS = dict(line.split("  ->  ", 1) for line in GOLDEN.read_text().splitlines())
GROUPS = {name: list(group) for name, group in itertools.groupby(sorted(RESULTS), lambda call: call[: call.index("(")])}


def called(call: str, names: dict[str, object]) -> str:
    return describe(eval(call, {"np": mnp, "lax": lax, "scipy": scipy}, names))


def difference(found: str, expected: str) -> str | None:
    """None where all is as in JAX, up to a few roundings of numbers of size 1."""
    ours, theirs = parsed(found), parsed(expected)
    equal = [head for head, _ in ours] == [head for head, _ in theirs] and all(
        np.allclose(mine, other, rtol=1e-4, atol=3e-5, equal_nan=True)
        for (_, mine), (_, other) in zip(ours, theirs, strict=True)
    )
    return None if equal else f"gave {found[:200]}, JAX {expected[:200]}"


@pytest.mark.parametrize("group", GROUPS)
def test_as_jax(group: str) -> None:
    texts = {call: difference(called(call, operands(host)), RESULTS[call]) for call in GROUPS[group]}
    assert not {call: text for call, text in texts.items() if text is not None}


def test_the_goldens_are_those_of_the_calls() -> None:
    assert set(RESULTS) <= set(calls()) and len(RESULTS) > 500


@pytest.mark.device
@pytest.mark.parametrize("call", list(RESULTS)[::30])
def test_some_under_jit(call: str) -> None:
    results = mj.jit(lambda **names: eval(call, {"np": mnp, "lax": lax, "scipy": scipy}, names))(**operands(np.asarray))
    assert difference(describe(results), RESULTS[call]) is None
