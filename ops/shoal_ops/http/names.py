"""Names over HTTP. In paths and ids they are percent-encoded bytes, so they may hold anything; in JSON they are text.

A name that is not UTF-8 has no text: JSON shows it escaped, with its percent-encoded bytes beside it (`*_encoded`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from shoal_contract.errors import Malformed
from shoal_contract.names import check_name, encode_name

_PERCENT: Final = tuple(quote(bytes((byte,)), safe="") for byte in range(256))
_ESCAPED: Final = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
"""How a byte stands in a path, and one that is not UTF-8 in a text: four times as fast as the functions for it, which
matters for a page of a thousand names."""


def encoded(name: bytes) -> str:
    """Returns a name as it stands in a path or an id: no character but letters, digits, `-._~` and `%`."""
    return "".join([_PERCENT[byte] for byte in name])


def decoded(text: str, what: str) -> bytes:
    """Returns the bytes of a percent-encoded name. Raises InvalidName."""
    name = unquote_to_bytes(text)
    check_name(name, what)
    return name


def fields(what: str, name: bytes) -> dict[str, str]:
    """Returns {"key": text}, and {"key_encoded": ...} too where the name is not UTF-8."""
    try:
        return {what: name.decode()}
    except UnicodeDecodeError:
        text = name.decode("utf-8", "surrogateescape").translate(_ESCAPED)  # As shoal_contract.names.text.
        return {what: text, f"{what}_encoded": encoded(name)}


def given(what: str, text: str | None, percent: str | None) -> bytes:
    """Returns the name that was given, as text or percent-encoded. Raises Malformed, InvalidName."""
    if (text is None) == (percent is None):
        raise Malformed(f"name the {what} once: as {what} or as {what}_encoded", subject=what)
    return encode_name(text, what) if text is not None else decoded(percent or "", what)


def all_given(what: str, texts: list[str], percents: list[str]) -> list[bytes]:
    """Returns the names given as text, then those given percent-encoded. Raises Malformed where there are none, and
    InvalidName."""
    names = [encode_name(text, what) for text in texts] + [decoded(text, what) for text in percents]
    if not names:
        raise Malformed(f"no {what} is named: give {what}s or {what}s_encoded", subject=f"{what}s")
    return names


def message_id(key: bytes, offset: int) -> str:
    """Returns the id of one message of a queue: key and offset. A percent-encoded name has no `+`."""
    return f"{encoded(key)}+{offset}"


def from_message_id(text: str) -> tuple[bytes, int]:
    """Returns the key and the offset of a message's id. Raises Malformed, InvalidName."""
    key, plus, offset = text.rpartition("+")
    if not plus or not offset.isascii() or not offset.isdigit() or len(offset) > 19 or int(offset) >= 1 << 63:
        raise Malformed(f"{text[:300]!r} is not the id of a message: key+offset", subject="id")
    return decoded(key, "key"), int(offset)
