"""Marks that one process of a host makes and others see: Linux's abstract sockets, which go with the process that holds them."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import sys
from collections.abc import Generator

HAS_MARKS = sys.platform == "linux"


def hold(name: str) -> socket.socket | None:
    """A mark that is there until it is closed; None where another process has made it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(_address(name))
    except OSError:
        held.close()
        return None
    return held


def is_held(name: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_address(name))
        except OSError:
            return False
        return True


def _address(name: str) -> str:
    return f"\0meshjit/{name}"


@contextlib.contextmanager
def waiting(token: bytes, address: str, rank: int) -> Generator[None]:
    """While a process waits for the others of its job to come: the launcher sees it (`launch/absent.py`)."""
    with (hold(_waits(token, address, rank)) if HAS_MARKS else None) or contextlib.nullcontext():
        yield


def is_waiting(token: bytes, address: str, rank: int) -> bool:
    return HAS_MARKS and is_held(_waits(token, address, rank))


@contextlib.contextmanager
def failing(token: bytes, address: str) -> Generator[None]:
    """While process 0 tells the others of this host that it cannot serve them there."""
    with (hold(_fails(token, address)) if HAS_MARKS else None) or contextlib.nullcontext():
        yield


def has_failed(token: bytes, address: str) -> bool:
    return HAS_MARKS and is_held(_fails(token, address))


def _waits(token: bytes, address: str, rank: int) -> str:
    return f"waits/{_job(token, address)}/{rank}"


def _fails(token: bytes, address: str) -> str:
    return f"fails/{_job(token, address)}"


def _job(token: bytes, address: str) -> str:
    """A name that only those who know the job's token can tell."""
    return hashlib.sha256(token + address.encode()).hexdigest()[:32]
