"""Reads the heads of requests strictly: h11 with a bound for every head, and without the forms that it only tolerates.

A connection is read in turns (turns.py): one head, or EVENTS_PER_TURN pieces of a body, in each turn.

h11 checks the size of incomplete heads only, takes lines that end in a bare LF, and joins folded lines. Other servers
on the way may read such a head differently. Not here: what a header means.
"""

from __future__ import annotations

import re
from typing import Any

import h11

from shoal_runtime.http.limits import EVENTS_PER_TURN

_HEAD_END = b"\r\n\r\n"
_BARE_LF = re.compile(rb"(?<!\r)\n")
_FOLDED = re.compile(rb"\r\n[ \t]")


class StrictConnection(h11.Connection):
    """Keeps the server's side of one connection. `begun`: a part of a head has come. `refusal`: why nothing more is
    read. `more`: the received data may hold more than was read in this turn."""

    def __init__(self, head_bytes_max: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=head_bytes_max)
        self._head_bytes_max = head_bytes_max
        self.begun = False
        self.refusal: h11.RemoteProtocolError | None = None
        self.more = False
        self._events_left = EVENTS_PER_TURN
        self._has_head = False

    def begin_turn(self) -> None:
        self.more = self._has_head = False
        self._events_left = EVENTS_PER_TURN

    def next_event(self) -> Any:
        """Returns the next event, as h11 does; also returns NEED_DATA at the end of a turn. Raises RemoteProtocolError,
        with the status of the answer in `error_status_hint`."""
        if not self._events_left or (self._has_head and self.their_state is h11.IDLE):
            self.more = True
            return h11.NEED_DATA
        self._events_left -= 1
        try:
            return self._next_event()
        except h11.RemoteProtocolError as error:
            self.refusal = error
            raise

    def _next_event(self) -> Any:
        if self.their_state is not h11.IDLE:
            return super().next_event()
        data, _ = self.trailing_data
        end = data.find(_HEAD_END)
        head = data if end < 0 else data[: end + len(_HEAD_END)]
        if len(head) > self._head_bytes_max:
            text = f"the request line and headers are longer than the limit of {self._head_bytes_max} bytes"
            raise h11.RemoteProtocolError(text, error_status_hint=431)
        if _BARE_LF.search(head):
            raise h11.RemoteProtocolError("a line of the head ends in LF without CR")
        if _FOLDED.search(head):
            raise h11.RemoteProtocolError("a header goes on in the next line: folded headers are not taken")
        event = super().next_event()
        self.begun = event is h11.NEED_DATA and bool(data)
        self._has_head = isinstance(event, h11.Request)
        return event
