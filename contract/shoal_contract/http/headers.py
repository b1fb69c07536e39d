"""What a request says of itself before anything is done: its headers, its host, whether that is this machine.

A server without a login that listens on loopback answers requests for loopback names only: else a web page of anywhere
could read it through a browser here, by a name of its own that leads to 127.0.0.1 (DNS rebinding).
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
    """Returns the value of a header, None without. Raises Malformed where it is repeated: no one knows which counts."""
    values = [value for found, value in headers if found == name]
    if len(values) > 1:
        raise Malformed(f"the header {name.decode()} is there {len(values)} times", subject=name.decode())
    return values[0].decode("latin-1") if values else None


def is_loopback(host: str) -> bool:
    """A name or address without brackets."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listens_on_loopback(address: str) -> bool:
    """Of `host:port`, as servers are told where to listen."""
    return is_loopback(address.rpartition(":")[0].strip("[]"))


def names_loopback(host: str) -> bool:
    """Of a Host header, or of what stands behind the scheme of an Origin."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    literal = found["literal"]
    # In brackets only an IPv6 address may stand (RFC 3986, section 3.2.2).
    return is_loopback(literal if literal is not None else found["name"]) and (literal is None or ":" in literal)


def check_host(scope: Scope) -> None:
    """Raises PermissionDenied unless the request is for a loopback name; Malformed."""
    host = one_value(scope["headers"], b"host") or ""
    if not names_loopback(host):
        raise PermissionDenied(
            f"this server listens on loopback and answers only requests for localhost, not for host {host[:200]}",
            subject="host",
        )
