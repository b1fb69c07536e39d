"""Keeps what the queues of one replay were given: ranges of offsets, and one digest for each (key, offset). Pure.

Belongs here: order and equality among what was received. Not here: what should have been (comparison.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shoal_ops.limits import DIGEST_PAGE_OFFSETS
from shoal_ops.replay.expectation import digest
from shoal_ops.replay.ranges import Ranges, merged, total, without


class Disorder(NamedTuple):
    """Describes a fault seen at arrival. `queue` is empty where the message itself is at fault."""

    key: bytes
    queue: bytes
    offset: int
    problem: str


class ReceivedKey:
    """Keeps what queues were given of one key, in order and each message once: the ranges in `closed`, and then from
    `firsts` to before `heads`."""

    __slots__ = ("_pages", "closed", "firsts", "heads")

    def __init__(self) -> None:
        self.heads: dict[bytes, int] = {}
        """The offset after the last message given, by queue. Queues at the same offset share one number: a delivery to
        a thousand queues is one update."""
        self.firsts: dict[bytes, int] = {}
        self.closed: dict[bytes, Ranges] = {}
        """The ranges below `firsts`, for queues that have any."""
        self._pages: dict[int, array[int]] = {}

    def ranges(self, queue: bytes) -> Ranges:
        if queue not in self.heads:
            return ()
        return (*self.closed.get(queue, ()), (self.firsts[queue], self.heads[queue]))

    def set_ranges(self, queue: bytes, ranges: Ranges) -> None:
        *closed, (self.firsts[queue], self.heads[queue]) = ranges
        self.closed[queue] = tuple(closed)

    def digest(self, offset: int) -> int:
        """Returns the digest of the body at this offset; 0 if no body was seen there."""
        page = self._pages.get(offset // DIGEST_PAGE_OFFSETS)
        return page[offset % DIGEST_PAGE_OFFSETS] if page else 0

    def differing(self, first: int, bodies: Sequence[bytes]) -> Iterator[int]:
        """Remembers the bodies at `first` and following. Yields offsets that had another body before."""
        for offset, body in enumerate(bodies, first):
            number, position = divmod(offset, DIGEST_PAGE_OFFSETS)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = array("q", bytes(8 * DIGEST_PAGE_OFFSETS))
            new = digest(body)
            if page[position] not in (0, new):
                yield offset
            page[position] = new


class Received:
    def __init__(self) -> None:
        self.keys: dict[bytes, ReceivedKey] = {}
        self.messages = 0
        """Each message times the queues that got it, counted once."""
        self.repeats = 0
        """The same for messages that were given again."""

    def add(self, key: bytes, first: int, bodies: Sequence[bytes], queues: Sequence[bytes]) -> list[Disorder]:
        """Adds one delivery: messages at `first` and following, for each of `queues`. Returns its faults; usually there
        are none."""
        found = self.keys.get(key)
        if found is None:
            found = self.keys[key] = ReceivedKey()
        wrong = [Disorder(key, b"", at, "two bodies at one offset") for at in found.differing(first, bodies)]
        head_of, end = found.heads.get, first + len(bodies)
        odd = [(queue, head_of(queue, 0)) for queue in queues if head_of(queue) != first]
        found.heads.update(dict.fromkeys(queues, end))
        self.messages += len(bodies) * (len(queues) - len(odd))
        for queue, head in odd:
            wrong += self._out_of_step(found, Disorder(key, queue, first, ""), head, end)
        return wrong

    def _out_of_step(self, found: ReceivedKey, at: Disorder, head: int, end: int) -> Iterator[Disorder]:
        """Adds a delivery for a queue that it does not continue. `at` is where the delivery begins; the queue had been
        given everything before `head` (0: nothing). Yields what is out of order."""
        queue, first = at.queue, at.offset
        if first > head:  # Its first messages, or those of its next membership.
            if head:
                found.closed[queue] = (*found.closed.get(queue, ()), (found.firsts[queue], head))
            found.firsts[queue] = first
            self.messages += end - first
            return
        found.heads[queue] = max(head, end)
        earlier: Ranges = ((first, min(end, head)),)
        held = (*found.closed.get(queue, ()), (found.firsts[queue], head))
        late = without(earlier, held)
        self.repeats += total(earlier) - total(late)
        self.messages += total(late) + max(0, end - head)
        if late:
            found.set_ranges(queue, merged((*held, *late, (head, max(head, end)))))
        for low, high in late:
            yield at._replace(offset=low, problem=f"out of order: {high - low} given after offset {head - 1}")
