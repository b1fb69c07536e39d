"""Reads the addresses of redirectors as people write them: `host`, `host:port`, `[::1]:port`."""

from __future__ import annotations

from typing import Final

from shoal_contract.errors import Malformed

REDIRECTOR_PORT: Final = 7400
_NOT_IN_HOSTS: Final = " /[]@,"


def redirector_addresses(text: str) -> tuple[str, ...]:
    """Returns the redirectors that `text` names, separated by commas, each as host:port. Raises Malformed."""
    found = tuple(redirector_address(part) for part in text.split(",") if part.strip())
    return found or (redirector_address(text),)


def redirector_address(address: object) -> str:
    """Returns host:port, with the redirector's own port where none is given. Raises TypeError, Malformed."""
    if not isinstance(address, str):
        raise TypeError(f"a redirector's address must be str, host:port, not {type(address).__name__}")
    host, colon, port = address.strip().rpartition(":")
    if not colon or "]" in port:
        host, port = address.strip(), str(REDIRECTOR_PORT)
    if not colon and host.isdecimal():
        raise _malformed(address, "that is a port, and the host is missing")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare:
        raise _malformed(address, "the host is missing")
    for character in bare:
        if character in _NOT_IN_HOSTS or not character.isprintable():
            shown = "a space" if character == " " else repr(character)
            raise _malformed(address, f"a host cannot have {shown} in it")
    if ":" in bare and bare == host:
        raise _malformed(address, "write an IPv6 address in brackets")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise _malformed(address, f"its port is {port!r}; it needs 1 to 65535")
    return f"{host}:{port}"


def port_of(address: str) -> int:
    """Returns the port of HOST:PORT."""
    return int(address.rpartition(":")[2])


def _malformed(address: str, problem: str) -> Malformed:
    return Malformed(
        f"{address[:100]!r} is not host:port ({problem}): give the redirector's gRPC address, as localhost:7400",
        subject="redirector",
    )
