"""Which of XLA's faults the installed jaxlib still has; after an upgrade, what is mended need no longer be steered around.

    python -m tests.tools.xla_faults
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - its dtypes are then known by name
import numpy as np

FOLDER = Path(__file__).parent


def main() -> None:
    """One process per fault: some end it."""
    for name in CASES:
        done = subprocess.run([sys.executable, "-m", "tests.tools.xla_faults", name], capture_output=True, text=True)
        last = (done.stdout.strip().splitlines() or [f"ends the process ({done.returncode})"])[-1]
        print(f"{name:24} {last}")


def check(name: str) -> str:
    from meshjit.runtime import _jaxlib

    replicas, partitions, arguments, expected = CASES[name]
    client = _jaxlib.cpu_client(2)
    row = tuple(_jaxlib.devices(client))[: replicas * partitions]
    text = (FOLDER / f"{name}.mlir").read_text()
    try:
        executable = compiled(client, text, row, replicas, partitions)
    except Exception as error:  # noqa: BLE001  whatever XLA says
        return f"is refused: {str(error).splitlines()[0]:.100}"
    want = expected(*arguments)
    handles = [_jaxlib.put([a] * len(row), row) for a in arguments]
    (out,) = _jaxlib.execute(executable, handles, [(want.shape, want.dtype)], row)
    wrong = sum(int((array != want).sum()) for _, array in _jaxlib.fetch(out))
    return f"is wrong in {wrong} of {want.size * len(row)} elements" if wrong else "is right"


def compiled(client: Any, text: str, row: Sequence[Any], replicas: int, partitions: int) -> Any:
    """As replicas, as meshjit does, or as partitions."""
    from jaxlib import xla_client

    from meshjit.runtime._jaxlib.layouts import device_list

    options = xla_client.CompileOptions()
    build = options.executable_build_options
    for each in (options, build):
        each.num_replicas, each.num_partitions = replicas, partitions
    build.use_spmd_partitioning = partitions > 1
    numbers = np.array([device.id for device in row]).reshape(replicas, partitions)
    build.device_assignment = xla_client.DeviceAssignment.create(numbers)
    return client.compile_and_load(text.encode(), device_list(tuple(row)), options)


def updated(x: Any) -> Any:
    y = x + x
    y[1:-1] = (x + x)[2:] - (x + x)[:-2]
    return y[None]


def sliced(x: Any, first: Any, second: Any) -> Any:
    """Starts are clamped, each in its turn."""
    five = x[int(np.clip(first, 0, 5)) :][:5]
    return five[int(np.clip(second, 0, 3)) :][:2]


def exchanged(x: Any) -> Any:
    """Of two devices with the same values; the second one's piece is padding."""
    return np.concatenate([x.T[:, None], x.T[:, None]])


Case = tuple[int, int, Sequence[Any], Callable[..., Any]]  # replicas, partitions, arguments, what is right (on device 0)

CASES: dict[str, Case] = {
    "update_in_place": (1, 1, [np.arange(12, dtype=np.float32).reshape(6, 2) ** 2], updated),
    "slice_of_slice": (1, 1, [np.arange(10, dtype=np.int32), np.array(7, np.int32), np.array(1, np.int32)], sliced),
    "pieces_of_all_to_all": (2, 1, [np.arange(48, dtype=np.int32).reshape(4, 12)], exchanged),
    "expanded_beside_branch": (1, 2, [np.zeros(4, np.float32), np.array(0, np.int32)], lambda x, index: x),
    "transposed_beside_branch": (
        1, 2, [np.ones((3, 1, 4), np.float32), np.ones(4, np.float32), np.array(0, np.int32)],
        lambda x, y, index: x.transpose(0, 2, 1) + y[:, None],
    ),
    "joined_two_bits": (1, 1, [np.ones((2, 3), "int2")], lambda x: np.concatenate([x, x], 1)),
    "gathered_two_bits": (2, 1, [np.ones(3, "int2")], lambda x: np.concatenate([x, x])),
    "mixed_four_bits": (1, 1, [np.ones((2, 2), "int4")], lambda x: x.astype(np.int32) @ x.astype(np.int32)),
}  # fmt: skip

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(check(sys.argv[1]))
    else:
        main()
