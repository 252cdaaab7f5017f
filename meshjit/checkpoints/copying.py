"""Copies of a tree's arrays in host memory, which is all that the caller of `save` waits for.

Fresh memory costs more than the copy itself: the kernel clears it page by page. So copies go where those of the last save were,
and all of this process's cores copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.checkpoints.threads import in_threads
from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array
from meshjit.trees import WORDS as tree

_PIECE = 1 << 23  # bytes that one thread copies at a time

Host = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Leaf:
    """A leaf, and copies of the slices of it that this process writes."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Sequence[tuple[tuple[int, ...], np.ndarray[Any, Any]]]  # (where it starts, elements)


_last: dict[tuple[tuple[int, ...], np.dtype[Any]], list[Host]] = {}  # copies of the last save, by shape and dtype


def copies(state: Any, rank: int, elsewhere: Collection[int] = ()) -> list[Leaf]:
    """The leaves of a tree, each with copies of the slices that this process is to write. What lies on one process's devices is
    process 0's to write, but for the leaves of these numbers, of which it has none. The last save must have ended: its copies
    are overwritten."""
    flat = tree.leaves(state)
    for leaf in flat:
        if isinstance(leaf, Array):
            leaf.copy_to_host_async()
    named = enumerate(zip(tree.path_names(state, ""), flat, strict=True))
    views = [_viewed(name, leaf, rank == 0 or i in elsewhere) for i, (name, leaf) in named]
    pairs = _with_memory([block for leaf in views for _, block in leaf.blocks])
    in_threads(lambda pair: np.copyto(*pair), [piece for pair in pairs for piece in _pieces(*pair)])
    copied = iter([target for target, _ in pairs])
    return [Leaf(v.path, v.shape, v.dtype, [(start, next(copied)) for start, _ in v.blocks]) for v in views]


def _viewed(path: str, leaf: Any, writes: bool) -> Leaf:
    """With the arrays' own memory in place of copies. `writes`: also what other processes may have, too."""
    if isinstance(leaf, Array) and (not leaf.is_fully_addressable or writes):
        return Leaf(path, leaf.shape, np.dtype(leaf.dtype), list(_blocks(leaf)))
    value = np.asarray(leaf)
    if value.dtype.kind in "OUSV" and value.dtype.names is None and value.dtype.kind != "V":
        raise TypeError(f"checkpoints.save: {path or 'the tree'} is no array, but {leaf!r}")
    return Leaf(path, value.shape, value.dtype, [((0,) * value.ndim, value)] if writes else [])


def _blocks(array: Array) -> Iterator[tuple[tuple[int, ...], Host]]:
    """The slices that this process is the first to hold: on CPU what `fetch` gives is the array's own memory.
    NotImplementedError for an unfinished sum, whose shards are no slices of it."""
    array.require_finished()
    fetched = dict(_jaxlib.fetch(array))
    for shard in array._shards(fetched):  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        bounds = [s.indices(n)[:2] for s, n in zip(shard.index, array.shape, strict=True)]
        extents = [max(0, stop - start) for start, stop in bounds]
        if shard.replica_id == 0 and 0 not in extents:
            yield tuple(start for start, _ in bounds), fetched[shard.device][tuple(slice(n) for n in extents)]


def _with_memory(blocks: Sequence[Host]) -> list[tuple[Host, Host]]:
    """(where it is copied to, a block), for each; what is left of the last save is let go."""
    global _last
    before, _last = _last, defaultdict(list)
    pairs: list[tuple[Host, Host]] = []
    for block in blocks:
        key = (block.shape, block.dtype)
        target = before[key].pop() if before.get(key) else np.empty(block.shape, block.dtype)
        _last[key].append(target)
        pairs.append((target, block))
    return pairs


def _pieces(target: Host, block: Host) -> Iterator[tuple[Host, Host]]:
    """Both in parts along the first dim, so that one large array keeps all threads busy."""
    rows = max(1, _PIECE * len(block) // block.nbytes) if block.ndim and block.nbytes else 1
    if not block.ndim or rows >= len(block):
        yield target, block
        return
    for at in range(0, len(block), rows):
        yield target[at : at + rows], block[at : at + rows]
