"""The bar of a long search: who sees it, and what it says."""

from __future__ import annotations

import io
import sys
import time
import types
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.plan.automatic.watch import WATCH, Watch
from meshjit.runtime.progress import compiling, is_watched, progress_bar, text_of
from meshjit.sharding import AbstractMesh


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    return stream


@pytest.mark.parametrize(
    ("stream", "environ", "seen"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (None, {}, False),
        (Terminal(), {"CI": "true"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"PMI_RANK": "0", "PMI_SIZE": "2"}, True),
        (Terminal(), {"PMI_RANK": "1", "PMI_SIZE": "2"}, False),
    ],
)
def test_who_sees_it(stream: object, environ: dict[str, str], seen: bool) -> None:
    assert is_watched(stream, environ) == seen


def test_notebooks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    assert not is_watched(Terminal(), {})


def test_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with progress_bar("step", patience=0.0):
        watch = WATCH.get()
        assert watch is not None
        watch.plans, watch.seconds, watch.bound, watch.spent = 12, 1.83e-3, 1.6e-3, 0.25
        deadline = time.monotonic() + 20
        while "12 plans" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert "planning step: 12 plans, 1.83 ms, at most 14 % from the optimum" in terminal.getvalue() and WATCH.get() is None
    assert text_of("step", Watch()) == "planning step"
    assert text_of("step", Watch(3, 2.68e-3, 1e-3)) == "planning step: 3 plans, 2.68 ms, at most 2.68 times the optimum"
    assert text_of("step", Watch(3, 2e-3)) == "planning step: 3 plans, 2 ms"


def test_a_long_compilation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with compiling("step", 1234, patience=0.0):
        deadline = time.monotonic() + 20
        while "1,234" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert "XLA compiles step (1,234 equations)" in terminal.getvalue()


def test_a_short_compilation_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    assert mj.jit(lambda x: x + 41)(1.0) == 42 and terminal.getvalue() == ""


def step(w: Any, x: Any) -> Any:
    for _ in range(4):
        x = mnp.tanh(x @ w) + x
    return mnp.sum(x * x)


def test_a_proof_tells_its_bound_and_what_it_spent() -> None:
    token = WATCH.set(Watch())
    try:
        types = mj.ShapeDtypeStruct((64, 64), np.float32), mj.ShapeDtypeStruct((128, 64), np.float32)
        plan = mj.auto(mj.grad(step), mesh=AbstractMesh((2, 4), ("x", "y"))).trace(*types).plan().plan
        watch = WATCH.get()
        assert plan.optimum is not None and watch is not None and watch.spent is not None
        assert 0 < watch.bound <= watch.seconds * (1 + 1e-9) and 0 < watch.spent <= 1
    finally:
        WATCH.reset(token)


def test_a_short_search_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    planned = mj.auto(lambda x: x @ x, devices=4).trace(mj.ShapeDtypeStruct((64, 64), np.float32)).plan()
    assert planned.plan.optimum is not None and terminal.getvalue() == ""


def test_a_search_tells_what_it_found() -> None:
    token = WATCH.set(Watch())
    try:
        mj.auto(lambda x: x @ x, devices=4).trace(mj.ShapeDtypeStruct((64, 64), np.float32)).plan()
        watch = WATCH.get()
        assert watch is not None and watch.plans > 0 and 0 < watch.seconds < 1
    finally:
        WATCH.reset(token)
