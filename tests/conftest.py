"""Every test session has eight virtual CPU devices (tests/tools/__init__.py); Hypothesis draws the same examples every time.

    pytest -m quick             a minute's sample of every room, see tests/tools/quick.py
    pytest --update-goldens     writes tests/goldens/*.txt anew; read the diff before keeping it
    XLA_FLAGS= pytest           compiles as users do

Otherwise LLVM optimises nothing, and XLA writes what goes element by element without MLIR: the thousands of small programs compile
in a third of the time. XLA's own passes run all the same. `.ci/run` tests the newest jaxlib as users compile, and the fuzzers always do.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.tools.quick import EVERY

_QUICK_TO_COMPILE = "--xla_backend_optimization_level=0"
if version("jaxlib").startswith("0.10."):  # XLA dies of flags that it does not know
    _QUICK_TO_COMPILE += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", _QUICK_TO_COMPILE)

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=False
)
settings.load_profile("default")

GOLDENS = Path(__file__).parent / "goldens"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write the golden texts anew")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` does not import the files that have nothing for it."""
    is_test = collection_path.name.startswith("test_")
    return True if is_test and config.option.markexpr == "quick" and collection_path.name not in EVERY else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen = Counter[str]()
    for item in items:
        name = item.path.name
        if name in EVERY and seen[name] % EVERY[name] == 0:
            item.add_marker("quick")
        seen[name] += 1


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """A variable that a test leaves behind is seen by every process that later tests start."""
    before = _environment()
    yield
    after = _environment()
    for name in after.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
    assert after == before, "the test changed os.environ: monkeypatch.setenv puts it back"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): the text is that of tests/goldens/name.txt, or becomes it with --update-goldens."""

    def check(name: str, text: str) -> None:
        path = GOLDENS / f"{name}.txt"
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is not there yet\n  fix: pytest --update-goldens, then read it"
        assert text == path.read_text(), f"{path.name} changed; if that is right: pytest --update-goldens"

    return check


@pytest.fixture
def eager(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ops outside of traces run as NumPy, but for tests marked `device`."""
    from tests.tools.numpy_eager import numpy_eager

    with nullcontext() if request.node.get_closest_marker("device") else numpy_eager():
        yield


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of jitted functions that C++ left to Python."""
    from meshjit.api.wrapped import Wrapped

    calls: list[Any] = []
    original = Wrapped._call_in_python

    def counted(self: Wrapped, args: Any, kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return original(self, args, kwargs)

    monkeypatch.setattr(Wrapped, "_call_in_python", counted)
    return calls
