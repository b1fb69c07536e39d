"""The bearer token: where it comes from, when it may be missing, and how it is compared."""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path
from typing import Final

from shoal_contract.errors import Malformed, Unauthenticated

TOKEN_VARIABLE: Final = "SHOAL_ADMIN_TOKEN"
TOKEN_BYTES_MIN: Final = 16


def read_token(file: Path | None, variable: str | None) -> str:
    """From the file, else the environment's value, else "". Raises Malformed, OSError."""
    token = (file.read_text(encoding="utf-8") if file is not None else variable or "").strip()
    where = str(file) if file is not None else TOKEN_VARIABLE
    if file is None and not token:
        return ""
    if len(token) < TOKEN_BYTES_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise Malformed(
            f"the token in {where} must be one line of at least {TOKEN_BYTES_MIN} printable ASCII characters; "
            "openssl rand -hex 32 makes one",
            subject=where,
        )
    return token


def check_start(listen: str, token: str) -> None:
    """Raises Unauthenticated where anyone could call what has no token."""
    if not token and not is_loopback(listen.rpartition(":")[0].strip("[]")):
        raise Unauthenticated(
            f"{listen} is not loopback, so a token is needed: --token-file FILE or {TOKEN_VARIABLE}; "
            "openssl rand -hex 32 makes one",
            subject=listen,
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Token:
    """Compares in constant time. `required` is False where there is none."""

    def __init__(self, token: str) -> None:
        self._expected = token.encode()

    @property
    def required(self) -> bool:
        return bool(self._expected)

    def check(self, authorization: bytes | None) -> None:
        """The value of the Authorization header. Raises Unauthenticated."""
        scheme, _, given = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._expected):
            what = "the token is not the right one" if authorization else "this needs the header"
            hint = "" if authorization else " Authorization: Bearer TOKEN"
            raise Unauthenticated(f"{what}{hint}", subject="token")
