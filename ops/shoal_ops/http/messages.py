"""Turns messages into JSON and back: bodies and headers are text where they are UTF-8, else base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import shoal
from shoal_contract.errors import Malformed
from shoal_contract.limits import BODY_BYTES_MAX
from shoal_ops.http import names


def shown(message: shoal.Message) -> dict[str, Any]:
    """Returns a message as pulls, peeks and events show it; a live one has no id and no offset."""
    found: dict[str, Any] = {}
    if not message.live:
        found["id"] = names.message_id(message.key_bytes, message.offset)
    found |= names.fields("key", message.key_bytes)
    if message.live:
        found |= {"live": True, "time_ms": message.time_ms}
    else:
        found |= {"offset": message.offset, "time_ms": message.time_ms, "redelivered": message.redelivered}
    if not message.live and message.expires_ms:
        found["expires_ms"] = message.expires_ms
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    headers = message.headers
    return found | _headers(headers) if headers else found


def shown_gap(gap: shoal.Gap) -> dict[str, Any]:
    """Returns a gap as pulls and events show it."""
    return names.fields("key", gap.key_bytes) | {"first": gap.first, "end": gap.end, "why": gap.why}


def _headers(headers: Mapping[str, bytes]) -> dict[str, Any]:
    text: dict[str, str] = {}
    other: dict[str, str] = {}
    for name, value in headers.items():
        try:
            text[name] = value.decode()
        except UnicodeDecodeError:
            other[name] = base64.b64encode(value).decode()
    return ({"headers": text} if text else {}) | ({"headers_base64": other} if other else {})


def body_of(text: str | None, base64_text: str | None) -> bytes:
    """Returns the bytes of a body that is given as text or in base64. Raises Malformed."""
    if (text is None) == (base64_text is None):
        raise Malformed("give the body once: as body (text) or as body_base64", subject="body")
    return encode_text(text, "body") if text is not None else decode_base64(base64_text or "", "body_base64")


def headers_of(text: Mapping[str, str], base64_text: Mapping[str, str]) -> dict[str, bytes] | None:
    """Returns headers that are given as text and in base64; None without any. Raises Malformed."""
    for name in (*text, *base64_text):
        encode_text(name, "the name of a header")
    found = {name: encode_text(value, f"headers.{name}") for name, value in text.items()}
    found |= {name: decode_base64(value, f"headers_base64.{name}") for name, value in base64_text.items()}
    return found or None


def encode_text(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(f"{what} is not valid Unicode: {error.reason}", subject=what[:300]) from None


def decode_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"{what} is not base64: {error}", subject=what[:300]) from None


BODY_BASE64_MAX = 4 * ((BODY_BYTES_MAX + 2) // 3)
"""The characters of the largest body in base64."""
