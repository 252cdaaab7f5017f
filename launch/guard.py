"""Ends what a launcher has started, should the launcher be killed: run as a process of its own, by path. Its standard input is a
pipe that only the launcher can write to.

    +1234      process group 1234 belongs to the job
    -1234      it has ended

When the pipe closes, whoever closed it, the groups that are left are killed.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass  # gone already


if __name__ == "__main__":
    main()
