"""Writing a checkpoint: the caller waits for the copy to host memory, a thread for the disk and for the other processes."""

from __future__ import annotations

import hashlib
import io
import json
import operator
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from meshjit.checkpoints.copying import Leaf, copies
from meshjit.checkpoints.index import (
    INDEX,
    CheckpointError,
    Folder,
    Index,
    StoredLeaf,
    StoredShard,
    aside_of,
    check_complete,
    place,
    steps,
    stored_dtype,
    unfinished,
)
from meshjit.checkpoints.threads import in_threads
from meshjit.runtime import _jaxlib
from meshjit.runtime.agreement import agree
from meshjit.runtime.array import Array
from meshjit.runtime.distributed import Membership, membership
from meshjit.trees import WORDS as tree

_POLL_SECONDS = 0.02


class Saving:
    """A checkpoint that is being written. `wait` until it is there."""

    def __init__(self, run: Any) -> None:
        self.error: BaseException | None = None
        self.is_told = False  # whether `wait` has raised it
        self._run = run
        self._thread = threading.Thread(target=self._go, name="meshjit-checkpoint")  # Python waits for it at its end
        self._thread.start()

    def _go(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: B036 - told by `wait`
            self.error = error

    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Until the checkpoint is there. Raises CheckpointError where a process could not write its part."""
        self._thread.join()
        if self.error is not None:
            self.is_told = True
            raise self.error


_last: Saving | None = None  # one at a time: a next `save` waits
_count = 0
_agreed: tuple[Any, ...] | None = None  # the folder and tree of the last save, where every leaf lay on devices of all processes


def save(folder: Folder, state: Any, step: int, *, keep: int | None = None, overwrite: bool = False) -> Saving:
    """Write a tree of arrays as the checkpoint of a step. All processes call it, with one folder that they all see.

    Returns once the arrays are copied, so that they may be donated; `.wait()` waits for the rest. Every slice of an array is
    written once, by one process that holds it. What is no global Array (NumPy, Python's numbers, an Array of one process) is
    process 0's. `keep`: so many checkpoints stay, this one and those of the highest other steps. The first save of a tree waits
    until all processes have come.

    Raises TypeError or ValueError for a `step` that is no integer from 0 on, or a `keep` that is none from 1 on; CheckpointError
    where the step is there, without `overwrite`, or where the last `save` has failed and nobody waited for it; DivergenceError
    where processes save different trees."""
    global _agreed
    step, keep = _counted("step", step, 0), None if keep is None else _counted("keep", keep, 1)
    wait_for_last()
    joined, final = membership(), place(folder, step)
    there = final.exists() and not overwrite
    aside = aside_of(final)
    if joined.process_id == 0 and not there:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    spread = _spread_over_all(joined, state)
    tree_here = (os.fspath(folder), kinds(state)) if spread and not there else None
    elsewhere: list[int] = []
    if tree_here is None or tree_here != _agreed:
        elsewhere = agree_on_tree(joined, f"checkpoint of step {step}", state, str(there))
    _agreed = tree_here
    if there:
        raise CheckpointError(f"{final} is there already\n  fix: overwrite=True replaces it")
    leaves = copies(state, joined.process_id, elsewhere)
    return start_saving(lambda key: _write(joined, key, leaves, aside, final, Path(folder), step, keep))


def _counted(name: str, value: Any, least: int) -> int:
    """An argument as an int. TypeError for what is no integer, ValueError where it is less than the least."""
    fix = f"\n  fix: {name}= takes an integer from {least} on{'; without it all stay' if name == 'keep' else ''}"
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"save: {name}={value!r} is no integer{fix}") from None
    if number < least:
        raise ValueError(f"save: {name}={number} is less than {least}{fix}")
    return number


def _spread_over_all(joined: Membership, state: Any) -> bool:
    """Whether every Array of the tree lies on devices of all processes. Such trees are alike on all of them once they were."""
    arrays = [leaf for leaf in tree.leaves(state) if isinstance(leaf, Array)]
    shardings = {id(array.sharding): array.sharding for array in arrays}.values()
    processes = [len({device.process_index for device in sharding.device_set}) for sharding in shardings]
    return bool(arrays) and all(count == joined.num_processes for count in processes)


def agree_on_tree(joined: Membership, name: str, state: Any, also: str) -> list[int]:
    """Make sure that all processes save such a tree, and agree on `also`. The numbers of leaves of which process 0 has none."""
    flat = tree.leaves(state)
    key = f"meshjit/checkpoint/{_count}/elsewhere"
    if joined.coordinator is not None and joined.process_id == 0:
        absent = [i for i, leaf in enumerate(flat) if isinstance(leaf, Array) and not leaf.sharding.has_addressable_devices]
        _jaxlib.store_set(joined.coordinator, key, json.dumps(absent), overwrite=True)
    text = "\n".join(f"{path}: {dtype}{list(shape)}" for path, shape, dtype in kinds(state))
    agree(name, f"{also}\n{text}\n", what="write the")
    return [] if joined.coordinator is None else json.loads(_jaxlib.store_get(joined.coordinator, key, 60) or "[]")


def kinds(state: Any) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
    """(path, shape, dtype) of each leaf."""
    arrays = [leaf if isinstance(leaf, Array) else np.asarray(leaf) for leaf in tree.leaves(state)]
    return [(name, x.shape, np.dtype(x.dtype)) for name, x in zip(tree.path_names(state, ""), arrays, strict=True)]


def wait_for_last() -> None:
    """Raises what the last saving has failed with, unless its own `wait` has."""
    global _last
    if _last is not None:
        last, _last = _last, None
        if not last.is_told:
            last.wait()


def start_saving(write: Callable[[str], None]) -> Saving:
    """`write` in a thread; it is given a place in the store of all processes that is this checkpoint's alone."""
    global _last, _count
    _count += 1
    key = f"meshjit/checkpoint/{_count}/"
    _last = Saving(lambda: write(key))
    return _last


# --- in the thread -----------------------------------------------------------------------------------------------------


def _write(
    joined: Membership, key: str, leaves: Sequence[Leaf], aside: Path, final: Path, folder: Path, step: int, keep: int | None
) -> None:
    begun = tell(joined, f"{key}begins/", str(step))  # process 0 has made the folder by then
    if len(set(begun.values())) > 1:
        by_process = ", ".join(f"process {rank} step {answer}" for rank, answer in sorted(begun.items()))
        raise CheckpointError(
            f"the processes save different steps: {by_process}\n  fix: call save with the same step on every process"
        )
    try:
        mine = in_threads(lambda numbered: _written(numbered[1], numbered[0], aside), list(enumerate(leaves)))
        answer = json.dumps([[asdict(shard) for shard in leaf.shards] for leaf in mine])
    except OSError as error:
        answer = f"process {joined.process_id} could not write {error.filename or aside}: {error.strerror}"
    except Exception as error:  # the others wait for a word
        answer = f"process {joined.process_id} could not write {aside}: {type(error).__name__}: {error}"
    answers = tell(joined, f"{key}parts/", answer)
    failed = [text for _, text in sorted(answers.items()) if not text.startswith("[")]
    if failed:
        if joined.process_id == 0:
            shutil.rmtree(aside, ignore_errors=True)
        raise CheckpointError("\n".join(failed))
    verdict = ""
    if joined.process_id == 0:
        verdict = _commit(leaves, answers, aside, final, folder, step, keep)
    verdict = tell(joined, f"{key}verdict/", verdict, only=0)[0]
    if verdict:
        raise CheckpointError(verdict)


def _written(leaf: Leaf, number: int, aside: Path) -> StoredLeaf:
    stored, shards = stored_dtype(leaf.dtype), []
    for start, block in leaf.blocks:
        name = f"{number:05d}.{'_'.join(map(str, start)) or '0'}.npy"
        data = np.atleast_1d(block).view(stored).reshape(block.shape)
        size, digest = _write_npy(aside / name, data)
        stop = tuple(a + n for a, n in zip(start, block.shape, strict=True))
        shards.append(StoredShard(name, start, stop, size, digest))
    return StoredLeaf(leaf.path, leaf.shape, str(leaf.dtype), str(stored), tuple(shards))


def _write_npy(path: Path, data: np.ndarray[Any, Any]) -> tuple[int, str]:
    """(bytes, SHA-256) of the file."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(data))
    body = np.atleast_1d(data).reshape(-1).view(np.uint8).data if data.size else memoryview(b"")
    digest = hashlib.sha256(head.getvalue())
    digest.update(body)
    with open(path, "wb") as file:
        file.write(head.getvalue())
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    return len(head.getvalue()) + len(body), digest.hexdigest()


def tell(joined: Membership, prefix: str, text: str, only: int | None = None) -> dict[int, str]:
    """What all processes say here, or only one of them. By the store: agreements are the main thread's."""
    if joined.coordinator is None:
        return {0: text}
    if only is None or only == joined.process_id:
        _jaxlib.store_set(joined.coordinator, f"{prefix}{joined.process_id}", text or " ")
    while True:
        stored = _jaxlib.store_list(joined.coordinator, prefix)
        if len(stored) == (joined.num_processes if only is None else 1):
            return {int(key.rpartition("/")[2]): value.strip() for key, value in stored.items()}
        time.sleep(_POLL_SECONDS)


def _commit(
    leaves: Sequence[Leaf], answers: dict[int, str], aside: Path, final: Path, folder: Path, step: int, keep: int | None
) -> str:
    """Write the index, and give the folder its name. What went wrong, or ""."""
    parts = [json.loads(text) for _, text in sorted(answers.items())]
    stored = [
        StoredLeaf(
            leaf.path, leaf.shape, str(leaf.dtype), str(stored_dtype(leaf.dtype)),
            tuple(StoredShard(**shard) for part in parts for shard in part[n]),
        )
        for n, leaf in enumerate(leaves)
    ]  # fmt: skip
    try:
        check_complete(stored)
        Index(step, tuple(stored)).write(aside / INDEX)
        if final.exists():
            _remove(final)
        os.rename(aside, final)
        _sync(folder)
        if keep is not None:
            _prune(folder, step, keep)
    except (OSError, CheckpointError) as error:
        return str(error)
    except Exception as error:  # the others wait for a word
        return f"process 0 could not finish {final}: {type(error).__name__}: {error}"
    return ""


def _prune(folder: Folder, step: int, keep: int) -> None:
    """Keep the checkpoint of this step and those of the highest other steps. Remove the others, and the unfinished ones of lower
    steps, which killed jobs have left."""
    others = [other for other in steps(folder) if other != step]
    old = others[: max(0, len(others) - (keep - 1))]
    for each in old:
        _remove(place(folder, each))
    lowest = min([step, *others[len(old) :]])
    for number, path in unfinished(folder).items():
        if number < lowest:
            shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """First out of sight, so that nobody finds half of it."""
    gone = path.with_name(f".{path.name}.removing")
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(path, gone)
    shutil.rmtree(gone)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
