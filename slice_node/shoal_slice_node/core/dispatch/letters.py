"""Keeps the dead letters for keys of other slices, until their copies are there. In memory, on the leader only.

A letter has a producer of its own, made from what it is a copy of: however often it is sent, there is one copy. A new
leader finds in the tables that the message was delivered as often as may be, and sends the letter again. The producer
also depends on when the message was published: where a slice began anew without its data, its offsets come a second
time, that time does not.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.limits import PRODUCER_BYTES
from shoal_slice_node.core.apply.dead_letters import Death, copy_of
from shoal_slice_node.core.apply.expiry import has_expired
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.letter_lines import LetterLines
from shoal_slice_node.core.dispatch.originals import Originals
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting
from shoal_slice_node.core.dispatch.undecided import split
from shoal_slice_node.core.limits import DEAD_LETTER_BYTES_OPENED, DEAD_LETTERS_LOOKED_AT, DEAD_LETTERS_OF_A_STRETCH

FIRST_SEQUENCE: Final = 1
"""The number of a letter's publish. One that was refused is followed by one with the next number."""
_NUMBERS = Struct(">QQQH")


class Letter(NamedTuple):
    """Describes a copy to be published: to which key, by which producer, and what."""

    key: bytes
    producer: bytes
    chunk: bytes
    stream: Stream
    resting: Resting


class Letters:
    """Keeps the letters: of messages in a row one stretch, of which a letter is made when it is taken. `retry`: takes a
    message whose copy is where it belongs."""

    def __init__(
        self,
        state: State,
        originals: Originals,
        retry: Callable[[Stream, Resting], None],
        expiry_clock_ms: Callable[[], int],
    ) -> None:
        self._state = state
        self._expiry_clock_ms = expiry_clock_ms
        self._originals = originals
        self._retry = retry
        self._lines: LetterLines[tuple[Stream, Resting]] = LetterLines()
        self.unsent = 0
        """How many letters wait, or are on their way; of some that wait the messages may be gone."""

    def ready(self, now_ms: int) -> bool:
        """Returns whether letters may be sent. `now_ms`, here and below: the time of a clock that only grows."""
        return self._lines.ready(now_ms)

    def add(self, stream: Stream, resting: Resting) -> None:
        """Takes messages whose copies belong on another slice: one letter each."""
        self.unsent += resting.to - resting.first
        self._lines.add(_key_of(stream), (stream, resting))

    def take(self, now_ms: int) -> Letter | None:
        """Returns the next letter to send; None: there is none, or none found in this step. `sent` or `not_sent` must
        be called for it."""
        left, opened_bytes = DEAD_LETTERS_LOOKED_AT, self._originals.opened_bytes
        while left > 0 and self._originals.opened_bytes - opened_bytes < DEAD_LETTER_BYTES_OPENED:
            left -= 1
            found = self._lines.take(now_ms)
            if found is None:
                break
            stream, resting = found
            if not (resting.over or stream.feed.gone):
                one = self._first_of(stream, resting)
                letter = self._letter(stream, one)
                if letter is not None:
                    return letter
                resting = one
            self.unsent -= resting.to - resting.first
            self._lines.ended(_key_of(stream))
        if not self.unsent:
            self._originals.forget()
        return None

    def _first_of(self, stream: Stream, resting: Resting) -> Resting:
        """Parts the first message from those that were taken; the others wait on, behind those of other stretches from
        time to time."""
        middle = resting.first + 1
        if middle == resting.to:
            return resting
        one, others = split(stream, resting, middle)
        wait = self._lines.add if middle % DEAD_LETTERS_OF_A_STRETCH == 0 else self._lines.add_first
        wait(_key_of(stream), (stream, others))
        return one

    def _letter(self, stream: Stream, resting: Resting) -> Letter | None:
        """Returns the letter; None: the message is gone, or no copy of it is to be made."""
        feed, offset = stream.feed, resting.first
        queue = self._state.load_queue_by_id(feed.queue_id)
        stored = self._originals.chunk_with(stream, offset)
        if queue is None:
            return None
        if stored is None:  # The key gave it up. It is decided anew what becomes of it.
            self._retry(stream, resting)
            return None
        death = Death(_key_of(stream), feed.name, stream.key, offset, resting.times, resting.reason)
        expired = has_expired(stored.header.expires_ms, self._expiry_clock_ms())
        copy = None if expired else copy_of(stored.opened(), offset - stored.first, death)
        if copy is None:
            self._done(stream, resting)
            return None
        # Names and numbers that stay the same if the key moves to another slice: ids are each slice's own.
        of = _NUMBERS.pack(queue.incarnation, offset, stored.header.time_ms, len(feed.name))
        hashed = b"".join((b"dead letter|", of, feed.name, stream.key))
        return Letter(_key_of(stream), sha256(hashed).digest()[:PRODUCER_BYTES], copy, stream, resting)

    def sent(self, letter: Letter) -> None:
        """Notes that the copy is on the slice that owns its key."""
        self.unsent -= 1
        self._lines.succeeded(letter.key)
        self._done(letter.stream, letter.resting)

    def not_sent(self, letter: Letter, now_ms: int, full: bool = False) -> None:
        """Notes that it is not known to be there: it waits again, behind the others of its key, which pause. `full`:
        its key is at its capacity; that ends no dead letter, however long it lasts."""
        self._lines.failed(letter.key, (letter.stream, letter.resting), now_ms)

    def _done(self, stream: Stream, resting: Resting) -> None:
        resting.note_sent()
        if not resting.over:
            self._retry(stream, resting)


def _key_of(stream: Stream) -> bytes:
    """Returns the dead-letter key of a stream's queue. It stays as long as the queue's life."""
    found = stream.feed.dead_letter
    assert isinstance(found, bytes)
    return found
