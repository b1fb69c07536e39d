"""Tells how many bytes the headers of a call took on the wire, at least: HTTP/2 sends a header that came before as one
byte, as long as it is in the connection's table (HPACK, RFC 7541, 2.3.2 and 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_TABLE_BYTES: Final = 4096
_ENTRY_BYTES: Final = 32
"""The size of the table, and what each entry counts there beside its texts."""
_PACKED: Final = 0.6
"""The share that is left of texts of digits and letters (RFC 7541, appendix B)."""

Headers = Iterable[tuple[str, str | bytes]]


class SeenHeaders:
    """Remembers one connection's latest headers, as its table may have them."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        """By the header's hash, the oldest first."""
        self._size_bytes = 0

    def new_bytes(self, headers: Headers) -> int:
        """Returns what came of headers that the table did not have, and notes them."""
        came = 0
        for name, value in headers:
            key, size = hash((name, value)), len(name) + len(value)
            if key not in self._sizes:
                came += size
                self._sizes[key] = size + _ENTRY_BYTES
                self._size_bytes += size + _ENTRY_BYTES
        while self._size_bytes > _TABLE_BYTES:
            oldest = next(iter(self._sizes))
            self._size_bytes -= self._sizes.pop(oldest)
        return int(_PACKED * came)
