"""Programs that a device has no memory for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.core.program import Builder
from meshjit.core.types import TensorType
from meshjit.errors import OutOfMemoryError
from meshjit.ops.base.arithmetic import add
from meshjit.runtime import _jaxlib, exhausted
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

HUGE = 2**48  # a pebibyte of floats: no machine of ours has it


def step(x: Any) -> Any:
    return mnp.zeros(HUGE, np.float32) + x


@pytest.mark.device
@pytest.mark.parametrize("call", [mj.jit(step), lambda x: mj.jit(step).lower(x).compile()(x)], ids=["call", "compiled"])
def test_a_call_says_what_it_needs(call: Any) -> None:
    for _ in range(2):
        with pytest.raises(OutOfMemoryError) as error:
            call(1.0)
        lines = str(error.value).split("\n")
        assert lines[0] == "step: out of memory on device cpu:0: XLA asked for 1,024.0 TiB"
        assert lines[1].startswith("  each device needs 4 bytes for arguments, 1,024.0 TiB for results and ")
        assert lines[2] == "  the largest values on one device, of which XLA may keep none:"
        line = step.__code__.co_firstlineno + 1
        assert f"    1,024.0 TiB: f32[{HUGE}] of add at test_runtime_exhausted.py:{line} (step)" in lines
        assert lines[-2].startswith("  fix: shard what is large over more devices")


@pytest.mark.device
def test_operations_outside_of_jit() -> None:
    with pytest.raises(OutOfMemoryError, match=r"broadcast_in_dim at test_runtime_exhausted.py:\d+ \(test_operations_outside_of_jit\): out of memory on device cpu:0"):
        mnp.zeros(HUGE, np.float32)
    with pytest.raises(OutOfMemoryError, match=r"\n    1,024.0 TiB: f32\[\d+\] of broadcast_in_dim\n"):  # the first line says where
        mnp.zeros(HUGE, np.float32)


@pytest.mark.device
def test_what_fails_behind_the_call_is_raised_where_it_is_read() -> None:
    mesh = Mesh(np.array(mj.devices()[:8]), ("x",))
    run = mj.jit(step, out_shardings=NamedSharding(mesh, P("x")))
    with pytest.raises(OutOfMemoryError, match="out of memory"):
        run(1.0).block_until_ready()


def small() -> Any:
    with Builder("f") as builder:
        x = builder.input(TensorType.parse("f32[8,4]"), "x")
        return builder.build([add(x, x)])


class _Device:
    platform = "cuda"
    id = 0

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_in_use": 3 * 2**30, "bytes_limit": 4 * 2**30}

    def __str__(self) -> str:
        return "cuda:0"


@pytest.mark.parametrize("request_", ["2147483648 bytes.", "2.0GiB with allocator GPU_0_bfc on device 0. [tf-allocator-allocation-error='']"])
def test_what_the_compiler_says(request_: str) -> None:
    mesh = Mesh([_Device()], ("x",))
    reason = f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {request_}"
    error = exhausted.too_large_to_compile(reason, "jit(f)", mesh, small())
    assert str(error).split("\n")[:3] == [
        "jit(f): too large for device cuda:0: XLA asked for 2.0 GiB; 3.0 GiB of 4.0 GiB are in use",
        "  the largest values on one device, of which XLA may keep none:",
        "    128 bytes: f32[8,4] argument x",
    ]
    assert exhausted.too_large_to_compile("INTERNAL: it broke", "jit(f)", mesh, small()) is None


def test_another_failure_keeps_its_kind() -> None:
    error = exhausted.failed_to_run(_jaxlib.XlaError("INTERNAL: it broke"), "f", Mesh([_Device()], ("x",)), small(), SimpleNamespace())
    assert type(error) is _jaxlib.XlaError
    assert str(error) == "f: XLA could not run the program on device cuda:0: INTERNAL: it broke"


@pytest.mark.parametrize(("count", "text"), [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (2**50, "1,024.0 TiB")])
def test_sizes(count: int, text: str) -> None:
    assert exhausted.size(count) == text
