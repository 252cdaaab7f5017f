"""Compiled programs on disk, so that the next process need not compile them: `config.compilation_cache_dir`.

An entry is a file named by what the executable depends on: the StableHLO of the local Program (without source lines), XLA's
options, the devices, the versions of meshjit and jaxlib, and, for CPU, the processor. It holds that name again and what jaxlib
serialises. Whatever is not a whole entry of ours is ignored with a warning and written anew (`cache_folder.py`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import platform
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshjit.config import config
from meshjit.emit.emitter import without_locations
from meshjit.monitoring import record_event
from meshjit.runtime import _jaxlib, cache_files, cache_folder
from meshjit.version import __version__


def compile_or_load(
    client: Any, text: str, devices: Sequence[Any], options: Mapping[str, Any], callbacks: Sequence[Callable[..., Any]] = ()
) -> Any:
    """`_jaxlib.compile`, or an executable that an earlier process has compiled of the same. One that calls Python functions is
    of this process alone. What is compiled is also written to `config.dump_ir_to`."""
    if config.dump_ir_to is not None:
        _dump(Path(config.dump_ir_to), text)
    if callbacks:
        return _jaxlib.compile(client, text, devices, options, callbacks)
    folder = None if _jaxlib.is_absent(devices[0]) else cache_folder.folder()
    if folder is None:
        return _jaxlib.compile(client, text, devices, options)
    path = folder / (cache_key(text, devices, options) + cache_folder.EXECUTABLE)
    loaded = _load(path, client, devices, options)
    record_event(f"/jax/compilation_cache/cache_{'misses' if loaded is None else 'hits'}")
    if loaded is not None:
        cache_folder.touch(path)
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
        return _jaxlib.deserialize(client, payload, devices, options)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, cache_files.UselessEntryError, _jaxlib.XlaError) as error:
        warnings.warn(
            f"the compiled program in {path} cannot be used: {error}\n  it is compiled and written anew", stacklevel=2
        )
        return None


def _store(path: Path, executable: Any) -> None:
    """Write an entry: as a whole or not at all."""
    try:
        payload = _jaxlib.serialize(executable)
    except _jaxlib.XlaError:  # there are backends and programs that cannot be serialised
        return
    if len(payload) >= config.persistent_cache_min_entry_size_bytes:
        cache_folder.store(path, payload)
