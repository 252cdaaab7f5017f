"""Keeps Gloo's connection messages out of a script's output.

Gloo writes `[Gloo] Rank 0 is connected to 1 peer ranks…` to standard output, from C++, whenever a group of devices first
communicates; there is no switch for it. That happens in the first run of a program, so its output is looked through.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_gloo_messages() -> Generator[None, None, None]:
    """What is written to file descriptor 1 inside comes out afterwards, without Gloo's lines."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # standard output is closed
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            text = b"".join(line for line in file.readlines() if not _is_gloo(line))
            while text:
                text = text[os.write(1, text) :]


def _is_gloo(line: bytes) -> bool:
    """Its messages are written in pieces, which several threads may mix: any line that holds only such pieces."""
    rest = line
    for piece in (b"[Gloo] Rank ", b" is connected to ", b" peer ranks. ", b"Expected number of connected peer ranks is : "):
        rest = rest.replace(piece, b"")
    return rest != line and not rest.strip(b"0123456789 \n")
