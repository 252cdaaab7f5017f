"""Values that all processes bring for one Array must be equal: each process puts its own shards, which else are of other values.

    device_put of x['w']: its values differ between processes
      process 0: f32[4], fingerprint 61c0…      process 1: f32[4], fingerprint 07aa…
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from launch.roll_call import name_processes
from meshjit.core.types import TensorType
from meshjit.runtime.agreement import DivergenceError, exchange
from meshjit.runtime.distributed import membership
from sharding.named import Sharding

Brought: TypeAlias = tuple[str, "np.ndarray[Any, Any]", Sharding]  # a name, what a process has of it, and where it goes
_LENGTH: Final = 16  # letters of a fingerprint


def check_equal(what: str, values: Sequence[Brought]) -> None:
    """Compare values that go to devices of several processes. All these processes call it. DivergenceError where they differ."""
    if membership().coordinator is None:
        return
    groups: dict[tuple[int, ...], list[tuple[str, str]]] = defaultdict(list)
    for name, array, sharding in values:
        processes = tuple(sorted({device.process_index for device in sharding.device_set}))
        if len(processes) > 1 and membership().process_id in processes:
            groups[processes].append((name, _fingerprint(array)))
    for processes, mine in sorted(groups.items()):
        _check(what, mine, processes)


def _check(what: str, mine: Sequence[tuple[str, str]], processes: Sequence[int]) -> None:
    prints = [fingerprint for _, fingerprint in mine]
    if len({*exchange(what, _digest(",".join(prints).encode()), processes).values()}) == 1:
        return
    theirs = exchange(f"{what}, which differs", ",".join(prints), processes)
    texts = {rank: text.split(",") for rank, text in theirs.items()}
    if len({len(each) for each in texts.values()}) > 1:
        raise DivergenceError(f"{what}: the processes bring trees of {sorted({len(each) for each in texts.values()})} arrays")
    at = next(i for i in range(len(mine)) if len({each[i] for each in texts.values()}) > 1)
    raise DivergenceError(_difference(what, mine[at][0], {rank: each[at] for rank, each in texts.items()}))


def _difference(what: str, name: str, prints: Mapping[int, str]) -> str:
    camps: dict[str, list[int]] = defaultdict(list)
    for rank, text in sorted(prints.items()):
        camps[text].append(rank)
    lines = [f"  {name_processes(ranks)}: {text.replace(' ', ', fingerprint ')}" for text, ranks in camps.items()]
    return "\n".join([
        f"{what} of {name}: its values differ between processes, of which each would put its own shards", *lines,
        "  fix: make_array_from_process_local_data(sharding, part) where each process has a part;",
        "       multihost.broadcast_one_to_all(x) first where one process's counts",
    ])  # fmt: skip


def _fingerprint(array: np.ndarray[Any, Any]) -> str:
    """Type and bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
    return f"{TensorType(tuple(array.shape), array.dtype)} {_digest(data)}"


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:_LENGTH]  # processors have it: twice as fast as others
