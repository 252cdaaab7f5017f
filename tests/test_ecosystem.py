"""Libraries' own quick starts under `meshjit.as_jax`, beside JAX: optax, equinox, flax.nnx, orbax, einops, jaxtyping, chex.

They are installed by `pip install -e ".[ecosystem]"`, JAX with them; MESHJIT_TEST_ECOSYSTEM may name another Python that has them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

DEVICES = {"MESHJIT_NUM_CPU_DEVICES": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
ROOT = Path(__file__).parents[1]
PROGRAMS = sorted((ROOT / "tests" / "tools" / "quick_starts").glob("*_program.py"))
PYTHON = sys.executable if importlib.util.find_spec("equinox") else os.environ.get("MESHJIT_TEST_ECOSYSTEM")

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(PYTHON is None, reason='libraries are missing: pip install -e ".[ecosystem]", or MESHJIT_TEST_ECOSYSTEM'),
]


def printed(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", **DEVICES}
    result = subprocess.run([str(PYTHON), *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem.removesuffix("_program"))
def test_prints_what_it_prints_under_jax(program: Path) -> None:
    assert printed("-m", "meshjit.as_jax", str(program)) == printed(str(program))
