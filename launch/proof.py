"""Lines that only a process of this job can write: keyed hashes over random numbers of both sides, so no line serves twice.

    process 0   meshjit roll call <its nonce>
    caller      meshjit <rank> <size> <its nonce> <hash>
    process 0   <hash> here                                  at once: the caller knows whom it talks to
    process 0   <hash> go                                    when all have called; or what is wrong

The key is the job's token (`rendezvous.job_token`). It never goes over the wire.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass

LONGEST = 4096  # bytes of a line; a stranger's may have no end

_GREETING = re.compile(rb"meshjit roll call ([0-9a-f]{32})")
_HELLO = re.compile(rb"meshjit (\d{1,9}) (\d{1,9}) ([0-9a-f]{32}) ([0-9a-f]{64})")


def nonce() -> str:
    return secrets.token_hex(16)


def greeting(mine: str) -> bytes:
    return f"meshjit roll call {mine}\n".encode()


def nonce_of(line: bytes) -> str | None:
    """The nonce in a greeting; None for any other line."""
    match = _GREETING.fullmatch(line)
    return match[1].decode() if match else None


@dataclass(frozen=True)
class Hello:
    """Who calls, if the hash is right: `is_proven`."""

    rank: int
    size: int
    nonce: str
    proof: str

    def is_proven(self, token: bytes, mine: str) -> bool:
        return hmac.compare_digest(self.proof, _hash(token, "caller", mine, self.nonce, f"{self.rank} {self.size}"))


def hello(token: bytes, rank: int, size: int, theirs: str, mine: str) -> bytes:
    proof = _hash(token, "caller", theirs, mine, f"{rank} {size}")
    return f"meshjit {rank} {size} {mine} {proof}\n".encode()


def hello_of(line: bytes) -> Hello | None:
    match = _HELLO.fullmatch(line)
    return Hello(int(match[1]), int(match[2]), match[3].decode(), match[4].decode()) if match else None


def answer(token: bytes, mine: str, theirs: str, text: str) -> bytes:
    """A line of process 0's, whose nonce is `mine`."""
    return f"{_hash(token, 'answer', mine, theirs, text)} {text}\n".encode()


def answered(token: bytes, theirs: str, mine: str, line: bytes) -> str | None:
    """What such a line says; None where whoever wrote it does not know the token."""
    proof, _, text = line.decode(errors="replace").partition(" ")
    right = _hash(token, "answer", theirs, mine, text)
    return text if hmac.compare_digest(proof.encode(), right.encode()) else None


def _hash(token: bytes, *parts: str) -> str:
    return hmac.new(token, "\n".join(parts).encode(), "sha256").hexdigest()
