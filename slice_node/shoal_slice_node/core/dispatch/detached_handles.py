"""Keeps which handles of a session were detached while parcels waited that may name them: such a parcel does not bring
the chunk to the queue that the handle means by the time it leaves.

Parcels are not looked through for that, as a hundred thousand may wait: each is looked at when it leaves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.parcels import Parcel, Slot
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import ATTACHMENT_BYTES, SWEPT_HANDLES

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment


_LAST_PARCEL = itemgetter(0)


class DetachedHandles:
    """Keeps, for each handle, its former attachments, each with the number of the last parcel that may be its own."""

    __slots__ = ("_former", "_notes", "_notes_before", "_room", "_sent_to", "_to_sweep", "noted")

    def __init__(self, room: Share) -> None:
        """`room`: the memory that former attachments count in, as present ones do."""
        self._room = room
        self._former: dict[int, list[tuple[int, Attachment, int]]] = {}
        """Those of a handle ascend by their last parcels, and handles by those of their last attachments."""
        self._sent_to = 0
        """No parcel up to this number names a former attachment any more."""
        self.noted = 0
        """How many attachments these are."""
        self._to_sweep: Iterator[Slot] | None = None
        """The places of what waited when a sweep began, and was not swept yet."""
        self._notes = self._notes_before = 0
        """How many attachments were ever noted, and before the sweep began: it finds nothing of later ones."""

    def __bool__(self) -> bool:
        return bool(self._former)

    def __contains__(self, handle: int) -> bool:
        return handle in self._former

    def note(self, handle: int, attachment: Attachment, last_parcel: int) -> None:
        """Notes that an attachment left. `last_parcel`: the number of the last parcel that waits. Nothing may join it
        once the handle is used again (NacksTaken.close_parcels)."""
        former = self._former.pop(handle, [])
        gone = bisect_right(former, self._sent_to, key=_LAST_PARCEL)
        if gone:
            del former[:gone]
            self._count(-gone)
        if not former or former[-1][0] < last_parcel:  # Else it was given nothing.
            self._notes += 1
            former.append((last_parcel, attachment, self._notes))
            self._count(1)
        self._former[handle] = former

    def forget_sent(self, sent_to: int, nothing_waits: bool = False) -> None:
        """Forgets handles that no parcel above this number names any more: those before it have left."""
        self._sent_to = sent_to = max(sent_to, self._sent_to)
        if nothing_waits:
            self._former, self._to_sweep = {}, None
            self._count(-self.noted)
        while self._former:
            handle, former = next(iter(self._former.items()))
            if former[-1][0] > sent_to:
                return
            del self._former[handle]
            self._count(-len(former))
        self._to_sweep = None

    def close(self) -> None:
        """Notes that the session has ended: what is known is needed until all that it had is back."""
        self._count(-self.noted)

    def forget(self) -> None:
        """Forgets all: what the session had is back. Former attachments name their session, and it would stay."""
        self._former, self._to_sweep = {}, None

    def _count(self, more: int) -> None:
        self.noted += more
        if more > 0:
            self._room.hold(ATTACHMENT_BYTES * more)
        else:
            self._room.let_go(-ATTACHMENT_BYTES * more)

    def owner(self, handle: int, parcel: Parcel) -> Attachment | None:
        """Returns the former attachment that a parcel is for; None: it is for the queue that the handle means now."""
        former = self._former.get(handle)
        if former is None or former[-1][0] < parcel.number:
            return None
        return former[bisect_left(former, parcel.number, key=_LAST_PARCEL)][1]

    def take_out(self, key_id: bytes, parcel: Parcel) -> int:
        """Takes the handles out of a parcel that are not its own any more. Their attachments note what it held: it is
        still out. Returns the bytes freed: all of it, if no handle is left."""
        if self._former.keys().isdisjoint(parcel.handles):
            return 0
        before_bytes, gone = parcel.cost_bytes, set[int]()
        for handle in parcel.handles:
            attachment = self.owner(handle, parcel)
            if attachment is not None:
                gone.add(handle)
                if parcel.is_owed:
                    attachment.note_unsent(key_id, parcel.low, parcel.to)
        if gone:
            parcel.drop_handles(gone)
        return before_bytes - parcel.cost_bytes if parcel.handles else before_bytes

    def sweep(self, waiting: dict[Slot, Parcel], leaves: Callable[[Slot], None]) -> int:
        """Takes the handles out of some of what waits, of about SWEPT_HANDLES, so that they can be forgotten before it
        is sent. `leaves` is called with each parcel that has no handle any more. Returns the bytes freed."""
        if self._to_sweep is None:
            self._to_sweep = iter(tuple(waiting))
            self._notes_before = self._notes
        left, freed_bytes = SWEPT_HANDLES, 0
        for slot in self._to_sweep:
            parcel = waiting.get(slot)
            if parcel is not None:
                left -= 1 + len(parcel.handles)
                freed_bytes += self.take_out(slot[0], parcel)
                if not parcel.handles:
                    leaves(slot)
                if left <= 0:
                    return freed_bytes
        self._to_sweep = None
        for handle, former in tuple(self._former.items()):
            later = [one for one in former if one[2] > self._notes_before]
            self._count(len(later) - len(former))
            if later:
                self._former[handle] = later
            else:
                del self._former[handle]
        return freed_bytes
