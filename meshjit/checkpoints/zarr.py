"""Trees of arrays as zarr (version 3) by TensorStore, for object stores and other programs: `pip install "meshjit[tensorstore]"`.

    save_zarr("gs://bucket/run/100", state).wait()
    state = restore_zarr("gs://bucket/run/100", like=state)

    run/100/params/w/zarr.json, run/100/params/w/c/0/1      an array; every shard is a chunk, so no two processes write one
    run/100/meshjit.json                                     written last: paths, keys, shapes and dtypes

A store has no rename: what has no `meshjit.json` is not complete. `ocdbt=True` keeps all of it in a few large files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.api.putting import with_words
from meshjit.checkpoints.copying import Leaf, copies
from meshjit.checkpoints.index import CheckpointError
from meshjit.checkpoints.reading import check_paths, is_leaf, leaf_from
from meshjit.checkpoints.writing import Saving, agree_on_tree, kinds, start_saving, tell, wait_for_last
from meshjit.runtime.array import Array
from meshjit.runtime.distributed import membership
from meshjit.trees import WORDS as tree

INDEX = "meshjit.json"


def save_zarr(url: str | os.PathLike[str], state: Any, *, ocdbt: bool = False) -> Saving:
    """Write a tree of arrays below `url`: a folder, or file://, gs://, s3://. All processes call it. It replaces what is there.

    Returns once the arrays are copied; `.wait()` waits for the rest. Raises ImportError without TensorStore; CheckpointError
    for a leaf of a dtype that it has no name for, before anything is replaced; from `wait`, CheckpointError where a process could
    not write."""
    wait_for_last()
    store = _Store(url, ocdbt)
    joined = membership()
    chunks = [_chunk(leaf) for leaf in tree.leaves(state)]
    known = kinds(state)
    keys = _keys([path for path, _, _ in known])
    for path, _, dtype in known:
        store.check(path, dtype)
    if joined.process_id == 0:  # before the others are let in, who write
        store.drop()
        for (_, shape, dtype), key, chunk in zip(known, keys, chunks, strict=True):
            store.create(key, shape, dtype, chunk)
    leaves = copies(state, joined.process_id, agree_on_tree(joined, f"checkpoint at {store.url}", state, ""))
    return start_saving(lambda key: _write(joined, key, store, leaves, keys))


def restore_zarr(url: str | os.PathLike[str], like: Any = None) -> Any:
    """The tree below `url`, as `checkpoints.restore` gives it. Raises CheckpointError where it is incomplete, or another tree."""
    store = _Store(url, False)
    stored = {path: (key, tuple(shape), np.dtype(dtype)) for path, key, shape, dtype in store.index()}
    if like is None:
        return {path: store.read(key, (slice(None),) * len(shape)) for path, (key, shape, _) in stored.items()}
    like = with_words(like)
    flat, structure = tree.flatten(like, is_leaf=is_leaf)
    names = tree.path_names(like, "", is_leaf=is_leaf)
    check_paths(names, stored, store.url)

    def restored(name: str, target: Any) -> Any:
        key, shape, dtype = stored[name]
        return leaf_from(store.url, name, shape, dtype, target, lambda index: store.read(key, index))

    return tree.unflatten(structure, [restored(name, target) for name, target in zip(names, flat, strict=True)])


def _write(joined: Any, key: str, store: _Store, leaves: Sequence[Leaf], keys: Sequence[str]) -> None:
    try:
        pending = [store.write(k, start, block) for leaf, k in zip(leaves, keys, strict=True) for start, block in leaf.blocks]
        for each in pending:
            each.result()
        answer = ""
    except Exception as error:  # the others wait for a word
        answer = f"process {joined.process_id} could not write below {store.url}: {error}"
    failed = [text for _, text in sorted(tell(joined, f"{key}parts/", answer).items()) if text]
    if failed:
        raise CheckpointError("\n".join(failed))
    verdict = ""
    if joined.process_id == 0:
        try:
            store.commit([[leaf.path, k, list(leaf.shape), str(leaf.dtype)] for leaf, k in zip(leaves, keys, strict=True)])
        except Exception as error:  # likewise
            verdict = f"process 0 could not finish {store.url}: {error}"
    verdict = tell(joined, f"{key}verdict/", verdict, only=0)[0]
    if verdict:
        raise CheckpointError(verdict)


def _chunk(leaf: Any) -> tuple[int, ...]:
    """The extents of the largest shard: that of device i begins at i times these."""
    if not isinstance(leaf, Array):
        return tuple(max(1, n) for n in np.shape(leaf))
    indices = leaf.sharding.devices_indices_map(leaf.shape).values()
    extents = [[s.indices(n)[1] - s.indices(n)[0] for s, n in zip(index, leaf.shape, strict=True)] for index in indices]
    return tuple(max(1, *column) for column in zip(*extents, strict=True))


def _keys(paths: Sequence[str]) -> list[str]:
    """`['params']['w']` → `params/w`; with its number where that is taken, or is a folder of others."""
    plain = [re.sub(r"[^\w-]+", "/", path).strip("/") or "tree" for path in paths]
    folders = {key[:end] for key in plain for end, letter in enumerate(key) if letter == "/"}
    keys: list[str] = []
    for number, key in enumerate(plain):
        keys.append(f"{key}.{number}" if key in folders or key in keys else key)
    return keys


class _Store:
    """What lies below one URL."""

    def __init__(self, url: str | os.PathLike[str], ocdbt: bool) -> None:
        self.ts = _tensorstore()
        text = os.fspath(url)
        self.url = (text if "://" in text else f"file://{os.path.abspath(text)}").rstrip("/") + "/"
        base = self.ts.KvStore.open(self.url).result()
        self.is_ocdbt = ocdbt or bool(base.read("manifest.ocdbt").result().value)

    def spec(self, path: str = "") -> Any:
        return {"driver": "ocdbt", "base": self.url, "path": path} if self.is_ocdbt else self.url + path

    def drop(self) -> None:
        """What was there before: its index first, so that nobody takes half of it for whole."""
        base = self.ts.KvStore.open(self.url).result()
        base.write(INDEX, None).result()
        base.delete_range(self.ts.KvStore.KeyRange()).result()

    def check(self, path: str, dtype: np.dtype[Any]) -> None:
        """CheckpointError for a dtype that TensorStore has no name for."""
        try:
            self.ts.dtype(dtype)
        except (TypeError, ValueError):
            problem = f"save_zarr: {path or 'the tree'} is of {dtype}, which TensorStore has no data type for"
            raise CheckpointError(f"{problem}\n  fix: checkpoints.save takes it") from None

    def create(self, key: str, shape: Sequence[int], dtype: np.dtype[Any], chunk: Sequence[int]) -> None:
        metadata = {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}}}
        spec = {"driver": "zarr3", "kvstore": self.spec(f"{key}/"), "metadata": metadata}
        self.ts.open(spec, create=True, delete_existing=True, dtype=self.ts.dtype(dtype), shape=list(shape)).result()

    def open(self, key: str) -> Any:
        return self.ts.open({"driver": "zarr3", "kvstore": self.spec(f"{key}/")}).result()

    def write(self, key: str, start: Sequence[int], block: np.ndarray[Any, Any]) -> Any:
        place = tuple(slice(a, a + n) for a, n in zip(start, block.shape, strict=True))
        return self.open(key)[place].write(block)

    def read(self, key: str, index: Sequence[slice]) -> np.ndarray[Any, Any]:
        return np.asarray(self.open(key)[tuple(index)].read().result())

    def commit(self, rows: Sequence[Any]) -> None:
        self.ts.KvStore.open(self.spec()).result().write(INDEX, json.dumps(rows, indent=1).encode()).result()

    def index(self) -> list[Any]:
        value = self.ts.KvStore.open(self.spec()).result().read(INDEX).result().value
        if not value:
            raise CheckpointError(f"{self.url} has no {INDEX}: there is no checkpoint, or it was not written to its end")
        return json.loads(value)


def _tensorstore() -> Any:
    try:
        import tensorstore  # an optional extra  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError('zarr needs TensorStore\n  fix: pip install "meshjit[tensorstore]"') from error
    return tensorstore
