"""What a checkpoint's `index.json` says, and which checkpoints a folder has."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

FORMAT = "meshjit checkpoint 1"
INDEX = "index.json"
THREADS = min(8, os.cpu_count() or 1)  # that write or read files, and hash them
_NAME = re.compile(r"step-(\d{8,})")
_ASIDE = re.compile(r"\.step-(\d{8,})\.writing")

Folder = str | os.PathLike[str]


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read. The text names the file or the leaf, and what is wrong with it."""


@dataclass(frozen=True)
class StoredShard:
    """A file: the elements [start, stop) of a leaf, per dim."""

    file: str
    start: tuple[int, ...]
    stop: tuple[int, ...]
    bytes: int  # of the whole file
    sha256: str

    @property
    def size(self) -> int:
        return math.prod(b - a for a, b in zip(self.start, self.stop, strict=True))


@dataclass(frozen=True)
class StoredLeaf:
    """A leaf of the tree. `stored` is what its files hold, where NumPy's format has no name for its dtype."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    stored: str
    shards: tuple[StoredShard, ...]


@dataclass(frozen=True)
class Index:
    step: int
    leaves: tuple[StoredLeaf, ...]

    def write(self, path: Path) -> None:
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1)
        with open(path, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_index(folder: Path) -> Index:
    """Raises CheckpointError for a file that is missing, torn or of another format."""
    path = folder / INDEX
    try:
        index = json.loads(path.read_text())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise CheckpointError(f"{path} is torn: it is no JSON") from None
    if not isinstance(index, Mapping) or index.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not of the format {FORMAT!r}")
    leaves = [
        StoredLeaf(
            leaf["path"], tuple(leaf["shape"]), leaf["dtype"], leaf["stored"],
            tuple(StoredShard(s["file"], tuple(s["start"]), tuple(s["stop"]), s["bytes"], s["sha256"]) for s in leaf["shards"]),
        )
        for leaf in index["leaves"]
    ]  # fmt: skip
    return Index(index["step"], tuple(leaves))


def place(folder: Folder, step: int) -> Path:
    return Path(folder) / f"step-{step:08d}"


def steps(folder: Folder) -> list[int]:
    """The steps of which a folder has whole checkpoints, in order."""
    if not os.path.isdir(folder):
        return []
    names = [_NAME.fullmatch(name) for name in os.listdir(folder)]
    return sorted(int(match[1]) for match in names if match and (Path(folder) / match[0] / INDEX).is_file())


def aside_of(final: Path) -> Path:
    """The folder of a checkpoint that is being written."""
    return final.with_name(f".{final.name}.writing")


def unfinished(folder: Folder) -> dict[int, Path]:
    """By step, the folders of checkpoints that are being written, or whose saving did not come to its end."""
    names = [_ASIDE.fullmatch(name) for name in os.listdir(folder)]
    return {int(match[1]): Path(folder) / match[0] for match in names if match}


def latest(folder: Folder) -> int | None:
    """The last step of which there is a checkpoint; None where there is none."""
    return max(steps(folder), default=None)


def stored_dtype(dtype: np.dtype) -> np.dtype:
    """As what elements stand in a .npy file: bfloat16 and its kin as unsigned integers of their width."""
    return dtype if dtype.kind in "biufc" and dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def check_complete(leaves: Sequence[StoredLeaf]) -> None:
    for leaf in leaves:
        there = sum(shard.size for shard in leaf.shards)
        if there != math.prod(leaf.shape):
            raise CheckpointError(f"{leaf.path}: the processes have written {there} of its {math.prod(leaf.shape)} elements")
