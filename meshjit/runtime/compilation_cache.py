"""Compiled programs on disk, so that the next process need not compile them: `config.compilation_cache_dir`.

An entry is a file named by what the executable depends on: the StableHLO of the local Program (without source lines), XLA's
options, the devices, the versions of meshjit and jaxlib, and, for CPU, the processor. It holds that name again and what jaxlib
serialises. Whatever is not a whole entry of ours is ignored with a warning and written anew. Where the folder's size is
limited (`config.compilation_cache_max_size`), entries are touched when they are used, and those that were not for longest
make room for new ones. jaxlib runs what it reads, so a new folder is its owner's alone, and `cache_files` says which files and
folders are taken.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import platform
import re
import stat
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshjit.config import config
from meshjit.emit.emitter import without_locations
from meshjit.monitoring import record_event
from meshjit.runtime import _jaxlib, cache_files
from meshjit.version import __version__

_SUFFIX = ".executable"


def compile_or_load(
    client: Any, text: str, devices: Sequence[Any], options: Mapping[str, Any], callbacks: Sequence[Callable[..., Any]] = ()
) -> Any:
    """`_jaxlib.compile`, or an executable that an earlier process has compiled of the same. One that calls Python functions is
    of this process alone. What is compiled is also written to `config.dump_ir_to`."""
    if config.dump_ir_to is not None:
        _dump(Path(config.dump_ir_to), text)
    if callbacks:
        return _jaxlib.compile(client, text, devices, options, callbacks)
    if config.compilation_cache_dir is None or not _is_enabled() or _jaxlib.is_absent(devices[0]):
        return _jaxlib.compile(client, text, devices, options)
    folder = Path(config.compilation_cache_dir)
    if not cache_files.is_trusted(folder):
        return _jaxlib.compile(client, text, devices, options)
    path = folder / (cache_key(text, devices, options) + _SUFFIX)
    loaded = _load(path, client, devices, options)
    record_event(f"/jax/compilation_cache/cache_{'misses' if loaded is None else 'hits'}")
    if loaded is not None:
        if config.compilation_cache_max_size > 0:
            with contextlib.suppress(OSError):
                os.utime(path)
        return loaded
    start = time.perf_counter()
    executable = _jaxlib.compile(client, text, devices, options)
    if time.perf_counter() - start >= config.persistent_cache_min_compile_time_secs:
        _store(path, executable)
    return executable


def _dump(folder: Path, text: str) -> None:
    """Write StableHLO to `meshjit_ir<number>_<name>.mlir`, the number being that of the program in this process."""
    name = re.search(r"module @([\w.-]+)", text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"meshjit_ir{next(_numbers)}_{name[1] if name else 'program'}.mlir").write_text(text)


_numbers = itertools.count()


def _is_enabled() -> bool:
    return config.enable_compilation_cache and config.compilation_cache_max_size != 0


def cache_key(text: str, devices: Sequence[Any], options: Mapping[str, Any]) -> str:
    """A digest of all that an executable depends on."""
    parts = [
        f"{cache_files.MAGIC.decode()}meshjit {__version__}, jaxlib {_jaxlib.version}",
        f"{devices[0].platform} {devices[0].client.platform_version}",
        _processor() if devices[0].platform == "cpu" else "",
        *(f"device {d.id} of process {d.process_index}: {d.device_kind} {getattr(d, 'coords', '')}" for d in devices),
        f"for process {devices[0].client.process_index()}",
        *(f"{name}={value!r}" for name, value in sorted(options.items())),
        *_flags(os.environ),
        without_locations(text),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _flags(environ: Mapping[str, str]) -> list[str]:
    """What the environment tells XLA, but for where it writes and how many CPU devices there are."""
    words = f"{environ.get('XLA_FLAGS', '')} {environ.get('LIBTPU_INIT_ARGS', '')}".split()
    return sorted(w for w in words if not w.startswith(("--xla_dump", "--xla_force_host_platform_device_count")))


@functools.cache
def _processor() -> str:
    """What machine code may depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    return f"{platform.machine()} {features}"


def _load(path: Path, client: Any, devices: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The executable of an entry; None where there is none that can be used."""
    try:
        payload = cache_files.read(path, path.stem)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, cache_files.UselessEntryError) as error:
        return _useless(path, str(error))
    try:
        return _jaxlib.deserialize(client, payload, devices, options)
    except _jaxlib.XlaError as error:
        return _useless(path, str(error))


def _useless(path: Path, reason: str) -> None:
    warnings.warn(
        f"the compiled program in {path} cannot be used: {reason}\n  it is compiled and written anew", stacklevel=2
    )


def _store(path: Path, executable: Any) -> None:
    """Write an entry: as a whole or not at all."""
    try:
        payload = _jaxlib.serialize(executable)
    except _jaxlib.XlaError:  # there are backends and programs that cannot be serialised
        return
    if len(payload) < config.persistent_cache_min_entry_size_bytes:
        return
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
    for entry in path.parent.glob(f"*{_SUFFIX}"):
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
