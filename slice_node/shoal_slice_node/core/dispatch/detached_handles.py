"""Keeps which handles of a session were detached while parcels waited that may name them: such a parcel does not bring
the chunk to the queue that the handle means by the time it leaves.

Parcels are not looked through for that, as a hundred thousand may wait: each is looked at when it leaves. What is known
of many handles is not forgotten at once either: Forgetting gives turns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from shoal_slice_node.core.dispatch.parcels import Parcel, Slot
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import ATTACHMENT_BYTES, DETACHED_FORGOTTEN_PER_STEP, DETACHED_LOOKS_PER_STEP

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment


class _Former(NamedTuple):
    """Holds an attachment that a handle had. `last_parcel`: no later parcel is its own. `note`:
    how many were noted, with this one."""

    last_parcel: int
    attachment: Attachment
    note: int


_LAST_PARCEL = attrgetter("last_parcel")
_NOTE = attrgetter("note")


class DetachedHandles:
    """Keeps the former attachments of each handle."""

    __slots__ = (
        "_former",
        "_is_kept",
        "_last_parcel",
        "_notes",
        "_notes_before",
        "_room",
        "_sent_to",
        "_swept_to",
        "_to_sweep",
        "noted",
    )

    def __init__(self, room: Share) -> None:
        """`room`: the memory that former attachments count in, as present ones do."""
        self._room = room
        self._is_kept = False
        """The session has ended, and what it had is not all back: nothing is forgotten until then."""
        self._former: OrderedDict[int, list[_Former]] = OrderedDict()
        """Those of a handle ascend by their last parcels and by their notes, and handles by those of their last
        attachments. The first of a plain dict is found past all that were taken from its front."""
        self._last_parcel = 0
        """That of the last note."""
        self._sent_to = 0
        """No parcel up to this number names a former attachment any more."""
        self._swept_to = 0
        """No parcel that waits names an attachment with a note up to this one."""
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
        former = self._former.get(handle, [])
        sent = bisect_right(former, self._sent_to, key=_LAST_PARCEL)
        gone = max(sent, bisect_right(former, self._swept_to, key=_NOTE))
        if gone:
            del former[:gone]
            self._count(-gone)
        if not former or former[-1].last_parcel < last_parcel:  # Else it was given nothing.
            self._notes += 1
            self._last_parcel = max(self._last_parcel, last_parcel)  # What waited behind this one may be withdrawn.
            former.append(_Former(self._last_parcel, attachment, self._notes))
            self._count(1)
            self._former[handle] = former
            self._former.move_to_end(handle)

    def forget_sent(self, sent_to: int, nothing_waits: bool = False) -> None:
        """Forgets handles that no parcel above this number names any more: those before it have left. Of many only
        some, see `forget_some`."""
        if nothing_waits:
            self._all_sent()
        self._sent_to = max(sent_to, self._sent_to)
        self.forget_some()

    @property
    def is_any_over(self) -> bool:
        """Returns whether there are handles that can be forgotten."""
        if not self._former or self._is_kept:
            return False
        last = next(iter(self._former.values()))[-1]
        return last.last_parcel <= self._sent_to or last.note <= self._swept_to

    def forget_some(self) -> None:
        """Forgets up to DETACHED_FORGOTTEN_PER_STEP of the handles that no parcel names that waits."""
        for _ in range(DETACHED_FORGOTTEN_PER_STEP):
            if not self.is_any_over:
                break
            _handle, former = self._former.popitem(last=False)
            self._count(-min(self.noted, len(former)))
        if not self._former:
            self._to_sweep = None

    def _all_sent(self) -> None:
        if self._former:
            self._sent_to = max(self._sent_to, next(reversed(self._former.values()))[-1].last_parcel)

    def close(self) -> None:
        """Lets go of the memory, as the session has ended. The notes stay: they say whose the parcels were that it was
        not sent."""
        self._count(-self.noted)
        self._is_kept = True

    def forget(self) -> None:
        """Lets all be forgotten: what the session had is back. Former attachments name their session, and it would
        stay."""
        self._is_kept, self._to_sweep = False, None
        self._all_sent()
        self.forget_some()

    def _count(self, more: int) -> None:
        self.noted += more
        if more > 0:
            self._room.hold(ATTACHMENT_BYTES * more)
        else:
            self._room.let_go(-ATTACHMENT_BYTES * more)

    def owner(self, handle: int, parcel: Parcel) -> Attachment | None:
        """Returns the former attachment that a parcel is for; None: it is for the queue that the handle means now."""
        former = self._former.get(handle)
        if former is None or former[-1].last_parcel < parcel.number:
            return None
        return former[bisect_left(former, parcel.number, key=_LAST_PARCEL)].attachment

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
        """Takes the handles out of some of what waits, of about DETACHED_LOOKS_PER_STEP, so that they can be forgotten
        before it is sent. `leaves` is called with each parcel that has no handle any more. Returns the bytes freed."""
        if self._to_sweep is None:
            self._to_sweep = iter(tuple(waiting))
            self._notes_before = self._notes
        left, freed_bytes = DETACHED_LOOKS_PER_STEP, 0
        for slot in self._to_sweep:
            parcel = waiting.get(slot)
            left -= 1
            if parcel is not None:
                left -= len(parcel.handles)
                freed_bytes += self.take_out(slot[0], parcel)
                if not parcel.handles:
                    leaves(slot)
            if left <= 0:
                return freed_bytes
        self._to_sweep = None
        self._swept_to = self._notes_before
        self.forget_some()
        return freed_bytes


class Forgetting:
    """Keeps the sessions with more former attachments to forget than one step takes. They have turns."""

    def __init__(self) -> None:
        self._line: OrderedDict[DetachedHandles, None] = OrderedDict()

    def __len__(self) -> int:
        """Returns how many wait."""
        return len(self._line)

    def note(self, detached: DetachedHandles) -> None:
        """Notes handles of which there may be some to forget."""
        if detached.is_any_over:
            self._line[detached] = None

    def turn(self) -> None:
        """Forgets some handles of the session whose turn it is."""
        detached, _none = self._line.popitem(last=False)
        detached.forget_some()
        self.note(detached)
