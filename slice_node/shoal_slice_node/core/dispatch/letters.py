"""Keeps the dead letters for keys of other slices, until their copies are there. In memory, on the leader only.

A letter has a producer of its own, made from what it is a copy of: however often it is sent, there is one copy. A new
leader finds in the tables that the message was delivered as often as may be, and sends the letter again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.limits import PRODUCER_BYTES
from shoal_slice_node.core.apply.dead_letters import Death, copy_of
from shoal_slice_node.core.apply.expiry import is_over
from shoal_slice_node.core.apply.log_rows import LogRows, StoredChunk
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting
from shoal_slice_node.core.rows.key_row import KeyRow

SEQUENCE: Final = 1
"""The number of a letter's only publish."""
_NUMBERS = Struct(">QQH")


class Letter(NamedTuple):
    """Describes a copy to be published: to which key, by which producer, and what."""

    key: bytes
    producer: bytes
    chunk: bytes
    stream: Stream
    resting: Resting


class Letters:
    """Keeps the letters. `retry`: takes a message whose copy is where it belongs."""

    def __init__(self, state: State, retry: Callable[[Stream, Resting], None]) -> None:
        self._state = state
        self._retry = retry
        self._waiting: deque[tuple[Stream, Resting]] = deque()
        self._last: tuple[bytes, StoredChunk] | None = None
        """The key and the chunk of the last letter, while more letters wait."""
        self._unsent = 0
        """The messages in `_waiting`."""
        self._under_way = 0
        """Letters that `take` returned, and that are neither sent nor back."""

    @property
    def unsent(self) -> int:
        """Returns how many letters wait, or are on their way; of some that wait the messages may be gone."""
        return self._unsent + self._under_way

    def __bool__(self) -> bool:
        """Returns whether letters wait to be sent."""
        return bool(self._waiting)

    def add(self, stream: Stream, resting: Resting) -> None:
        """Takes messages whose copies belong on another slice: one letter each."""
        self._waiting.append((stream, resting))
        self._unsent += resting.to - resting.first

    def _first_of(self, stream: Stream, resting: Resting) -> Resting:
        """Returns the first message of a stretch, for a letter; the others wait."""
        if resting.to > resting.first + 1:
            stream.end_rest(resting)
            one = resting.part(resting.first, resting.first + 1)
            rest = resting.part(one.to, resting.to)
            stream.rest_on(one)
            stream.rest_on(rest)
            self._waiting.appendleft((stream, rest))
            self._unsent += rest.to - rest.first
            return one
        return resting

    def take(self) -> Letter | None:
        """Returns the next letter to send; None: there is none. `sent` or `not_sent` must be called for it."""
        while self._waiting:
            stream, resting = self._waiting.popleft()
            self._unsent -= resting.to - resting.first
            if resting.over or stream.feed.gone:
                continue
            letter = self._letter(stream, self._first_of(stream, resting))
            if not self._waiting:
                self._last = None
            if letter is not None:
                self._under_way += 1
                return letter
        return None

    def _letter(self, stream: Stream, resting: Resting) -> Letter | None:
        """Returns the letter; None: the message is gone, or no copy of it is to be made."""
        feed, offset = stream.feed, resting.first
        queue = self._state.load_queue_by_id(feed.queue_id)
        found = self._state.key_by_id(stream.key_id)
        stored = None if found is None else self._stored(found[1], offset)
        if queue is None or stored is None or not stored.first <= offset:
            return None
        death = Death(feed.name, stream.key, offset, resting.times, resting.reason)
        over = is_over(stored.header, self._state.time_ms)
        copy = None if over else copy_of(stored.opened(), offset - stored.first, death)
        if copy is None:
            self._done(stream, resting)
            return None
        # Names and numbers that stay the same if the key moves to another slice: ids are each slice's own.
        of = _NUMBERS.pack(queue.incarnation, offset, len(feed.name))
        hashed = b"".join((b"dead letter|", of, feed.name, stream.key))
        assert isinstance(feed.dead_letter, bytes)
        return Letter(feed.dead_letter, sha256(hashed).digest()[:PRODUCER_BYTES], copy, stream, resting)

    def _stored(self, key: KeyRow, offset: int) -> StoredChunk | None:
        """Returns the chunk of a message. The last one is kept, as far as the log has it: a chunk may have thousands of
        messages, each with a letter of its own."""
        last = self._last
        if last is not None and last[0] == key.id and last[1].first <= offset < last[1].end and offset >= key.low:
            return last[1]
        stored = LogRows(self._state.tables.log, key).at(offset)
        self._last = None if stored is None else (key.id, stored)
        return stored

    def sent(self, letter: Letter) -> None:
        """Notes that the copy is on the slice that owns its key."""
        self._under_way -= 1
        self._done(letter.stream, letter.resting)

    def not_sent(self, letter: Letter) -> None:
        """Notes that it is not known to be there: it waits again, behind the others."""
        self._under_way -= 1
        self.add(letter.stream, letter.resting)

    def _done(self, stream: Stream, resting: Resting) -> None:
        resting.note_sent()
        if not resting.over:
            self._retry(stream, resting)
