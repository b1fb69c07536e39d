"""Holds back what a new stream brings of queues whose life is not known yet: a queue may have been dropped while the
stream was lost, and declared anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from shoal.attachments import Attachments
from shoal.gaps import GapNews
from shoal.limits import INBOX_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire

Came: TypeAlias = wire.Delivery | GapNews


class HeldBack:
    """Holds deliveries and gaps, in their order, until the attach of their handles is answered, which tells the life.

    At most INBOX_BYTES_MAX: if more comes, the lives of all handles that it waits for are presumed to have ended, and
    it is passed on. So nothing of a next life is taken for a repeat. Reading cannot stop instead, as the answer comes
    on the same stream.
    """

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._held: list[Came] = []

    def __bool__(self) -> bool:
        """Returns whether something is held."""
        return bool(self._held)

    def forget(self, handles: Iterable[int]) -> None:
        """Forgets the deliveries to these handles: the lives that they are of are over, or they come again. Gaps are
        told all the same."""
        ended = set(handles)
        if not any(isinstance(item, wire.Delivery) and not ended.isdisjoint(item.handles) for item in self._held):
            return
        left: list[Came] = []
        for item in self._held:
            if isinstance(item, wire.Delivery):
                others = [handle for handle in item.handles if handle not in ended]
                if not others:
                    continue
                item.handles[:] = others
            left.append(item)
        self._held = left

    def stream_ended(self) -> None:
        """Forgets the deliveries that are held: their stream is lost, so they come again. Gaps do not, and stay."""
        self._held = list(self.gaps)

    @property
    def gaps(self) -> Sequence[GapNews]:
        """Returns the gaps that are held."""
        return [item for item in self._held if isinstance(item, GapNews)]

    def passed(self, coming: Sequence[Came]) -> Sequence[Came]:
        """Takes what came. Returns what need not wait, of this and of what came before. What is behind something that
        waits does so too, so that keys keep their order."""
        unconfirmed = self._attachments.unconfirmed
        if not self._held and not unconfirmed:
            return coming
        came = [*self._held, *coming]
        first = next((at for at, item in enumerate(came) if not unconfirmed.isdisjoint(item.handles)), len(came))
        self._held = came[first:]
        if sum(map(_size_bytes, self._held)) > INBOX_BYTES_MAX:
            waiting = unconfirmed.intersection(handle for item in self._held for handle in item.handles)
            first, self._held = len(came), []
            self._attachments.presume_ended(waiting)
        return came[:first]


def _size_bytes(item: Came) -> int:
    """Returns about how many bytes a delivery, or a gap, takes while it is held."""
    return item.size_bytes if isinstance(item, GapNews) else len(item.chunk)
