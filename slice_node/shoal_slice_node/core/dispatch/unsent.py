"""Finds what was put on its way to a session and never left the node: it was not delivered, whatever becomes of it.

A session's parcels leave in the order of their numbers, so a stream whose last parcel has left has nothing here: most
questions end there. For others the session's parcels are listed by key, once, and only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.stretches import Out, Returned
from shoal_slice_node.core.limits import UNSENT_LISTS_MAX, UNSENT_PER_COST
from shoal_slice_node.core.ranges import Ranges

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.parcels import Parcel, Slot
    from shoal_slice_node.core.dispatch.registry import Registry
    from shoal_slice_node.core.dispatch.streams import Stream


class UnsentParcels:
    """Lists the parcels of one session that were not sent, by key."""

    __slots__ = ("_by_key", "_listed_to")

    def __init__(self) -> None:
        self._by_key: dict[bytes, dict[Slot, Parcel]] = {}
        self._listed_to = 0

    def add_new(self, waiting: dict[Slot, Parcel]) -> None:
        """Adds those that have joined since the last call, oldest first."""
        listed_to = self._listed_to
        new = list(takewhile(lambda slot: waiting[slot].number > listed_to, reversed(waiting)))
        for slot in reversed(new):
            self._listed_to = waiting[slot].number
            self.add(slot, waiting[slot])

    def add(self, slot: Slot, parcel: Parcel) -> None:
        """Adds one. Live chunks are not owed: they are left out."""
        if parcel.is_owed:
            self._by_key.setdefault(slot[0], {})[slot] = parcel

    def count(self, key_id: bytes) -> int:
        """Returns how many parcels of a key are listed."""
        return len(self._by_key.get(key_id, ()))

    def forget(self, slot: Slot) -> None:
        """Forgets a parcel that leaves, or that brings nothing to any queue."""
        parcels = self._by_key.get(slot[0])
        if parcels is not None:
            parcels.pop(slot, None)
            if not parcels:
                del self._by_key[slot[0]]

    def of(self, key_id: bytes, handle: int) -> Iterator[tuple[Slot, Parcel]]:
        """Yields the parcels of a key that bring something to this handle, in the order in which they leave."""
        for slot, parcel in self._by_key.get(key_id, {}).items():
            if parcel.brings_to(handle):
                yield slot, parcel


def unsent(attachment: Attachment, stream: Stream) -> Ranges | None:
    """Returns what the attachment was given of a stream and was not sent, maybe with what it no longer has out; None:
    there is nothing."""
    return unsent_listed(attachment, stream)[0]


def unsent_listed(attachment: Attachment, stream: Stream) -> tuple[Ranges | None, int]:
    """Returns what `unsent` does, and how much was looked at."""
    pairs, session = attachment.not_sent(stream.key_id), attachment.session
    looked_at = len(pairs)
    if attachment.handle is not None and stream.parcel > session.sent_to:
        found = session.unsent(stream.key_id, attachment.handle)
        pairs = pairs + [(parcel.low, parcel.to) for _, parcel in found]
        looked_at += session.count_unsent(stream.key_id)
    return Ranges(pairs) if pairs else None, looked_at


class UnsentLists:
    """Keeps what was not sent while it stays the same, for the nacks of one frame: to list it costs as much as many of
    them."""

    __slots__ = ("_cost", "_found")

    def __init__(self) -> None:
        self._found: dict[tuple[Attachment, bytes], tuple[int, int, int, Ranges | None]] = {}
        """Maps an attachment and a key id to the stream's last parcel, to what had left, and to the attachment's number
        of changes, when it was listed; and to what was."""
        self._cost = 0

    def of(self, attachment: Attachment, stream: Stream) -> Ranges | None:
        """Returns what `unsent` does."""
        state = stream.parcel, attachment.session.sent_to, attachment.unsent_changes
        found = self._found.get((attachment, stream.key_id))
        if found is not None and found[:3] == state and not attachment.pulling:
            return found[3]
        ranges, looked_at = unsent_listed(attachment, stream)
        self._cost += looked_at // UNSENT_PER_COST
        if len(self._found) >= UNSENT_LISTS_MAX:
            self._found.clear()
        self._found[attachment, stream.key_id] = (*state, ranges)
        return ranges

    def take_cost(self) -> int:
        """Returns what was listed since the last call, in acks."""
        cost, self._cost = self._cost, 0
        return cost


def withdraw(attachment: Attachment, key_id: bytes, parcels: Sequence[tuple[Slot, Parcel]]) -> int:
    """Takes an attachment out of those of these parcels that still wait for its session. The attachment notes what they
    held: it is still out. Returns the bytes freed."""
    session, handle = attachment.session, attachment.handle
    assert handle is not None
    freed_bytes = 0
    for slot, parcel in parcels:
        if session.waiting.get(slot) is parcel and parcel.brings_to(handle):
            attachment.note_unsent(key_id, parcel.low, parcel.to)
            freed_bytes += session.withdraw(slot, parcel, handle)
    return freed_bytes


def withdraw_unsent(registry: Registry, attachment: Attachment, stream: Stream, first: int, to: int) -> Ranges:
    """Takes an attachment out of what waits for its session of the offsets first <= o < to. Returns what the caller
    is to take back, as far as the attachment has it out: these offsets, and all that was not sent to it."""
    session, key_id = attachment.session, stream.key_id
    if attachment.handle is not None and stream.parcel > session.sent_to:
        waiting = session.unsent(key_id, attachment.handle)
        some = [(slot, parcel) for slot, parcel in waiting if parcel.low < to and parcel.to > first]
        freed_bytes = withdraw(attachment, key_id, some)
        if freed_bytes:
            registry.let_go(session, freed_bytes)
    return Ranges([(first, to), *attachment.take_unsent(key_id)])


def split(out: Iterable[Out], not_sent: Ranges | None) -> tuple[list[Returned], list[Returned]]:
    """Returns the stretches that were sent, and those that were not."""
    if not_sent is None:
        return [Returned(entry.first, entry.to, entry.times) for entry in out], []
    sent: list[Returned] = []
    kept: list[Returned] = []
    for entry in out:
        sent += [Returned(low, to, entry.times) for low, to in not_sent.gaps(entry.first, entry.to)]
        kept += [Returned(low, to, entry.times) for low, to in not_sent.within(entry.first, entry.to)]
    return sent, kept
