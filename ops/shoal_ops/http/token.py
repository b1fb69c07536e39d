"""The bearer token: where it comes from, when it may be missing, and how it is compared."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shoal_contract.errors import Unauthenticated
from shoal_ops.http.token_file import TokenFile, tokens_in
from shoal_runtime.http.headers import listens_on_loopback

TOKEN_VARIABLE: Final = "SHOAL_ADMIN_TOKEN"


class Token:
    """Compares in constant time with each of the tokens that are valid now. `required` is False where there is no
    token."""

    def __init__(self, valid: Callable[[], tuple[str, ...]] = tuple) -> None:
        self._valid = valid

    @property
    def required(self) -> bool:
        return bool(self._valid())

    def check(self, authorization: str | None) -> None:
        """Checks the value of the Authorization header. Raises Unauthenticated."""
        if not authorization:
            raise Unauthenticated("this needs the header Authorization: Bearer TOKEN", subject="token")
        scheme, _, given = authorization.partition(" ")
        given_bytes = given.strip().encode("utf-8", "replace")
        # All are compared, even after one fits.
        fits = [hmac.compare_digest(given_bytes, valid.encode()) for valid in self._valid()]
        if scheme.lower() != "bearer" or not any(fits):
            raise Unauthenticated("the token is not the right one", subject="token")


def token_from(file: Path | None, variable: str | None) -> Token:
    """Returns the token from the file, else from the environment's value, else none. Raises Malformed,
    PermissionDenied, OSError."""
    if file is not None:
        return Token(TokenFile(file).tokens)
    valid = tokens_in(variable, TOKEN_VARIABLE) if variable and variable.strip() else ()
    return Token(lambda: valid)


def check_start(listen: str, token: Token, ways: str = f"--token-file FILE or {TOKEN_VARIABLE}") -> None:
    """Checks that the server may be called as it is about to be. `ways`: how a token can be given. Raises
    Unauthenticated where there is no token and other machines can call."""
    if not token.required and not listens_on_loopback(listen):
        raise Unauthenticated(
            f"{listen} is not loopback, so a token is needed: {ways}; openssl rand -hex 32 makes one",
            subject=listen,
        )
