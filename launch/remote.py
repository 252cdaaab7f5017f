"""One process of a job on another host: what runs there, at the far end of ssh, and how it is told what to do.

The text of this file is sent through ssh's standard input, so that the other host needs a Python and nothing of ours to begin
with. Lines follow: what to run, as JSON; then numbers of signals for it. When the input closes, because ssh or the launcher has
gone, the process and all that it has started are killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

_BEGIN = "import sys; exec(bytes.fromhex(sys.stdin.readline()), {'__name__': 'meshjit remote'})"
_SENT = ("MESHJIT_", "JAX_", "XLA_", "TPU_", "LIBTPU_", "CUDA_", "NCCL_", "PYTHON", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_PR_SET_PDEATHSIG = 1
FAR_FAILED = 255  # ssh's own exit code where it could not connect


def command_line(shell: Sequence[str], host: str, python: str) -> list[str]:
    """What runs ssh here: the other host's Python waits for our text."""
    return [*shell, host, shlex.join([python, "-c", _BEGIN])]


def letter(command: Sequence[str], environ: Mapping[str, str], folder: str) -> bytes:
    """What is sent through it first. Of the environment only what concerns Python, us and what we stand on."""
    with open(__file__, "rb") as file:
        text = file.read().hex()
    sent = {name: value for name, value in environ.items() if name.startswith(_SENT)}
    return f"{text}\n{json.dumps({'command': list(command), 'environ': sent, 'folder': folder})}\n".encode()


# --- over there ------------------------------------------------------------------------------------------------------


def _run() -> int:
    told = json.loads(sys.stdin.readline())
    try:
        os.chdir(told["folder"])
    except OSError as error:
        print(f"{os.uname().nodename}: {told['folder']}: {error.strerror}", file=sys.stderr)
        return 2
    environ = {**os.environ, **told["environ"]}
    child = subprocess.Popen(
        told["command"], env=environ, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_die_with_parent,
    )  # fmt: skip
    threading.Thread(target=_obey, args=(child.pid,), daemon=True).start()
    status = child.wait()
    _send(child.pid, signal.SIGKILL)  # what it may have left behind
    return status if status >= 0 else 128 - status


def _obey(group: int) -> None:
    for line in sys.stdin:
        _send(group, int(line))
    _send(group, signal.SIGKILL)
    os._exit(1)


def _send(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        pass  # gone already


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "meshjit remote":
    sys.stdout.flush()
    os._exit(_run())
