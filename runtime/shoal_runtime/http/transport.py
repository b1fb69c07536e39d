"""Provides a transport that counts the memory of its unsent bytes, and is not read while its connection has enough."""

from __future__ import annotations

import asyncio
from typing import Any


class CountedTransport(asyncio.Transport):
    """Passes everything on to another transport. `held_bytes`: the bytes written since the buffer was last empty.

    A transport tells how many bytes are unsent; but the object that they are a part of stays in memory as a whole.
    The transport is read unless its protocol paused it, or `hold` did.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self.held_bytes = 0
        self._paused = False
        self._held = False

    def hold(self, held: bool) -> None:
        """Sets whether reading stops for now."""
        self._held = held
        self._read_or_not()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._transport.get_write_buffer_size():
            self.held_bytes = 0
        self.held_bytes += len(data)
        self._transport.write(data)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        self._paused = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport.is_closing():
            return
        if self._paused or self._held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
