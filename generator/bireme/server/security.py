"""What `bireme serve` closes by default: Triton's administration behind a key, gRPC behind TLS if wanted.

docs/security.md says against whom this helps.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bireme.errors import ServerError

__all__ = ["ADMIN_VARIABLE", "RESTRICTED", "Tls", "admin_flags", "read_admin_key", "tls_flags"]

ADMIN_VARIABLE = "BIREME_ADMIN_KEY"
RESTRICTED = ("model-repository", "shared-memory", "logging", "trace")
"""Groups of Triton's APIs that change the server, read its settings or map memory; not: inference, health,
metadata, model configurations, statistics."""

HEADER = "admin-key"
"""HTTP header that carries the key; over gRPC it is `triton-grpc-protocol-` and this."""

_KEY = re.compile(r"[A-Za-z0-9_.+/=-]{16,256}")


@dataclass(frozen=True)
class Tls:
    """Files (PEM) for Triton's gRPC port; `client_ca`: only clients with a certificate of this authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def read_admin_key(file: Path | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The admin key from its file, else from the environment; None: neither is given.

    Raises:
        ServerError: the file cannot be read, or what it holds is no key.
    """
    if file is not None:
        where = str(file)
        try:
            key = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ServerError(where, f"cannot be read: {error.strerror}", "name a file with a key") from None
        except UnicodeDecodeError:
            key = ""
    elif ADMIN_VARIABLE in environ:
        where, key = ADMIN_VARIABLE, environ[ADMIN_VARIABLE].strip()
    else:
        return None
    if not _KEY.fullmatch(key):
        message = "is no key: give 16 to 256 letters, digits and _.+/=-"
        raise ServerError(where, message, "make one: openssl rand -hex 32")
    return key


def admin_flags(key: str | None) -> list[str]:
    """Flags that close the administration for whoever does not send the key; None: for everybody."""
    # Triton cannot switch these off, so nobody gets to know the key.
    rule = f"{','.join(RESTRICTED)}:{HEADER}={key or secrets.token_hex(32)}"
    return [f"--http-restricted-api={rule}", f"--grpc-restricted-protocol={rule}"]


def tls_flags(tls: Tls | None) -> list[str]:
    """Flags for TLS on the gRPC port; Triton has none for HTTP and metrics.

    Raises:
        ServerError: a file is missing: Triton would start, and every connection fail.
    """
    if tls is None:
        return []
    for file in (tls.certificate, tls.key, tls.client_ca):
        if file is not None and not (file.is_file() and os.access(file, os.R_OK)):
            raise ServerError(str(file), "cannot be read", "give a PEM file that this user may read")
    flags = [
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={tls.certificate.absolute()}",
        f"--grpc-server-key={tls.key.absolute()}",
    ]
    if tls.client_ca is not None:
        flags += ["--grpc-use-ssl-mutual=true", f"--grpc-root-cert={tls.client_ca.absolute()}"]
    return flags
