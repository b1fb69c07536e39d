"""Handles pages of lists: makes the `next` of a page, reads it as the `after` of the next one, and merges the pages of
several slices into one.

The `next` of names is the last name of the page, percent-encoded. So any bytes fit into a URL, and plain names stay
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


def encode_next(name: bytes) -> str:
    """Returns the `next` of a page that ends with this name."""
    return quote(name, safe="")


def decode_after(after: str) -> bytes:
    """Returns the name in a `next`, given as `after`. Raises TypeError, Malformed; InvalidName if it is longer than any
    name."""
    name = unquote_to_bytes(check_text("after", after))
    if len(name) > NAME_BYTES_MAX + 1:
        raise InvalidName(f"`after` {after[:40]}... is of {len(name)} bytes: no name is so long", subject="after")
    return name


def decode_position(position: str, after: str) -> bytes:
    """Returns a slice's own position, given in hexadecimal. Raises TypeError, Malformed."""
    try:
        return bytes.fromhex(check_text("after", position))
    except ValueError:
        raise _not_of_this_list(after) from None


def decode_slice_after(after: str, slices: Sequence[str]) -> tuple[int, bytes]:
    """Returns (index of the slice to go on with, its position) from "slice.position". Raises TypeError, Malformed."""
    if not check_text("after", after):
        return 0, b""
    name, _, position = after.rpartition(".")
    if name not in slices:
        raise _not_of_this_list(after)
    return slices.index(name), decode_position(position, after)


def _not_of_this_list(after: str) -> Malformed:
    return Malformed(f"`after` {after[:100]!r} is not of this list: give `next` of a page", subject="after")


def merge_names(
    parts: Sequence[tuple[Mapping[bytes, Value], bytes]], limit: int, join: Callable[[Value, Value], Value]
) -> tuple[list[tuple[bytes, Value]], str]:
    """Returns up to `limit` names in order, each once, with the `next` of the page.

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
    return [(name, merged[name]) for name in chosen], encode_next(last)
