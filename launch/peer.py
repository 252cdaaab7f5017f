"""Whose process is at the other end of a loopback connection: Linux's table of sockets says it.

It needs no secret, so it keeps other users of a host out where nobody has set MESHJIT_JOB_TOKEN.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from launch.rendezvous import is_loopback

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
Ends = tuple[tuple[bytes, int], tuple[bytes, int]]


def is_of_another_user(connection: socket.socket) -> bool:
    """Whether the other end of a loopback connection is known not to be this user's, nor root's. False for other connections, and
    where the system does not say."""
    here, there = connection.getsockname()[:2], connection.getpeername()[:2]
    if not hasattr(os, "geteuid") or not is_loopback(_plain(there[0])):
        return False
    here, there = ((_address(host), port) for host, port in (here, there))
    owners = {ends: owner for ends, owner in _rows() if ends in ((here, there), (there, here))}
    if (here, there) not in owners:  # the table does not even have our own end
        return False
    user, inode = owners.get((there, here), (-1, 0))
    return user not in (os.geteuid(), 0) or inode == 0  # a socket that was closed has no inode, and seems root's


def _plain(host: str) -> str:
    host = host.removeprefix("::ffff:")
    return f"[{host}]" if ":" in host else host


def _address(host: str) -> bytes:
    """The bytes of an address, one of IPv4 also where it is written as one of IPv6."""
    host = host.removeprefix("::ffff:")
    return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)


def _rows() -> Iterator[tuple[Ends, tuple[int, int]]]:
    """((local end, remote end), (user, inode)) of every socket of this network namespace."""
    for path in _TABLES:
        try:
            with open(path) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            yield (_end(words[1]), _end(words[2])), (int(words[7]), int(words[9]))


def _end(text: str) -> tuple[bytes, int]:
    """`0100007F:1F90` → (127.0.0.1, 8080): words of four bytes in the machine's order."""
    address, _, port = text.partition(":")
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    return raw.removeprefix(b"\0" * 10 + b"\xff\xff"), int(port, 16)
