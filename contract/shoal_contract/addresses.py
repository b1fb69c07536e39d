"""Addresses that users type: HOST:PORT, where the port may be left out. Pure."""

from __future__ import annotations

from typing import Final

from shoal_contract.errors import Malformed

REDIRECTOR_PORT: Final = 7400
"""The redirector's gRPC: what `shoal up` and the chart listen on. gRPC itself would take 443."""

_PORTS: Final = range(1, 1 << 16)


def redirector_addresses(text: str) -> tuple[str, ...]:
    """Returns the redirectors that `text` names, separated by commas, each with its port. Raises Malformed."""
    found = tuple(with_port(part.strip(), REDIRECTOR_PORT) for part in text.split(",") if part.strip())
    if not found:
        raise Malformed(f"{text!r} names no redirector: it needs HOST or HOST:PORT, several with commas", subject=text)
    return found


def with_port(address: str, port: int) -> str:
    """Returns `address` as host:port, with `port` where it has none. Raises Malformed.

    IPv6 addresses may stand in brackets or bare. Names with a scheme (dns:///host, unix:/path) are gRPC's own and stay.
    """
    if "/" in address:
        return address
    if address.count(":") > 1 and not address.startswith("["):
        return f"[{address}]:{port}"
    host, colon, given = address.rpartition(":")
    if not colon or address.endswith("]"):
        return f"{address}:{port}"
    if not host or not given.isdecimal() or int(given) not in _PORTS:
        raise Malformed(f"{address} is not HOST:PORT: the port is a number from 1 to 65535", subject=address)
    return address
