"""Finds the farewells to be said: those of queues that nothing has consumed for so long as each says.

The time of a queue begins when the last session leaves it, or when its farewell is set while nothing consumes it; a new
leader begins all times anew. A session that comes before the record is written ends the time. One that comes later
finds the farewell said.

Letters are farewells that were said, for keys of other slices. They lie in table `farewell` until their copies are
where they belong: the courier asks for them one by one, and a record takes away what it has brought there. On the
leader only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from shoal_slice_node.core.apply.records import Farewell
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.left_clock import LeftClock
from shoal_slice_node.core.dispatch.letter_lines import LetterLines
from shoal_slice_node.core.limits import LETTERS_PER_RECORD_MAX, LETTERS_PER_STEP, LETTERS_WAITING_MAX
from shoal_slice_node.core.rows.farewell_row import (
    LETTER,
    QUEUE,
    after_s_of,
    decode_farewell,
    decode_letter,
    queue_key,
    queue_of,
)
from shoal_slice_node.core.rows.queue_row import name_of


class Farewells:
    """Finds what is to be said. `is_consumed` says of a queue id whether a session consumes it."""

    def __init__(self, state: State, is_consumed: Callable[[bytes], bool]) -> None:
        self.letters = FarewellLetters(state)
        self._state = state
        self._is_consumed = is_consumed
        self._clock = LeftClock(_QueuesWithFarewell(state, is_consumed))
        self._proposed: list[bytes] = []
        """The queues of the last record."""

    def __len__(self) -> int:
        """Returns how many queues have a time of their own."""
        return len(self._clock)

    def begin(self, now_ms: int) -> None:
        """Begins all times: every queue with a farewell counts as left now. `now_ms`, here and elsewhere: the time of a
        clock that only grows."""
        self._clock.begin(now_ms)

    def was_set(self, queue_id: bytes, after_s: int) -> None:
        """Notes that a queue got a farewell, or keeps one that was about to be said."""
        self._clock.anew(queue_id, after_s)

    def left(self, queue_id: bytes) -> None:
        """Notes that the last session left a queue, which may have a farewell."""
        row = self._state.tables.farewell.get(queue_key(queue_id))
        if row is not None:
            self._clock.left(queue_id, after_s_of(row))

    def taken(self, queue_id: bytes) -> None:
        """Notes that a session consumes a queue."""
        self._clock.taken(queue_id)

    def left_ms(self, queue_id: bytes, after_s: int, now_ms: int) -> int | None:
        """Returns how long it takes until a queue's farewell is due, at least; None while a session consumes the
        queue."""
        if self._is_consumed(queue_id):
            return None
        return self._clock.end_ms(queue_id, after_s, now_ms) - now_ms

    def due(self, now_ms: int) -> list[bytes]:
        """Returns the queues with farewells that one record is to say, in a bounded turn. No record may be under
        way."""
        self._proposed = self._clock.due(now_ms)
        return self._proposed

    def to_say(self, queues: list[bytes]) -> list[Farewell]:
        """Returns what the record is to say, when it is written: nothing of queues that are consumed by now. Their time
        begins when they are left."""
        tables = self._state.tables
        found: list[Farewell] = []
        for queue_id in queues:
            row_key = queue_key(queue_id)
            row, queue = tables.farewell.get(row_key), tables.queue.get(queue_id)
            if row is not None and queue is not None and not self._is_consumed(queue_id):
                found.append(Farewell(row_key, name_of(queue), decode_farewell(row).key))
        return found

    def refused(self) -> None:
        """Is told that the record was not written: the next turn decides anew."""
        for queue_id in self._proposed:
            self._clock.again(queue_id)


class _QueuesWithFarewell:
    """See LeftQueues."""

    def __init__(self, state: State, is_consumed: Callable[[bytes], bool]) -> None:
        self.is_consumed = is_consumed
        self._tables = state.tables

    def ids(self, start: bytes) -> Iterator[bytes]:
        """See LeftQueues."""
        return (queue_of(row_key) for row_key, _ in self._tables.farewell.scan(QUEUE, QUEUE + start))

    def seconds(self, queue_id: bytes) -> int | None:
        """See LeftQueues."""
        row = self._tables.farewell.get(queue_key(queue_id))
        return None if row is None else after_s_of(row)

    def record_bytes(self, queue_id: bytes) -> int:
        """See LeftQueues."""
        return len(self._tables.farewell.get(queue_key(queue_id)) or b"")


class FarewellLetter(NamedTuple):
    """Describes a farewell to be published on another slice: at which key, by which producer, and what."""

    key: bytes
    producer: bytes
    chunk: bytes
    row_key: bytes


class FarewellLetters:
    """Gives the letters to the courier, of each key in the order in which they were made. `now_ms`, here and below: the
    time of a clock that only grows."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._more = True
        """There may be letters from `_position` on."""
        self._position = LETTER
        """All letters below were taken: those that were deleted since need not be passed again."""
        self._lines: LetterLines[tuple[bytes, bytes]] = LetterLines()
        """Those below `_position` that are not where they belong, as far as is known: key and row key."""
        self._sent: deque[bytes] = deque()
        self._proposed: list[bytes] = []
        """In the last record."""

    def ready(self, now_ms: int) -> bool:
        """Returns whether letters may be sent."""
        return (self._more and self._lines.items < LETTERS_WAITING_MAX) or self._lines.ready(now_ms)

    def note(self) -> None:
        """Notes that there are new letters."""
        self._more = True

    def take(self, now_ms: int) -> FarewellLetter | None:
        """Returns the next letter to send; None: there is none, or none found in this step. `sent` or `not_sent` must
        be called for it."""
        table = self._state.tables.farewell
        for _ in range(LETTERS_PER_STEP):
            self._line_up_next()
            found = self._lines.take(now_ms)
            if found is not None:
                key, row_key = found
                row = table.get(row_key)
                if row is not None:
                    return _letter(row_key, row)
                self._lines.left_out(key)
            elif not self._more:
                return None
        return None

    def _line_up_next(self) -> None:
        """Puts one more letter into the line of its key, while there are more, and few wait."""
        if not self._more or self._lines.items >= LETTERS_WAITING_MAX:
            return
        for row_key, row in islice(self._state.tables.farewell.scan(LETTER, self._position), 1):
            self._position = row_key + b"\x00"
            key = decode_letter(row).key
            self._lines.add(key, (key, row_key))
            return
        self._more = False

    def sent(self, letter: FarewellLetter) -> None:
        """Notes that the farewell is on the slice that owns its key."""
        self._lines.succeeded(letter.key)
        self._sent.append(letter.row_key)

    def not_sent(self, letter: FarewellLetter, now_ms: int) -> None:
        """Notes that it is not known to be there: it waits again, behind the others of its key, which pause."""
        self._lines.failed(letter.key, (letter.key, letter.row_key), now_ms)

    def arrived(self) -> list[Farewell]:
        """Returns some letters that are where they belong, for one record to take away. No record may be under way."""
        sent = self._sent
        self._proposed = [sent.popleft() for _ in range(min(len(sent), LETTERS_PER_RECORD_MAX))]
        table = self._state.tables.farewell
        found = ((row_key, table.get(row_key)) for row_key in self._proposed)
        return [Farewell(row_key, b"", decode_letter(row).key) for row_key, row in found if row is not None]

    def refused(self) -> None:
        """Is told that the record was not written."""
        self._sent.extendleft(reversed(self._proposed))


def _letter(row_key: bytes, row: bytes) -> FarewellLetter:
    producer, key, chunk = decode_letter(row)
    return FarewellLetter(key, producer, chunk, row_key)
