"""Reading a checkpoint, under any mesh: each process reads the parts of files that its own devices hold."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - its dtypes are then known by name
import numpy as np

from meshjit.api.putting import with_words
from meshjit.checkpoints.index import THREADS, CheckpointError, Folder, StoredLeaf, StoredShard, latest, place, read_index
from meshjit.runtime.array import Array
from meshjit.runtime.assembling import make_array_from_callback
from meshjit.trees import WORDS as tree
from sharding.named import Sharding


def restore(folder: Folder, like: Any = None, step: int | None = None, *, verify: bool = True) -> Any:
    """The tree of a checkpoint: of `step`, or of the latest.

    `like` is a tree of the same paths. Its leaves say what becomes of each: an Array, or a ShapeDtypeStruct with a sharding: an
    Array placed so, of its dtype; a Sharding: an Array placed so; anything else: a NumPy array (of its dtype, where it has one).
    Without `like`: {path: NumPy array}. `verify` holds each file that is read against its SHA-256; sizes are always checked.

    Raises CheckpointError where there is no checkpoint, a file is missing, torn or changed, or paths or shapes are not those of
    `like`."""
    if step is None and (step := latest(folder)) is None:
        raise CheckpointError(f"{folder} has no checkpoint")
    at = place(folder, step)
    stored = {leaf.path: leaf for leaf in read_index(at).leaves}
    files = _Files(at, verify)
    if like is None:
        return {path: files.read(leaf, (slice(None),) * len(leaf.shape)) for path, leaf in stored.items()}
    like = with_words(like)
    flat, structure = tree.flatten(like, is_leaf=is_leaf)
    names = tree.path_names(like, "", is_leaf=is_leaf)
    check_paths(names, stored, at)
    return tree.unflatten(structure, [_leaf(files, stored[name], target) for name, target in zip(names, flat, strict=True)])


def is_leaf(value: Any) -> bool:
    return isinstance(value, Sharding)


def check_paths(names: Sequence[str], stored: Collection[str], at: Path | str) -> None:
    missing, more = [n for n in names if n not in stored], [n for n in stored if n not in names]
    if missing or more:
        lines = [f"  {what}: {', '.join(group[:8])}" for what, group in (("not in it", missing), ("only in it", more)) if group]
        raise CheckpointError("\n".join([f"{at} holds another tree than `like`", *lines]))


def _leaf(files: _Files, leaf: StoredLeaf, target: Any) -> Any:
    return leaf_from(files.at, leaf.path, leaf.shape, leaf.dtype, target, lambda index: files.read(leaf, index))


def leaf_from(
    at: Path | str, path: str, shape: tuple[int, ...], dtype: str | np.dtype[Any], target: Any,
    read: Callable[[Sequence[slice]], np.ndarray[Any, Any]],
) -> Any:  # fmt: skip
    """A leaf as its target says, of the slices that `read` gives."""
    asked = getattr(target, "shape", None) if not isinstance(target, Sharding) else None
    if asked is not None and tuple(asked) != shape:
        raise CheckpointError(f"{at}: {path} has shape {shape}, `like` has {tuple(asked)}")
    dtype = np.dtype(getattr(target, "dtype", None) or dtype)
    sharding = target if isinstance(target, Sharding) else getattr(target, "sharding", None)
    if sharding is None:
        return read((slice(None),) * len(shape)).astype(dtype, copy=False)
    made = make_array_from_callback(shape, sharding, lambda index: read(index).astype(dtype, copy=False), dtype)
    assert isinstance(made, Array)
    return made


class _Files:
    """The shards of one checkpoint. What is held against its hash is read once, and stays in memory while its leaf is placed."""

    def __init__(self, at: Path, verify: bool) -> None:
        self.at, self.verify = at, verify
        self.of = ""  # the leaf whose files are open
        self.open: dict[str, np.ndarray[Any, Any]] = {}

    def read(self, leaf: StoredLeaf, index: Sequence[slice]) -> np.ndarray[Any, Any]:
        """The elements of a slice, whichever files they stand in."""
        bounds = [s.indices(n)[:2] for s, n in zip(index, leaf.shape, strict=True)]
        result = np.empty([max(0, stop - start) for start, stop in bounds], leaf.stored)
        reached = 0
        parts = [
            (shard, [(max(a, c), min(b, d)) for (a, b), c, d in zip(bounds, shard.start, shard.stop, strict=True)])
            for shard in leaf.shards
        ]
        parts = [(shard, common) for shard, common in parts if all(a < b for a, b in common)]
        self._open([shard for shard, _ in parts], leaf)
        for shard, common in parts:
            source = self.open[shard.file][tuple(slice(a - c, b - c) for (a, b), c in zip(common, shard.start, strict=True))]
            result[tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(common, bounds, strict=True))] = source
            reached += math.prod(b - a for a, b in common)
        if reached != result.size:
            raise CheckpointError(f"{self.at}: the files of {leaf.path} hold {reached} of the {result.size} elements asked for")
        return np.atleast_1d(result).view(leaf.dtype).reshape(result.shape)

    def _open(self, shards: Sequence[StoredShard], leaf: StoredLeaf) -> None:
        if self.of != leaf.path:
            self.of = leaf.path
            self.open.clear()
        missing = [shard for shard in shards if shard.file not in self.open]
        if missing:
            with ThreadPoolExecutor(THREADS) as pool:
                contents = pool.map(lambda shard: self._checked(self.at / shard.file, shard, leaf), missing)
                self.open |= {shard.file: content for shard, content in zip(missing, contents, strict=True)}

    def _checked(self, path: Path, shard: StoredShard, leaf: StoredLeaf) -> np.ndarray[Any, Any]:
        what = f"{path}, a shard of {leaf.path},"
        if not path.is_file():
            raise CheckpointError(f"{what} is missing")
        if path.stat().st_size != shard.bytes:
            raise CheckpointError(f"{what} is torn: it has {path.stat().st_size} of {shard.bytes} bytes")
        if not self.verify:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        data = np.fromfile(path, np.uint8)
        if hashlib.sha256(data.data).hexdigest() != shard.sha256:
            raise CheckpointError(f"{what} was changed: its SHA-256 is another one")
        extents = tuple(b - a for a, b in zip(shard.start, shard.stop, strict=True))
        elements = shard.size * np.dtype(leaf.stored).itemsize
        return data[len(data) - elements :].view(leaf.stored).reshape(extents)
