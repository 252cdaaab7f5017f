"""Files of compiled programs: how one is written and read, and which folders they are taken from.

A compiled program is code, so only what this user or root has written is run: a folder that another owns or can write to is
refused with a warning, and an entry like that is useless. `config.compilation_cache_shared` takes them all the same.

An entry is a head and a payload. The head holds the key of the program, so that a file under another's name is no entry, and a
digest of key and payload. Readers never wait and follow no link: they read regular files, and those of the length that
the head says. Writers do not meet: each writes a file of its own and renames it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import stat
import struct
import tempfile
import warnings
from pathlib import Path
from typing import BinaryIO

from meshjit.config import config

MAGIC = b"meshjit executable 2\n"
_HEAD = struct.Struct(f"<{len(MAGIC)}s32s32sQ")  # magic, digest, key, bytes of the payload
_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_READABLE = 0o644  # what of its folder's mode an entry takes over, where users share the folder


class UselessEntryError(Exception):
    """A file under an entry's name that holds no program which may be run. The text says why."""


def packed(key: str, payload: bytes) -> bytes:
    """An entry's bytes. `key` is a SHA-256 in hexadecimal digits."""
    name = bytes.fromhex(key)
    return _HEAD.pack(MAGIC, hashlib.sha256(name + payload).digest(), name, len(payload)) + payload


def read(path: Path, key: str) -> bytes:
    """The payload of the entry of `key`. Raises UselessEntryError where the file is no whole entry of it, or not to be
    trusted; OSError where it cannot be read."""
    try:
        descriptor = os.open(path, _READING)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UselessEntryError("it is a link") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UselessEntryError(f"it is {_kind(status.st_mode)}, not a file")
        if not config.compilation_cache_shared and (reason := _distrust(status)) is not None:
            raise UselessEntryError(reason)
        with open(descriptor, "rb", closefd=False) as file:
            return _checked_payload(file, status.st_size, key)
    finally:
        os.close(descriptor)


def _checked_payload(file: BinaryIO, size: int, key: str) -> bytes:
    """What follows the head in a file of `size` bytes. A file of another length than the head says is not read."""
    digest, length = _checked_head(file.read(_HEAD.size), key)
    if size == _HEAD.size + length:
        payload = file.read(length)
        if hashlib.sha256(bytes.fromhex(key) + payload).digest() == digest:
            return payload
    raise UselessEntryError("it is cut off or damaged")


def _checked_head(head: bytes, key: str) -> tuple[bytes, int]:
    """Digest and length of the payload."""
    if not head.startswith(MAGIC):
        raise UselessEntryError("it was not written by meshjit")
    if len(head) < _HEAD.size:
        raise UselessEntryError("it is cut off or damaged")
    _, digest, name, length = _HEAD.unpack(head)
    if name.hex() != key:
        raise UselessEntryError("it holds another program: the file was renamed or copied")
    return digest, length


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def write(path: Path, data: bytes) -> None:
    """Write a file: as a whole or not at all. Raises OSError."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem[:16]}.", suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if config.compilation_cache_shared and hasattr(os, "fchmod"):
                os.fchmod(descriptor, path.parent.stat().st_mode & _READABLE)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def is_trusted(folder: Path) -> bool:
    """Whether what lies in the folder may be run; a warning, once, says why not. A folder that is not there yet may."""
    if config.compilation_cache_shared:
        return True
    with contextlib.suppress(OSError):  # whoever reads or writes there says so
        if (reason := _distrust(status := folder.stat())) is not None:
            _refuse(str(folder), reason, _fix(folder, status))
            return False
    return True


def _distrust(status: os.stat_result) -> str | None:
    """Why a folder or file may hold another's work; None where only this user and root can write to it."""
    if not hasattr(os, "geteuid"):  # Windows: modes say nothing there
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to {_user(status.st_uid)}, not to {_user(os.geteuid())}"
    if status.st_mode & 0o022:
        return f"others can write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _user(number: int) -> str:
    """`alice`, or `user 1001` where that has no name here."""
    with contextlib.suppress(ImportError, KeyError):
        import pwd  # not on Windows

        return pwd.getpwuid(number).pw_name
    return f"user {number}"


def _fix(folder: Path, status: os.stat_result) -> str:
    ours = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX  # /tmp stays as it is
    return f"chmod go-w {folder}" if ours else "config.update('compilation_cache_dir', a folder of your own)"


@functools.cache
def _refuse(folder: str, reason: str, fix: str) -> None:
    warnings.warn(
        f"compiled programs in {folder} are not used: {reason}, and what lies there is run\n"
        f"  fix: {fix}; or, if you trust all who can write there, config.update('compilation_cache_shared', True)",
        stacklevel=2,
    )
