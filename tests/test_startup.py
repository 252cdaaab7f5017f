"""What importing meshjit and a first small call load: no more than they need, because every script waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("networkx", "scipy", "rich", "mpi4py", "jax", "pandas", "matplotlib", "hypothesis", "pytest", "jaxlib.mlir")


def loaded(code: str) -> set[str]:
    """The modules that are loaded after this code, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "MESHJIT_NUM_CPU_DEVICES": "2"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "code",
    [
        "import meshjit",
        "import meshjit as mj; mj.jit(lambda x: x + 1)(1.0)",
        "import meshjit as mj; s = mj.NamedSharding(mj.make_mesh((2,), ('x',)), mj.P('x'));"
        "mj.device_put(mj.numpy.arange(8.0), s).sum().block_until_ready()",
    ],
    ids=["import", "first call", "sharded"],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    found = loaded(code)
    assert not [name for name in HEAVY if name in found]


def test_the_room_of_placement_loads_alone() -> None:
    assert not [name for name in loaded("import sharding") if name.split(".")[0] in ("meshjit", "jaxlib", "networkx")]
