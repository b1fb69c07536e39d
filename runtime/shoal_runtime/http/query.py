"""Reads the queries of URLs as bytes: names in them need not be UTF-8."""

from __future__ import annotations

from collections.abc import Iterator, Set
from urllib.parse import unquote_to_bytes

from shoal_contract.errors import Malformed


def values(query: bytes, name: str) -> list[bytes]:
    """Returns the values of a parameter, percent-decoded, in order."""
    return [unquote_to_bytes(value.replace(b"+", b" ")) for found, value in _fields(query) if found == name.encode()]


def check_names(query: bytes, known: Set[str]) -> None:
    """Raises Malformed for an unknown parameter: it would have no effect, though the caller expects one."""
    for field, _ in _fields(query):
        name = unquote_to_bytes(field.replace(b"+", b" ")).decode("utf-8", "backslashreplace")
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise Malformed(f"query parameter {name[:200]!r} is not known here: {takes}", subject=name[:200])


def _fields(query: bytes) -> Iterator[tuple[bytes, bytes]]:
    for field in query.split(b"&"):
        name, _, value = field.partition(b"=")
        if field:
            yield name, value
