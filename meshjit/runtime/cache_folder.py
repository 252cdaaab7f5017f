"""The folder in which compiled programs and plans are kept for later processes: `config.compilation_cache_dir`.

Where its size is limited (`config.compilation_cache_max_size`), entries are touched when they are used, and those that were not
for longest make room for new ones. jaxlib runs what it reads, so a new folder is its owner's alone, and `cache_files` says which
files and folders are taken.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import warnings
from pathlib import Path
from typing import Final

from meshjit.config import config
from meshjit.runtime import cache_files

EXECUTABLE: Final = ".executable"
PLAN: Final = ".plan"  # the suffixes of entries


def folder() -> Path | None:
    """Where entries are; None where nothing is kept."""
    if config.compilation_cache_dir is None or not config.enable_compilation_cache or config.compilation_cache_max_size == 0:
        return None
    folder = Path(config.compilation_cache_dir)
    return folder if cache_files.is_trusted(folder) else None


def touch(path: Path) -> None:
    """Say that an entry was used."""
    if config.compilation_cache_max_size > 0:
        with contextlib.suppress(OSError):
            os.utime(path)


def store(path: Path, payload: bytes) -> None:
    """Write an entry: as a whole or not at all."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not cache_files.is_trusted(path.parent):  # another has made it meanwhile
            return
        data = cache_files.packed(path.stem, payload)
        if config.compilation_cache_max_size < 0 or _make_room(path, len(data), config.compilation_cache_max_size):
            cache_files.write(path, data)
    except OSError as error:
        _no_room(str(path.parent), f"{type(error).__name__}: {error}")


def _make_room(path: Path, count: int, limit: int) -> bool:
    """Delete the entries that were not used for longest until `count` bytes more fit; whether they can.

    Other processes may do the same at once, and then a little too much goes; nobody waits for anybody."""
    if count > limit:
        _too_large(str(path.parent), limit)
        return False
    entries: list[tuple[float, int, Path]] = []
    for entry in (entry for suffix in (EXECUTABLE, PLAN) for entry in path.parent.glob(f"*{suffix}")):
        with contextlib.suppress(OSError):  # gone meanwhile
            status = entry.lstat()
            if stat.S_ISREG(status.st_mode):
                entries.append((status.st_mtime, status.st_size, entry))
    total = count + sum(size for _, size, entry in entries if entry != path)
    for _, size, entry in sorted(entries):
        if total <= limit:
            break
        if entry != path:
            entry.unlink(missing_ok=True)
            total -= size
    return True


@functools.cache
def _too_large(folder: str, limit: int) -> None:
    warnings.warn(
        f"a compiled program is larger than all that may be kept in {folder}, and is not\n"
        f"  fix: config.update('compilation_cache_max_size', more than {limit}), or -1 for no limit",
        stacklevel=2,
    )


@functools.cache
def _no_room(folder: str, reason: str) -> None:
    """Once per reason: a script that cannot write one entry cannot write hundreds."""
    warnings.warn(
        f"compiled programs cannot be kept in {folder}: {reason}\n"
        "  fix: config.update('compilation_cache_dir', a folder that can be written to), or None",
        stacklevel=2,
    )
