"""Who comes to MPI_Init: processes with a launcher's variables, without MPI; and certificates, which are looked at before that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshjit.config import config
from meshjit.runtime import _jaxlib
from meshjit.runtime.certificates import certificates

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets and /proc")

COME = """
import os, sys, time
from launch.arrival import arrival
from launch.cluster import detect
time.sleep(float(sys.argv[1]))
with arrival(detect(os.environ), float(sys.argv[2])):
    print("in")
    time.sleep(float(sys.argv[3]))
"""


def start(*delays: float, timeout: float = 20, inside: float = 0) -> list[subprocess.Popen[str]]:
    """Processes that come after so many seconds; None in place of one that never was."""
    told = {"PMI_SIZE": str(len(delays)), "MPI_LOCALNRANKS": str(len(delays))}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "MPI_", "MESHJIT_", "OMPI"))}
    return [
        subprocess.Popen(
            [sys.executable, "-S", "-c", COME, str(delay), str(timeout), str(inside)], cwd=Path(__file__).parents[1],
            env={**clean, **told, "PMI_RANK": str(rank), "MPI_LOCALRANKID": str(rank), "PYTHONPATH": "."},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank, delay in enumerate(delays)
    ]  # fmt: skip


def test_all_come() -> None:
    assert [process.communicate(timeout=60) for process in start(0, 0.3, inside=5)] == [("in\n", "")] * 2


def test_who_has_ended_is_named() -> None:
    waiting, gone = start(0, 300, timeout=200)
    gone.kill()
    gone.communicate()
    error = waiting.communicate(timeout=60)[1]
    assert waiting.returncode == 1
    assert f"RendezvousError: process 1 of 2 (host {os.uname().nodename}) has ended before it came to the others\n" in error


def test_who_is_stopped_is_named() -> None:
    waiting, stopped = start(0, 300, timeout=500)
    stopped.send_signal(signal.SIGSTOP)
    error = waiting.communicate(timeout=60)[1]
    stopped.communicate(timeout=60)
    assert stopped.returncode == -9  # for mpirun would wait for it
    why = f"process 1 of 2 (host {os.uname().nodename}) is stopped (SIGSTOP, or a debugger)\n"
    assert waiting.returncode == 1 and f"[rank 0] {why}" in error and f"RendezvousError: {why}" in error


def test_who_is_late_is_named_at_the_timeout() -> None:
    waiting, late = start(0, 300, timeout=1)
    error = waiting.communicate(timeout=60)[1]
    late.communicate(timeout=60)
    assert late.returncode == -9  # for mpirun would wait for it
    why = f"process 1 of 2 (host {os.uname().nodename}) did not come within 1 s\n"
    assert waiting.returncode == 1 and error.startswith(f"[rank 0] {why}") and f"RendezvousError: {why}" in error


def test_what_waits_in_mpi_ends_at_the_timeout() -> None:
    process = start(0, timeout=1, inside=300)[0]
    out, error = process.communicate(timeout=60)
    assert process.returncode == 1 and "Timeout (0:00:01)!" in error


# --- certificates ------------------------------------------------------------------------------------------------------


def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert certificates() == {}
    files = {name: str(tmp_path / name) for name in ("mtls_cert_file", "mtls_key_file", "mtls_ca_file")}
    with config.using(mtls_cert_file=files["mtls_cert_file"]), pytest.raises(ValueError) as error:
        certificates()
    assert str(error.value) == (
        "mutual TLS: MESHJIT_MTLS_KEY_FILE and MESHJIT_MTLS_CA_FILE not set\n  fix: set all three files, or none"
    )
    with config.using(**files):
        with pytest.raises(ValueError, match=f"MESHJIT_MTLS_CERT_FILE={files['mtls_cert_file']} cannot be read"):
            certificates()
        for path in files.values():
            Path(path).write_text("")
        monkeypatch.setattr(_jaxlib, "has_mutual_tls", lambda: False)
        with pytest.raises(RuntimeError, match="cannot do it\n  fix: jaxlib 0.12, or unset MESHJIT_MTLS_CERT_FILE"):
            certificates()
        monkeypatch.setattr(_jaxlib, "has_mutual_tls", lambda: True)
        with config.using(mtls_peer_uri_prefix="spiffe://job/"):
            assert certificates() == {**files, "verify_secure_credentials": True, "mtls_peer_uri_prefix": "spiffe://job/"}
