"""Arrays that move between meshes of different devices, over processes: by a program of all devices of both, whose messages carry
what each process needs, and nothing twice (`sharding/messages.py`)."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.emit.module import emit
from meshjit.partition.messages import program_of_rounds
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.agreement import DivergenceError, agree, exchange
from meshjit.runtime.array import Array, LeafKey
from meshjit.runtime.compilation_cache import compile_or_load
from meshjit.runtime.noting import noted
from meshjit.runtime.quiet import without_gloo_messages
from meshjit.runtime.targets import target_for
from sharding.mesh import Mesh
from sharding.messages import Box, plan_rounds, receivers
from sharding.named import NamedSharding, Sharding

_AXIS = "_"
_FIX = "  fix: give the same sharding on every process; or each process a device of its own"


def processes_of(sharding: Sharding) -> frozenset[int]:
    return frozenset(device.process_index for device in sharding._device_assignment)  # pyright: ignore[reportPrivateUsage]


def is_meant_by_all(array: Array, sharding: Sharding) -> bool:
    """Whether all processes of both shardings have come for this move. False where each has come with an array, or for a target,
    on devices of its own alone. DivergenceError for anything else."""
    source, target, me = processes_of(array.sharding), processes_of(sharding), {client.process_index()}
    if len(source) > 1 and len(target) > 1:
        return True  # the program will be agreed on
    own = "own" if me in (source, target) else "common"
    move = f"{own}: {array.type} from {_ids(array.sharding)} to {_ids(sharding)}"
    answers = exchange("device_put", move, sorted(source | target))
    if len({word.partition(": ")[2] for word in answers.values()}) == 1:
        return True
    if not all(word.startswith("own") for word in answers.values()):
        lines = [f"  process {rank}: {word.partition(': ')[2]}" for rank, word in sorted(answers.items())]
        raise DivergenceError("\n".join(["device_put: the processes move different arrays, device ids are", *lines, _FIX]))
    return False


def send(array: Array, sharding: Sharding) -> tuple[list[Any], list[Any]]:
    """(this process's shards under another sharding, their devices). All processes of either call it together."""
    return _mover(array._key, sharding)(array)  # pyright: ignore[reportPrivateUsage]


@functools.lru_cache(maxsize=4096)
def _mover(key: LeafKey, sharding: Sharding) -> _Mover:
    return _Mover(key, sharding)


class _Mover:
    """A compiled program that moves arrays which look alike."""

    def __init__(self, key: LeafKey, sharding: Sharding) -> None:
        assert key.sharding is not None
        source, target = _row(key.sharding), _row(sharding)
        row = (*source, *(device for device in target if device not in set(source)))
        place = {device: i for i, device in enumerate(row)}
        process = [device.process_index for device in row]
        held = {place[device]: box for device, box in _boxes(key.type, key.sharding).items()}
        needed = {place[device]: box for device, box in _boxes(key.type, sharding).items()}
        first = receivers(needed, held, process)
        rounds = plan_rounds(held, {p: needed[p] for p in sorted(set(first.values()))}, process)
        self.sharding = sharding
        self.first = {row[p]: row[f] for p, f in first.items()}  # the devices that get a part of the value, and who receives it
        self.operand = key.type.with_shape(key.sharding.shard_shape(key.type.shape))
        self.result = key.type.with_shape(sharding.shard_shape(key.type.shape))
        program = program_of_rounds("device_put", rounds, self.operand, self.result, (_AXIS,), len(row))
        local = verify(program, "device_put")
        mesh = Mesh(np.array(row, dtype=object), (_AXIS,))
        agree("device_put", f"{[device.id for device in row]}\n{local}\n", processes=sorted(set(process)))
        text = emit(local, mesh, None, target_for(mesh))
        executable = compile_or_load(row[0].client, text, row, {})
        self.layout = _jaxlib.shared_layout(row)
        self.is_first = True
        run = _jaxlib.make_executor(executable, [(self.result.shape, self.result.dtype)], row)
        self.run = noted(run, "device_put", row, key.type)

    def __call__(self, array: Array) -> tuple[list[Any], list[Any]]:
        if self.is_first:
            self.is_first = False
            with without_gloo_messages():
                made = self.run([self._operand(array)])[0]
                _jaxlib.block(made)
        else:
            made = self.run([self._operand(array)])[0]
        return self._shards(made)

    def _operand(self, array: Array) -> Any:
        """The array's shards, and nothing on the devices that have none."""
        have = {device: i for i, device in enumerate(_jaxlib.handle_devices(array))}
        blank = _untouched(self.operand)
        here = self.layout.local
        shards = [_jaxlib.shard(array, have[d]) if d in have else _jaxlib.put([blank], [d], alias=True) for d in here]
        return _jaxlib.from_single_device_handles(shards, row=self.layout)

    def _shards(self, made: Any) -> tuple[list[Any], list[Any]]:
        """Each device's own shard, or that of the one of its process which has received it."""
        at = {device: i for i, device in enumerate(_jaxlib.handle_devices(made))}
        here = [device for device in _row(self.sharding) if device in at]
        return [_jaxlib.shard(made, at[self.first.get(device, device)]) for device in here], here


def _row(sharding: Sharding) -> tuple[Any, ...]:
    return sharding._device_assignment  # pyright: ignore[reportPrivateUsage]


def _ids(sharding: Sharding) -> list[int]:
    return [device.id for device in _row(sharding)]


def _boxes(type: TensorType, sharding: Sharding) -> dict[Any, Box]:
    """The part of the value that each device has. Where addends lie on devices, the first of them has it."""
    numbers: Sequence[int] = sharding.addends() if isinstance(sharding, NamedSharding) and sharding.spec.unreduced else ()
    addend = dict(zip(_row(sharding), numbers, strict=False))
    return {
        device: tuple(s.indices(n)[:2] for s, n in zip(index, type.shape, strict=True))
        for device, index in sharding.devices_indices_map(type.shape).items()
        if not addend.get(device)
    }


def _untouched(type: TensorType) -> np.ndarray[Any, Any]:
    """Zeros that take no memory as long as nobody reads them."""
    memory = mmap.mmap(-1, max(type.nbytes, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    return np.frombuffer(memory, type.dtype, type.size).reshape(type.shape)
