"""Says what becomes of messages that come a second time: they are dropped, or handed out again.

Each rule remembers what it needs for that, and for a drain. Pure.

Not here: what is remembered where repeats are dropped (repeats.py), and where they are handed out (handed_out.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from shoal.core.acks import Acked
from shoal.core.handed_out import HandedOut
from shoal.core.handled_ranges import HandledRange
from shoal.core.offset_ranges import Ranges, without
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import UNTOLD, Repeats, Told


class RepeatRule(Protocol):
    """Is told all that becomes of one slice's messages. `now`: they came on the stream that is open."""

    @property
    def repeats(self) -> Repeats | None:
        """Returns what is remembered of repeats; None: they are not dropped."""

    @property
    def acks_go_first(self) -> bool:
        """Returns whether acks are to be sent before a nack that was given after them."""

    def came(
        self, key: bytes, first: int, end: int, handles: Sequence[int], told: Told = UNTOLD
    ) -> tuple[list[HandledRange], list[HandledRange]]:
        """Records messages that came. Returns those to be handed out, and those to be acked again. `told`: by the
        slice."""

    def handed_out(self, key: bytes, first: int, end: int, handles: Sequence[int], now_s: float) -> None:
        """Records that the program has messages of this stream."""

    def acked(self, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        """Records acks of messages of this stream, which are sent."""

    def acked_of_before(
        self, key: bytes, first: int, end: int, handles: Sequence[int], unconfirmed: Container[int]
    ) -> list[HandledRange]:
        """Records acks of messages of an earlier stream. Returns those to be sent, if a stream is open. `unconfirmed`:
        handles that are being attached, perhaps to another life of their queue: nothing is sent for these."""

    def answered(self, acks: Iterable[Acked]) -> None:
        """Records that the slice has these acks."""

    def acked_late(self, acks: Iterable[Acked]) -> None:
        """Records that acks had no effect for some of their messages, which the slice had taken back."""

    def nacked(self, key: bytes, first: int, end: int, handle: int, now: bool) -> Ranges:
        """Records a nack. Returns what is to be nacked on this stream."""

    def given_back(self, key: bytes, first: int, end: int, handles: Sequence[int], now: bool) -> list[HandledRange]:
        """Records that the program does not get messages, or has given them back. Returns what is to be nacked."""

    def forgotten(self, key: bytes, first: int, end: int, handle: int, now: bool) -> Ranges:
        """Forgets that messages came, which no program was given. Returns those that come again only if they are
        nacked."""

    def left(self, handles: Sequence[int]) -> None:
        """Forgets handles that left the inbox. They are not used again."""

    def taken_over(self, handles: Sequence[int]) -> None:
        """Forgets what cannot be acked any more, as another session has these handles' queues. They may come back."""

    def lives_ended(self, handles: Sequence[int]) -> None:
        """Forgets these handles: what comes for them is of another life of their queue."""

    def stream_ended(self, unanswered: Iterable[Acked]) -> None:
        """Records a lost stream. `unanswered`: acks given for its messages; the slice may have them or not."""

    def unsettled(
        self, handles: Container[int], timeouts_s: Callable[[], Mapping[int, float]], now_s: float
    ) -> Iterator[int]:
        """Yields numbers above 0: their sum is how many messages a drain waits for. `timeouts_s`: returns the ack
        timeouts of queues that have one, by handle."""


class DropRepeats:
    """Hands out each message once."""

    acks_go_first = False

    def __init__(self, pending: PendingAcks) -> None:
        self.repeats = Repeats(pending)

    def came(
        self, key: bytes, first: int, end: int, handles: Sequence[int], told: Told = UNTOLD
    ) -> tuple[list[HandledRange], list[HandledRange]]:
        return self.repeats.deliver(key, first, end, handles, told)

    def handed_out(self, key: bytes, first: int, end: int, handles: Sequence[int], now_s: float) -> None:
        """Does nothing: what came and is not acked is remembered anyway."""

    def acked(self, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        self.repeats.acked(key, first, end, handles)

    def acked_of_before(
        self, key: bytes, first: int, end: int, handles: Sequence[int], unconfirmed: Container[int]
    ) -> list[HandledRange]:
        return self.repeats.ack(key, first, end, handles, unconfirmed)

    def answered(self, acks: Iterable[Acked]) -> None:
        self.repeats.acks_answered(acks)

    def acked_late(self, acks: Iterable[Acked]) -> None:
        self.repeats.acked_late(acks)

    def nacked(self, key: bytes, first: int, end: int, handle: int, now: bool) -> Ranges:
        acked = self.repeats.renewed.acks_within(key, handle, first, end)
        return self.repeats.nack(key, without(((first, end),), acked), handle, now)

    def given_back(self, key: bytes, first: int, end: int, handles: Sequence[int], now: bool) -> list[HandledRange]:
        if now and not self.repeats.remembers_acks:  # The usual case: one step for all handles.
            self.repeats.answered(key, ((first, end),), handles)
            return [(first, end, handles)]
        return _each(handles, lambda handle: self.repeats.nack(key, ((first, end),), handle, now))

    def forgotten(self, key: bytes, first: int, end: int, handle: int, now: bool) -> Ranges:
        return self.repeats.nack(key, ((first, end),), handle, now)

    def left(self, handles: Sequence[int]) -> None:
        self.repeats.forget(handles)

    def taken_over(self, handles: Sequence[int]) -> None:
        self.repeats.forget_doubts(handles)

    def lives_ended(self, handles: Sequence[int]) -> None:
        self.repeats.forget(handles)

    def stream_ended(self, unanswered: Iterable[Acked]) -> None:
        self.repeats.stream_ended(unanswered)

    def unsettled(
        self, handles: Container[int], timeouts_s: Callable[[], Mapping[int, float]], now_s: float
    ) -> Iterator[int]:
        return self.repeats.unanswered(handles)


class HandOutRepeats:
    """Hands out a message as often as it comes. Of an earlier stream nothing is known: it comes again."""

    repeats = None
    acks_go_first = True
    """A message that was acked may have come again, and be nacked then: the ack, if it has an effect, stands."""

    def __init__(self, pending: PendingAcks) -> None:
        self._pending = pending
        self._out = HandedOut()

    def came(
        self, key: bytes, first: int, end: int, handles: Sequence[int], told: Told = UNTOLD
    ) -> tuple[list[HandledRange], list[HandledRange]]:
        return [(first, end, handles)], []

    def handed_out(self, key: bytes, first: int, end: int, handles: Sequence[int], now_s: float) -> None:
        self._out.add(key, first, end, handles, now_s)

    def acked(self, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        self._out.done(key, first, end, handles)

    def acked_of_before(
        self, key: bytes, first: int, end: int, handles: Sequence[int], unconfirmed: Container[int]
    ) -> list[HandledRange]:
        known = [handle for handle in handles if handle not in unconfirmed]
        return [(first, end, known)] if known else []

    def answered(self, acks: Iterable[Acked]) -> None:
        """Does nothing: if it comes again, it is handed out."""

    def acked_late(self, acks: Iterable[Acked]) -> None:
        """Does nothing: they come again, and are handed out."""

    def nacked(self, key: bytes, first: int, end: int, handle: int, now: bool) -> Ranges:
        if not now:
            return ()
        self._out.done(key, first, end, (handle,))
        return ((first, end),)

    def given_back(self, key: bytes, first: int, end: int, handles: Sequence[int], now: bool) -> list[HandledRange]:
        if now:
            self._out.done(key, first, end, handles)
        return _each(handles, lambda handle: self.forgotten(key, first, end, handle, now))

    def forgotten(self, key: bytes, first: int, end: int, handle: int, now: bool) -> Ranges:
        # What is acked on this stream may have come again: the ack stands.
        return self._pending.outside(key, handle, first, end) if now else ()

    def left(self, handles: Sequence[int]) -> None:
        self._out.leave(handles)

    def taken_over(self, handles: Sequence[int]) -> None:
        self._out.leave(handles)

    def lives_ended(self, handles: Sequence[int]) -> None:
        self._out.leave(handles)

    def stream_ended(self, unanswered: Iterable[Acked]) -> None:
        self._out.clear()

    def unsettled(
        self, handles: Container[int], timeouts_s: Callable[[], Mapping[int, float]], now_s: float
    ) -> Iterator[int]:
        return self._out.unsettled(timeouts_s(), now_s)


def _each(handles: Sequence[int], ranges: Callable[[int], Ranges]) -> list[HandledRange]:
    return [(low, high, (handle,)) for handle in handles for low, high in ranges(handle)]
