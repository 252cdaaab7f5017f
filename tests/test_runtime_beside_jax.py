"""jax attaches its attributes to the class that our Arrays are of, too: both must work in one process, in either order."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.device

ROOT = Path(__file__).parents[1]
WITH_JAX = sys.executable if importlib.util.find_spec("jax") else os.environ.get("MESHJIT_TEST_JAX")


def run(python: str, *arguments: str, path: Path = ROOT) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MESHJIT_", "JAX_", "XLA_"))}
    paths = os.pathsep.join(filter(None, [str(path), str(ROOT), kept.get("PYTHONPATH")]))
    result = subprocess.run(
        [python, *arguments], env={**kept, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(WITH_JAX is None, reason="no jax: install it, or let MESHJIT_TEST_JAX be a Python that has it")
@pytest.mark.parametrize("order", ["before", "after"])
def test_beside_jax(order: str) -> None:
    assert run(str(WITH_JAX), str(ROOT / "tests" / "tools" / "beside_jax.py"), order) == "both whole\n"


LIKE_JAX = """
from jaxlib import _jax
_jax.ArrayImpl.shape = property(lambda self: "their shape")
_jax.ArrayImpl.sum = lambda self: "their sum"
_jax.ArrayImpl.__add__ = lambda self, other: "their +"
_jax.ArrayImpl.__hash__ = None
"""
BOTH = """
import sys
if sys.argv[1] == "before":
    import jax
import numpy as np
import meshjit as mj
x = mj.device_put(np.arange(3, dtype=np.float32), mj.devices()[0])
try:
    import jax
except ImportError as error:
    print(error)
from jaxlib import _jax
from meshjit.runtime._jaxlib.layouts import _MANUAL, Aval
theirs = _jax.GSPMDSharding(_jax.DeviceList((mj.devices()[0],)), _MANUAL)
y = _jax.ArrayImpl(Aval((3,), np.float32), theirs, x._arrays, committed=True, _skip_checks=True)
print(isinstance(x, mj.Array), x.shape, x.sum(), x + 1, x.numpy(), len(x), x.aval, x.is_ready())
print(isinstance(y, mj.Array), y.shape, y.sum(), y + 1, hasattr(y, "numpy"), type(y.aval).__name__, y.is_ready())
"""
OURS = "True (3,) 3.0 [1. 2. 3.] [0. 1. 2.] 3 float32[3] True\n"


@pytest.mark.parametrize("order", ["before", "after"])
def test_beside_what_attaches_as_jax_does(tmp_path: Path, order: str) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(LIKE_JAX)
    out = run(sys.executable, "-c", BOTH, order, path=tmp_path)
    assert out == OURS + "False their shape their sum their + False Aval True\n"


def test_after_an_import_of_jax_that_failed(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(LIKE_JAX + "raise ImportError('too old a jaxlib')")
    out = run(sys.executable, "-c", BOTH, "after", path=tmp_path)
    assert out.startswith("too old a jaxlib\n" + OURS)
