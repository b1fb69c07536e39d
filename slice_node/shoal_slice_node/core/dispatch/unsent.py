"""Finds what was put on its way to a session and never left the node: it was not delivered, whatever becomes of it.

A session's parcels leave in the order of their numbers, so a stream whose last parcel has left has nothing here: most
questions end there. For others the session's parcels are listed (not_sent.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.not_sent import Found
from shoal_slice_node.core.dispatch.stretches import Out, Returned
from shoal_slice_node.core.limits import LISTED_AT_ONCE_MAX, UNSENT_LISTS_MAX, UNSENT_PER_COST
from shoal_slice_node.core.ranges import Ranges

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.registry import Registry
    from shoal_slice_node.core.dispatch.streams import Stream


def unsent_between(attachment: Attachment, stream: Stream, first: int, to: int) -> tuple[Ranges | None, int]:
    """Returns what the attachment was given of a stream and was not sent, of the offsets first <= o < to, maybe with
    others and with what it no longer has out; None: there is nothing. And returns how much was looked at."""
    pairs = attachment.not_sent(stream.key_id)
    waiting, looked_at = _waiting(attachment, stream, first, to)
    looked_at += len(pairs)
    pairs = pairs + [(parcel.low, parcel.to) for _, parcel in waiting]
    return Ranges(pairs) if pairs else None, looked_at


def _waiting(attachment: Attachment, stream: Stream, first: int, to: int) -> tuple[list[Found], int]:
    """Returns the parcels with messages of these offsets for the attachment that were not sent, and how many were
    looked at."""
    session, last = attachment.session, attachment.last_parcel
    if attachment.handle is None or stream.parcel <= session.sent_to:
        return [], 0
    found, looked_at = session.unsent(stream.key_id, attachment.handle, first, to)
    if last is not None:  # Later ones are of another queue, which the handle means now.
        found = [one for one in found if one[1].number <= last]
    if session.detached:  # And earlier ones may be of one that it meant before.
        own, handle = (None, attachment), attachment.handle
        found = [one for one in found if session.detached.owner(handle, one[1]) in own]
    return found, looked_at


def list_some_unsent(attachment: Attachment, key_id: bytes) -> bool:
    """Lists some of what waits for the attachment's session, if a nack of this key would list much of it. Returns
    whether it would still."""
    stream, session = attachment.feed.streams.get(key_id), attachment.session
    if stream is None or attachment.handle is None or stream.parcel <= session.sent_to:
        return False
    return session.list_not_sent(LISTED_AT_ONCE_MAX)


class UnsentLists:
    """Keeps what was taken back while it stays the same, for the nacks of one frame: to list it costs as much as many
    of them. What waits to be sent is looked up for each."""

    __slots__ = ("_cost", "_noted")

    def __init__(self) -> None:
        self._noted: dict[tuple[Attachment, bytes], tuple[int, Ranges]] = {}
        """Maps an attachment and a key id to the attachment's number of changes when it was listed; and to what was."""
        self._cost = 0

    def of(self, attachment: Attachment, stream: Stream, first: int, to: int) -> Ranges | None:
        """Returns what of the offsets first <= o < to the attachment was given and was not sent; None: nothing."""
        waiting, looked_at = _waiting(attachment, stream, first, to)
        pairs = self._noted_of(attachment, stream.key_id).within(first, to)
        pairs += [(max(parcel.low, first), min(parcel.to, to)) for _, parcel in waiting]
        self._cost += looked_at // UNSENT_PER_COST
        return Ranges(pairs) if pairs else None

    def _noted_of(self, attachment: Attachment, key_id: bytes) -> Ranges:
        found = self._noted.get((attachment, key_id))
        if found is not None and found[0] == attachment.unsent_changes and not attachment.pulling:
            return found[1]
        pairs = attachment.not_sent(key_id)
        self._cost += len(pairs) // UNSENT_PER_COST
        if len(self._noted) >= UNSENT_LISTS_MAX:
            self._noted.clear()
        noted = Ranges(pairs)
        self._noted[attachment, key_id] = attachment.unsent_changes, noted
        return noted

    def take_cost(self) -> int:
        """Returns what was listed since the last call, in acks."""
        cost, self._cost = self._cost, 0
        return cost


def withdraw(attachment: Attachment, key_id: bytes, parcels: Sequence[Found]) -> int:
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
    waiting, _ = _waiting(attachment, stream, first, to)
    freed_bytes = withdraw(attachment, stream.key_id, waiting) if waiting else 0
    if freed_bytes:
        registry.let_go(attachment.session, freed_bytes)
    return Ranges([(first, to), *attachment.take_unsent(stream.key_id)])


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
