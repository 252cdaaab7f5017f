"""fft and linalg against JAX: dtype, weakness, shape and elements of every call in tests/linalg_cases.py, as JAX 0.10 gave
them (tests/goldens/linalg_surface.txt)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from tests.linalg_cases import calls
from tests.numpy_cases import describe, operands
from tests.numpy_eager import host, numpy_eager
from tests.test_numpy_surface import _compare

GOLDEN = Path(__file__).parent / "goldens" / "linalg_surface.txt"
RESULTS = dict(line.split("  ->  ", 1) for line in GOLDEN.read_text().splitlines())
GROUPS = {name: list(group) for name, group in itertools.groupby(sorted(RESULTS), lambda call: call[: call.index("(")])}


@pytest.fixture(autouse=True)
def eager(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("device"):
        yield
    else:
        with numpy_eager():
            yield


def called(call: str, names: dict[str, object]) -> str:
    return describe(eval(call, {"np": mnp, "lax": lax}, names))


@pytest.mark.parametrize("group", GROUPS)
def test_as_jax(group: str) -> None:
    texts = {call: _compare(called(call, operands(host)), RESULTS[call]) for call in GROUPS[group]}
    assert not {call: text for call, text in texts.items() if text is not None}


def test_the_goldens_are_those_of_the_calls() -> None:
    assert set(RESULTS) <= set(calls()) and len(RESULTS) > 200


@pytest.mark.device
@pytest.mark.parametrize("call", list(RESULTS)[::30])
def test_some_under_jit(call: str) -> None:
    results = mj.jit(lambda **names: eval(call, {"np": mnp, "lax": lax}, names))(**operands(np.asarray))
    assert _compare(describe(results), RESULTS[call]) is None
