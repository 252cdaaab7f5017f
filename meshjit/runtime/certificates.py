"""Certificates by which processes and jaxlib's coordination service know one another (mutual TLS), where jaxlib can do that."""

from __future__ import annotations

import os
from typing import Any

from meshjit.config import config
from meshjit.runtime import _jaxlib

_FILES = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file")


def certificates() -> dict[str, Any]:
    """jaxlib's arguments for mutual TLS; {} where the user has set none of the three files.

    Raises ValueError where one is missing or cannot be read, RuntimeError where this jaxlib knows no TLS."""
    files = {name: getattr(config, name) for name in _FILES}
    missing = [_variable(name) for name, path in files.items() if path is None]
    if len(missing) == len(files):
        return {}
    if missing:
        raise ValueError(f"mutual TLS: {' and '.join(missing)} not set\n  fix: set all three files, or none")
    for name, path in files.items():
        if not os.access(path, os.R_OK):
            raise ValueError(f"mutual TLS: {_variable(name)}={path} cannot be read")
    if not _jaxlib.has_mutual_tls():
        raise RuntimeError(
            f"mutual TLS: jaxlib {_jaxlib.version} cannot do it\n"
            f"  fix: jaxlib 0.12, or unset {' and '.join(map(_variable, _FILES))}"
        )
    prefix = config.mtls_peer_uri_prefix
    return {**files, "verify_secure_credentials": True, **({"mtls_peer_uri_prefix": prefix} if prefix else {})}


def _variable(name: str) -> str:
    return f"MESHJIT_{name.upper()}"
