"""Defines how to reach an etcd cluster: endpoints, TLS, user and password.

Belongs here: values that a server's `main.py` fills in. Does not: reading of files (pem.py) or the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc

from shoal_contract.errors import Malformed
from shoal_coordination.limits import ENDPOINTS_MAX


@dataclass(frozen=True, slots=True)
class Tls:
    """Holds PEM texts. Without `ca`, the system's roots are used. `certificate` and `key`: the client's own, for mutual
    TLS."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


@dataclass(frozen=True, slots=True)
class PemFiles:
    """Names PEM files for TLS, which are read again after a change. `first`: their content at the start (pem.py reads
    it)."""

    ca: Path
    certificate: Path | None
    key: Path | None
    first: Tls

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.ca, self.certificate, self.key) if path is not None]


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """Holds the options of a client. `endpoints`: `host:port` each, tried in this order. Without `tls`, plain text;
    without `user`, no login. `password_file`, if given, is read at each login, and holds the password in place of
    `password`."""

    endpoints: tuple[str, ...]
    tls: Tls | PemFiles | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.endpoints) <= ENDPOINTS_MAX:
            raise Malformed(f"{len(self.endpoints)} etcd endpoints given; it needs 1 to {ENDPOINTS_MAX}")
        for endpoint in self.endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
                raise Malformed(f"etcd endpoint {endpoint!r} is not host:port", subject=endpoint)

    def password_now(self) -> str:
        """Returns the password to log in with. Raises OSError if its file cannot be read."""
        if self.password_file is None:
            return self.password
        return self.password_file.read_text(encoding="utf-8").strip("\r\n")


def parse_endpoints(text: str) -> tuple[str, ...]:
    """Returns `host:port,host:port` as a tuple, without spaces and empty parts. EtcdOptions checks them."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
