"""Releases what a record took out of bindings, by acks, purges and unbinds, in turns: a change of a few names may end
hundreds of thousands of stretches.

In their bindings these stretches are over at once: done, or gone. Only what they count for comes in turns: windows,
what sessions owe, leases, pulls that have nothing out any more, how many messages rest. Until then a window is as full,
and a session owes as much, as before the record; so what waits here is bounded as all that is out, or rests, is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.releasing import after_release
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Out, Resting
from shoal_slice_node.core.limits import RELEASED_AT_ONCE_MAX

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.registry import Registry


class _Release(NamedTuple):
    """Holds what waits to be released of a stream: what was out, and what rested. The last ones are the next."""

    stream: Stream
    taken: list[Out]
    rests: list[Resting]

    def add(self, taken: list[Out], rests: list[Resting]) -> None:
        """Lets more of the stream wait."""
        self.taken.extend(taken)
        self.rests.extend(rests)


class Releases:
    """Releases stretches. `waiting`: those that wait for turns."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.waiting: deque[_Release] = deque()
        self._left = 0
        """How many stretches the record under way may still release at once."""
        self._pulls: dict[Attachment, None] = {}
        """Pulls of which the record under way released something at once."""

    def begin_record(self) -> None:
        """Begins a record: it may release RELEASED_AT_ONCE_MAX stretches at once."""
        self._left = RELEASED_AT_ONCE_MAX

    def end_record(self) -> None:
        """Ends the pulls that have nothing out any more. The caller must look after the feeds."""
        if self._pulls:
            pulls, self._pulls = self._pulls, {}
            for attachment in pulls:
                self._end_pull(attachment)

    def add(self, stream: Stream, taken: list[Out], rests: list[Resting]) -> None:
        """Releases what was taken out of a stream: at once if it is little, else in turns. `rests`: what rested. Within
        a record, `end_record` must be called later."""
        stretches = len(taken) + len(rests)
        if stretches <= self._left:
            self._left -= stretches
            self._pulls.update((one, None) for one in self.release(stream, taken, rests) if one.handle is None)
            if taken:  # Windows have opened, and no ack will say so.
                self._registry.wake(stream.feed)
        elif self.waiting and self.waiting[-1].stream is stream:
            self.waiting[-1].add(taken, rests)
        else:
            self.waiting.append(_Release(stream, taken, rests))

    def release(self, stream: Stream, taken: list[Out], rests: list[Resting]) -> dict[Attachment, None]:
        """Releases stretches now: sessions that owe less may have room for other feeds. Returns whose they were."""
        stream.release_rests(rests)
        stream.release(taken)
        attachments = dict.fromkeys([entry.attachment for entry in taken])
        for attachment in attachments:
            self._registry.has_room_again(attachment.session)
        return attachments

    def turn(self, stretches_max: int) -> None:
        """Releases some of the stretches that wait."""
        while stretches_max > 0 and self.waiting:
            stream, taken, rests = self.waiting[0]
            some = taken[-stretches_max:]
            del taken[-stretches_max:]
            stretches_max -= len(some)
            some_rests = rests[-stretches_max:] if stretches_max > 0 else []
            del rests[len(rests) - len(some_rests) :]
            stretches_max -= len(some_rests)
            if not (taken or rests):
                self.waiting.popleft()
            for attachment in self.release(stream, some, some_rests):
                self._end_pull(attachment)
            after_release(self._registry, stream.feed)

    def _end_pull(self, attachment: Attachment) -> None:
        """Forgets an attachment that pulls, if it has nothing out any more, and was not forgotten before."""
        if attachment.session.pullers.get(attachment.feed.queue_id) is attachment:
            self._registry.end_pull_without_messages(attachment)
