"""A warning at `os.fork()` once devices are in use: XLA's threads stay behind in the parent, and the child waits for them.

`subprocess` and `posix_spawn` start another program and run none of this.
"""

from __future__ import annotations

import functools
import os
import warnings

_TEXT = (
    "os.fork() after the first use of devices: the child has none of XLA's threads, so what it compiles, runs op by op or "
    "runs on several devices hangs\n"
    '  fix: start processes by multiprocessing.get_context("spawn") or "forkserver", or fork before the first array is made'
)


@functools.cache  # a hook cannot be taken back, so there is only one
def warn_at_fork() -> None:
    """From now on forks of this process warn. A child's own forks do not: it was warned of."""
    if not hasattr(os, "register_at_fork"):  # Windows has no fork
        return
    parent = os.getpid()

    def before() -> None:
        if os.getpid() == parent:
            warnings.warn(_TEXT, RuntimeWarning, stacklevel=2)

    os.register_at_fork(before=before)
