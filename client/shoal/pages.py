"""Pages of lists: cursors, and one page made of the pages of several slices. Pure.

A cursor of names is the last name of the page, percent-encoded: any bytes, fit for a URL, and plain where the name is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote, unquote_to_bytes

from shoal_contract.arguments import check_text
from shoal_contract.errors import InvalidName, Malformed
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.names import Name

Value = TypeVar("Value")


def readable(name: bytes) -> Name:
    """`str` where it is UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def encode_cursor(name: bytes) -> str:
    return quote(name, safe="")


def decode_cursor(cursor: str) -> bytes:
    """Raises TypeError, Malformed; InvalidName for what is longer than any name."""
    name = unquote_to_bytes(check_text("after", cursor))
    if len(name) > NAME_BYTES_MAX + 1:
        raise InvalidName(f"cursor {cursor[:40]}... is of {len(name)} bytes: no name is so long", subject="after")
    return name


def decode_position(position: str, cursor: str) -> bytes:
    """A slice's own position, in hexadecimal. Raises TypeError, Malformed."""
    try:
        return bytes.fromhex(check_text("after", position))
    except ValueError:
        raise Malformed(
            f"cursor {cursor[:100]!r} is not of this list: give `next` of a page", subject="after"
        ) from None


def decode_slice_cursor(cursor: str, slices: Sequence[str]) -> tuple[int, bytes]:
    """(index of the slice to go on with, its position) of "slice.position". Raises TypeError, Malformed."""
    if not check_text("after", cursor):
        return 0, b""
    name, _, position = cursor.rpartition(".")
    if name not in slices:
        raise Malformed(f"cursor {cursor[:100]!r} is not of this list: give `next` of a page", subject="after")
    return slices.index(name), decode_position(position, cursor)


def merge_names(
    parts: Sequence[tuple[Mapping[bytes, Value], bytes]], limit: int, join: Callable[[Value, Value], Value]
) -> tuple[list[tuple[bytes, Value]], str]:
    """Up to `limit` names in order, each once, with the cursor of what follows.

    `parts`: of each slice its names, and its `next`: beyond it nothing is known. `join`: one of two values of a name.
    """
    merged: dict[bytes, Value] = {}
    for names, _ in parts:
        for name, value in names.items():
            merged[name] = join(merged[name], value) if name in merged else value
    known_to = min((following for _, following in parts if following), default=None)
    ordered = sorted(name for name in merged if known_to is None or name <= known_to)
    chosen = ordered[:limit]
    last = chosen[-1] if len(ordered) > limit else known_to or b""
    return [(name, merged[name]) for name in chosen], encode_cursor(last)
