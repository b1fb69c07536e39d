"""How to reach an etcd cluster: endpoints, TLS, user and password.

Belongs here: values that a server's `main.py` fills in. Does not: reading of files or the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc

from shoal_contract.errors import Malformed
from shoal_coordination.limits import ENDPOINTS_MAX


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM texts. Without `ca`, the system's roots; `certificate` and `key` are the client's own, for mutual TLS."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """`endpoints`: `host:port` each, tried in this order. Plain text without `tls`; no login without `user`."""

    endpoints: tuple[str, ...]
    tls: Tls | None = None
    user: str = ""
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.endpoints) <= ENDPOINTS_MAX:
            raise Malformed(f"{len(self.endpoints)} etcd endpoints given; it needs 1 to {ENDPOINTS_MAX}")
        for endpoint in self.endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
                raise Malformed(f"etcd endpoint {endpoint!r} is not host:port", subject=endpoint)


def parse_endpoints(text: str) -> tuple[str, ...]:
    """`host:port,host:port` as a tuple; spaces and empty parts are dropped. Checked by EtcdOptions."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
