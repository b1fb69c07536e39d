"""Handles pages of lists: reads and makes cursors, and merges the pages of several slices into one.

A cursor of names is the last name of the page, percent-encoded. So any bytes fit into a URL, and plain names stay
readable.
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
    """Returns the name as `str` if it is UTF-8, else as bytes."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def encode_cursor(name: bytes) -> str:
    """Returns the cursor that goes on behind this name."""
    return quote(name, safe="")


def decode_cursor(cursor: str) -> bytes:
    """Returns the name in a cursor. Raises TypeError, Malformed; InvalidName if it is longer than any name."""
    name = unquote_to_bytes(check_text("after", cursor))
    if len(name) > NAME_BYTES_MAX + 1:
        raise InvalidName(f"cursor {cursor[:40]}... is of {len(name)} bytes: no name is so long", subject="after")
    return name


def decode_position(position: str, cursor: str) -> bytes:
    """Returns a slice's own position, given in hexadecimal. Raises TypeError, Malformed."""
    try:
        return bytes.fromhex(check_text("after", position))
    except ValueError:
        raise Malformed(
            f"cursor {cursor[:100]!r} is not of this list: give `next` of a page", subject="after"
        ) from None


def decode_slice_cursor(cursor: str, slices: Sequence[str]) -> tuple[int, bytes]:
    """Returns (index of the slice to go on with, its position) from "slice.position". Raises TypeError, Malformed."""
    if not check_text("after", cursor):
        return 0, b""
    name, _, position = cursor.rpartition(".")
    if name not in slices:
        raise Malformed(f"cursor {cursor[:100]!r} is not of this list: give `next` of a page", subject="after")
    return slices.index(name), decode_position(position, cursor)


def merge_names(
    parts: Sequence[tuple[Mapping[bytes, Value], bytes]], limit: int, join: Callable[[Value, Value], Value]
) -> tuple[list[tuple[bytes, Value]], str]:
    """Returns up to `limit` names in order, each once, with the cursor of the next page.

    `parts`: each slice's names and its `next`, beyond which nothing is known. `join`: makes one value of a name's two.
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
