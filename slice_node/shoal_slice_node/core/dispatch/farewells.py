"""Finds the farewells to be said: those of queues that nothing has consumed for so long as each says.

The time of a queue begins when the last session leaves it, or when its farewell is set while nothing consumes it; a new
leader begins all times anew. A session that comes before the record is written ends the time, also if it has left by
then. One that comes later finds the farewell said.

Letters are farewells that were said, for keys of other slices. They lie in table `farewell` until their copies are
where they belong: the courier asks for them one by one, and a record takes away what it has brought there. On the
leader only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from shoal_slice_node.core.apply.records import Farewell
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.left_clock import LeftClock
from shoal_slice_node.core.dispatch.letter_lines import LetterLines
from shoal_slice_node.core.limits import (
    FAREWELL_LETTER_BYTES_OPENED,
    FAREWELL_LETTER_REFUSED_MS,
    FAREWELL_LETTERS_PER_RECORD_MAX,
    FAREWELL_LETTERS_PER_REST_MS,
    FAREWELL_LETTERS_PER_STEP,
    FAREWELL_LETTERS_WAITING_MAX,
    FAREWELL_LINES_FORGOTTEN_MAX,
    FAREWELL_LINES_FORGOTTEN_MS,
    LETTER_AGAIN_MS,
    LETTER_AGAIN_MS_MAX,
)
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

    def remaining_ms(self, queue_id: bytes, after_s: int, now_ms: int) -> int | None:
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
        """Returns what the record is to say, when it is written: nothing of queues that are consumed by now, whose time
        begins when they are left, and of those whose time began anew since they were found."""
        tables = self._state.tables
        found: list[Farewell] = []
        for queue_id in queues:
            row_key = queue_key(queue_id)
            row, queue = tables.farewell.get(row_key), tables.queue.get(queue_id)
            if row is None or queue is None or self._is_consumed(queue_id) or self._clock.began_anew(queue_id):
                continue
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
        for row_key, _ in self._tables.farewell.scan(QUEUE, QUEUE + start):
            yield queue_of(row_key)

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


class _Round:
    """Says when the next round over all letters may begin: the later, the more letters this one looked at, so that
    rounds take a fifth of the time at most."""

    def __init__(self) -> None:
        self._is_over = False
        self._looked_at = 0
        self._next_ms = self._soon_ms = 0
        self._hurries = False

    def begin(self) -> None:
        self._is_over = self._hurries = False
        self._looked_at = 0

    def look(self) -> None:
        """Notes that a letter is looked at."""
        self._looked_at += 1

    def end(self, now_ms: int) -> None:
        """Notes that all letters were looked at. Letters that are made later do not put the next round off."""
        if not self._is_over:
            self._is_over = True
            rest_ms = self._looked_at // FAREWELL_LETTERS_PER_REST_MS
            self._next_ms = now_ms + max(LETTER_AGAIN_MS_MAX, rest_ms)
            self._soon_ms = now_ms + max(LETTER_AGAIN_MS, rest_ms)

    def hurry(self) -> None:
        """Notes that a key may take letters that were passed over."""
        self._hurries = True

    def may_begin(self, now_ms: int) -> bool:
        return now_ms >= (self._soon_ms if self._hurries else self._next_ms)


class FarewellLetters:
    """Gives the letters to the courier, of each key in the order in which they were made, unless one fails.

    It goes round: it lines up letter after letter as they lie in the table, and passes over those whose key takes none
    now. Of a line that fails it keeps one letter, so that its key is tried again; the others lie on disk, and the next
    round finds them. If more than FAREWELL_LETTERS_WAITING_MAX keys take none, it forgets lines that pause, some at a
    time.

    A key at its capacity refuses letters. One that did so for FAREWELL_LETTER_REFUSED_MS, and took none, has no more
    patience from here: each letter that it refuses then ends. `ended`: how many did.

    `now_ms`, here and below: the time of a clock that only grows."""

    def __init__(self, state: State) -> None:
        self.ended = 0
        self._state = state
        self._more = True
        """There may be letters from `_position` on."""
        self._position = LETTER
        """All letters below were lined up or passed over in this round."""
        self._passed = False
        """Some were passed over, or forgotten: there is to be another round."""
        self._round = _Round()
        self._forget_ms = self._forget_left = 0
        """How many lines may be forgotten until when."""
        self._lines: LetterLines[tuple[bytes, bytes]] = LetterLines()
        """What waits or is under way: key and row key."""
        self._known: set[bytes] = set()
        """The row keys of these, and of those that are to be taken away."""
        self._refusing: OrderedDict[bytes, int] = OrderedDict()
        """Keys at their capacity, and since when they refuse all letters. At most FAREWELL_LETTERS_WAITING_MAX."""
        self._over: deque[bytes] = deque()
        """Row keys of letters that are where they belong, or ended."""
        self._proposed: list[bytes] = []
        """In the last record."""

    def ready(self, now_ms: int) -> bool:
        """Returns whether letters may be sent."""
        if self._lines.ready(now_ms):
            return True
        if self._more:
            return self._lines.items < FAREWELL_LETTERS_WAITING_MAX or self._may_forget(now_ms)
        return self._passed and self._round.may_begin(now_ms)

    def note(self) -> None:
        """Notes that there are new letters."""
        self._more = True

    def take(self, now_ms: int) -> FarewellLetter | None:
        """Returns the next letter to send; None: there is none, or none found in this step. `sent` or `not_sent` must
        be called for it."""
        table, left_bytes = self._state.tables.farewell, FAREWELL_LETTER_BYTES_OPENED
        for _ in range(FAREWELL_LETTERS_PER_STEP):
            left_bytes -= self._line_up_next(now_ms)
            found = self._lines.take(now_ms)
            if found is not None:
                key, row_key = found
                row = table.get(row_key)
                if row is not None:
                    return _letter(row_key, row)
                self._known.discard(row_key)
                self._lines.ended(key)
            elif not self._more or left_bytes <= 0:
                return None
        return None

    def _line_up_next(self, now_ms: int) -> int:
        """Puts one more letter into the line of its key, or passes it over. Returns its bytes; 0: there is none, or too
        many wait."""
        if not self._more:
            if not (self._passed and self._round.may_begin(now_ms)):
                return 0
            self._position, self._more, self._passed = LETTER, True, False
            self._round.begin()
        if self._lines.items >= FAREWELL_LETTERS_WAITING_MAX:
            if not self._may_forget(now_ms):
                return 0
            self._forget_left -= 1
            self._forget(self._lines.forget_paused())
        for row_key, row in islice(self._state.tables.farewell.scan(LETTER, self._position), 1):
            self._position = row_key + b"\x00"
            self._round.look()
            if row_key not in self._known:
                key = decode_letter(row).key
                if self._lines.is_failing(key):
                    self._passed = True
                else:
                    self._lines.add(key, (key, row_key))
                    self._known.add(row_key)
            return len(row)
        self._more = False
        self._round.end(now_ms)
        return 0

    def _may_forget(self, now_ms: int) -> bool:
        """Returns whether a line that pauses may be forgotten, so that others are tried: only where none flows, and so
        many at a time that a slice which is away costs little."""
        if self._lines.ready(now_ms):
            return False
        if now_ms >= self._forget_ms:
            self._forget_ms, self._forget_left = now_ms + FAREWELL_LINES_FORGOTTEN_MS, FAREWELL_LINES_FORGOTTEN_MAX
        return self._forget_left > 0

    def _forget(self, items: list[tuple[bytes, bytes]]) -> None:
        """Notes that letters wait on disk alone."""
        self._known.difference_update(row_key for _, row_key in items)
        self._passed = self._passed or bool(items)

    def sent(self, letter: FarewellLetter) -> None:
        """Notes that the farewell is on the slice that owns its key."""
        if self._lines.is_failing(letter.key):
            self._round.hurry()
        self._refusing.pop(letter.key, None)
        self._lines.succeeded(letter.key)
        self._over.append(letter.row_key)

    def not_sent(self, letter: FarewellLetter, now_ms: int, full: bool = False) -> None:
        """Notes that it is not known to be there: it waits again, and its key pauses. `full`: its key refused it, as it
        is at its capacity."""
        if full and self._refused_too_long(letter.key, now_ms):
            self.ended += 1
            self._lines.ended(letter.key)
            self._over.append(letter.row_key)
            self._round.hurry()
            return
        self._lines.failed(letter.key, (letter.key, letter.row_key), now_ms)
        self._forget(self._lines.forget_others(letter.key))

    def _refused_too_long(self, key: bytes, now_ms: int) -> bool:
        since_ms = self._refusing.setdefault(key, now_ms)
        if len(self._refusing) > FAREWELL_LETTERS_WAITING_MAX:
            self._refusing.popitem(last=False)
        return now_ms - since_ms >= FAREWELL_LETTER_REFUSED_MS

    def arrived(self) -> list[Farewell]:
        """Returns some letters that are where they belong, or ended, for one record to take away. No record may be
        under way."""
        over = self._over
        self._known.difference_update(self._proposed)  # The last record took these away.
        self._proposed = [over.popleft() for _ in range(min(len(over), FAREWELL_LETTERS_PER_RECORD_MAX))]
        table = self._state.tables.farewell
        found = [(row_key, table.get(row_key)) for row_key in self._proposed]
        return [Farewell(row_key, b"", decode_letter(row).key) for row_key, row in found if row is not None]

    def refused(self) -> None:
        """Is told that the record was not written."""
        self._over.extendleft(reversed(self._proposed))
        self._proposed = []


def _letter(row_key: bytes, row: bytes) -> FarewellLetter:
    producer, key, chunk = decode_letter(row)
    return FarewellLetter(key, producer, chunk, row_key)
