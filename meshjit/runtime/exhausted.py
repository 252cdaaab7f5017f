"""When XLA fails while a program is compiled, started or runs: what was asked for, what the program needs, and what is large."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from typing import Any

from meshjit.core.program import Eqn, Program
from meshjit.core.region import run_programs
from meshjit.errors import OutOfMemoryError
from meshjit.runtime import _jaxlib
from meshjit.trace.source import line_of
from sharding.mesh import Mesh

_FIX = (
    "  fix: shard what is large over more devices (in_shardings, lax.with_sharding_constraint), donate arguments that results\n"
    "  can replace, checkpoint what a derivative keeps, or compute in parts (lax.map(batch_size=), a smaller batch)"
)


def failed_to_run(error: RuntimeError, title: str, mesh: Any, local: Program, compiled: Any) -> RuntimeError:
    """The error to raise for what XLA raised when a program was started: of the same kind, or OutOfMemoryError."""
    reason = str(error).strip()
    if not is_exhausted(reason):
        return type(error)(f"{title}: XLA could not run the program on {_where(mesh)}: {reason}")
    try:
        needs = _needs(_jaxlib.memory_stats(compiled))
    except (_jaxlib.XlaError, NotImplementedError, AttributeError):
        needs = ""
    head = f"{title}: out of memory on {_where(mesh)}: {request_text(reason)}{_in_use(mesh)}"
    return OutOfMemoryError(f"{head}\n{needs}{_largest(local)}{_FIX}")


def too_large_to_compile(reason: str, title: str, mesh: Any, local: Program) -> OutOfMemoryError | None:
    """The error where XLA found out while compiling that the program does not fit the device; None for another reason."""
    if not is_exhausted(reason):
        return None
    head = f"{title}: too large for {_where(mesh)}: {request_text(reason)}{_in_use(mesh)}"
    return OutOfMemoryError(f"{head}\n{_largest(local)}{_FIX}")


def is_exhausted(reason: str) -> bool:
    return "RESOURCE_EXHAUSTED" in reason or "out of memory" in reason.lower()


def request_text(reason: str) -> str:
    """`XLA asked for 16.0 TiB`, or XLA's own first line where that names no number."""
    match = re.search(r"allocat\w* (\d+) bytes", reason)
    if match:
        return f"XLA asked for {size(int(match[1]))}"
    match = re.search(r"allocat\w* ([\d.]+)([KMGT]iB)", reason)  # as GPUs say it
    return f"XLA asked for {match[1]} {match[2]}" if match else f"XLA says: {reason.splitlines()[0]}"


def size(count: float) -> str:
    """`16.0 TiB`; with binary prefixes, as memory is sold."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _where(mesh: Any) -> str:
    if isinstance(mesh, Mesh) and mesh.size == 1:
        return f"device {mesh.flat_devices[0]}"
    return f"a device of {mesh}"


def _in_use(mesh: Any) -> str:
    """What the first device says of its memory, where it does."""
    device = mesh.flat_devices[0] if isinstance(mesh, Mesh) else None
    try:
        stats = device.memory_stats() or {}  # pyright: ignore[reportOptionalMemberAccess]
    except (AttributeError, RuntimeError, NotImplementedError):
        return ""
    if "bytes_limit" not in stats:
        return ""
    return f"; {size(stats.get('bytes_in_use', 0))} of {size(stats['bytes_limit'])} are in use"


def _needs(stats: dict[str, int]) -> str:
    peak = f", {size(stats['peak'])} at the worst moment" if stats.get("peak", -1) > 0 else ""
    shared = f" ({size(stats['alias'])} of which take arguments' memory)" if stats["alias"] else ""
    return (
        f"  each device needs {size(stats['arguments'])} for arguments, {size(stats['outputs'])} for results{shared}"
        f" and {size(stats['temp'])} besides{peak}\n"
    )


def _largest(local: Program) -> str:
    """The largest values of one device; XLA fuses some of them away."""
    largest = heapq.nlargest(3, _values(local), key=lambda item: item[0])
    if not largest:
        return ""
    rows = [f"    {size(count)}: {type} {where}" for count, type, where in largest]
    return "\n".join(["  the largest values on one device, of which XLA may keep none:", *rows, ""])


def _values(program: Program) -> Iterator[tuple[int, str, str]]:
    for var in program.inputs:
        yield var.type.nbytes, str(var.type), f"argument {var.hint}" if var.hint else "argument"
    for eqn in program.eqns:
        yield from ((v.type.nbytes, str(v.type), f"of {_described(eqn)}") for v in eqn.outputs)
        for nested in run_programs(eqn):
            yield from ((n, t, w) for n, t, w in _values(nested) if not w.startswith("argument"))


def _described(eqn: Eqn) -> str:
    return eqn.op.name if eqn.source is None else f"{eqn.op.name} at {line_of(eqn.source)}"
