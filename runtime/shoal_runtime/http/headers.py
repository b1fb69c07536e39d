"""Checks what a request says of itself before anything is done: its headers, its host, whether that is this machine.

A server without a login that listens on loopback answers only requests for loopback names. Otherwise any web page could
read the server through a browser on this machine, by a name of its own that leads to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from starlette.types import Scope

from shoal_contract.errors import Malformed, PermissionDenied

Headers = Iterable[tuple[bytes, bytes]]
_HOST: Final = re.compile(r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:/@\s]+))(?::[0-9]{1,5})?")


def one_value(headers: Headers, name: bytes) -> str | None:
    """Returns the value of a header, or None if it is missing. Raises Malformed for a repeated header: it is unknown
    which value counts."""
    values = [value for found, value in headers if found == name]
    if len(values) > 1:
        raise Malformed(f"the header {name.decode()} is there {len(values)} times", subject=name.decode())
    return values[0].decode("latin-1") if values else None


def is_loopback(host: str) -> bool:
    """Tells whether a name, or an address without brackets, is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listens_on_loopback(address: str) -> bool:
    """Tells whether a server's listen address, `host:port`, is loopback."""
    return is_loopback(address.rpartition(":")[0].strip("[]"))


def names_loopback(host: str) -> bool:
    """Tells whether a Host header, or the part of an Origin after its scheme, names loopback."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    literal = found["literal"]
    # Brackets may only enclose an IPv6 address (RFC 3986, section 3.2.2).
    return is_loopback(literal if literal is not None else found["name"]) and (literal is None or ":" in literal)


def check_host(scope: Scope) -> None:
    """Raises PermissionDenied unless the request is for a loopback name; Malformed for a repeated Host."""
    host = one_value(scope["headers"], b"host") or ""
    if not names_loopback(host):
        raise PermissionDenied(
            f"this server listens on loopback and answers only requests for localhost, not for host {host[:200]}",
            subject="host",
        )
