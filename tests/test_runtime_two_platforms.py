"""Arrays on the devices of two platforms. The second is another client of CPU devices, which jaxlib takes for strangers, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.device

BEGIN = """
import numpy as np
import meshjit as mj, meshjit.numpy as mnp
from meshjit.runtime import _jaxlib, client
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

client._clients["cuda"] = _jaxlib.cpu_client(8)
OURS, THEIRS = mj.devices("cpu"), mj.devices("cuda")
ours, theirs = (Mesh(np.array(devices).reshape(4, 2), ("x", "y")) for devices in (OURS, THEIRS))
x = np.arange(64, dtype=np.float32).reshape(8, 8)

def check(array, values=x):
    assert array.devices() <= set(THEIRS), array.devices()
    np.testing.assert_array_equal(np.asarray(array), values)

def on(mesh, *dims):
    return NamedSharding(mesh, P(*dims))
"""

CASES = {
    "a device to a device": "check(mj.device_put(mj.device_put(x, OURS[1]), THEIRS[2]))",
    "a device to a mesh": "check(mj.device_put(mj.device_put(x, OURS[1]), on(theirs, 'x')))",
    "a mesh to a device": "check(mj.device_put(mj.device_put(x, on(ours, 'x', 'y')), THEIRS[3]))",
    "a mesh to a mesh": "check(mj.device_put(mj.device_put(x, on(ours, 'x', 'y')), on(theirs, 'y', 'x')))",
    "donated": "check(mj.device_put(mj.device_put(x, OURS[0]), on(theirs, 'x'), donate=True))",
    "empty": "check(mj.device_put(mj.device_put(x[:0], OURS[0]), THEIRS[1]), x[:0])",
    "small dtypes": """
for dtype in (bool, np.int8, np.float16, np.complex64, mnp.bfloat16, mnp.int4, mnp.float8_e4m3fn):
    check(mj.device_put(mj.device_put(x.astype(dtype), OURS[0]), THEIRS[1]), x.astype(dtype))
""",
    "arguments that nobody placed": """
check(mj.jit(lambda a: a * 1, in_shardings=on(theirs, "x"))(mnp.asarray(x)))
check(mj.jit(lambda a, b: a + b * 0)(mj.device_put(x, on(theirs, "x")), mnp.asarray(x)))
""",
    "an array from outside that nobody placed": """
free = mnp.asarray(x)
check(mj.jit(lambda a: a + free * 0)(mj.device_put(x, on(theirs, "x"))))
""",
    "the default device": """
with mj.default_device(THEIRS[1]):
    check(mnp.ones(3), np.ones(3))
    check(mj.jit(lambda a: a * 1)(x))
""",
    "from pieces": """
pieces = [mj.device_put(x[i : i + 1], device) for i, device in enumerate(theirs.devices.flat)]
check(mj.make_array_from_single_device_arrays((8, 8), on(theirs, ("x", "y")), pieces))
check(mj.make_array_from_callback((8, 8), on(theirs, "x"), lambda index: x[index]))
""",
    "both in one call": """
placed, other = mj.device_put(x, on(ours, "x")), mj.device_put(x, on(theirs, "x"))
check(mj.jit(lambda a: a + placed * 0)(other))
try:
    mj.jit(lambda a, b: a + b)(placed, other)
except ValueError as error:
    assert "argument a is on Mesh('x': 4, 'y': 2) of devices [0, 1, 2, 3, 4, 5, 6, 7], but argument b" in str(error), error
else:
    raise AssertionError("one program on the devices of two platforms")
""",
}


def test_arrays_go_from_one_platform_to_another() -> None:
    code = BEGIN + "".join(f"\nprint({name!r})\n{case}" for name, case in CASES.items())
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.stdout.splitlines()) == ("", list(CASES))
