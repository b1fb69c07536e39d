"""Checks HOST:PORT arguments of the command line before anything is started: a bad one ends with exit code 2.

Belongs here: parsing, and its error messages. Not here: whether the port is free (shoal_local.ports).
"""

from __future__ import annotations

import typer

from shoal_ops.limits import PORT_MAX
from shoal_runtime.http.headers import is_loopback


def host_port(text: str) -> str:
    """Returns a HOST:PORT as it was given; port 0 takes a free one. Raises BadParameter."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or (":" in host and not host.startswith("[")):
        raise typer.BadParameter(f"{text} needs HOST:PORT, as in 127.0.0.1:{text if text.isdecimal() else 7400}")
    if not port.isdecimal() or not 0 <= int(port) <= PORT_MAX:
        raise typer.BadParameter(f"{text} has no port from 0 to {PORT_MAX} behind its last colon")
    return text


def optional_host_port(text: str | None) -> str | None:
    """Does the same as `host_port`, for an option that may be left out: then it returns None."""
    return None if text is None else host_port(text)


def host_port_or_none(text: str) -> str:
    """Does the same as `host_port`, where "" means that there is none."""
    return text and host_port(text)


def loopback(text: str) -> str:
    """Does the same as `host_port`, and refuses addresses that are not loopback. Raises BadParameter."""
    host = host_port(text).rpartition(":")[0].strip("[]")
    if not is_loopback(host):
        raise typer.BadParameter(
            f"{text} is not loopback: the slices of a local cluster are at 127.0.0.1, where no other machine reaches"
            " them, and nothing asks for a login. Use 127.0.0.1; a cluster for other machines is docs/kubernetes.md"
        )
    return text
