"""An inbox's part at one slice: its session, which queues are attached there, its acks.

Its session is its own, not the one that carries requests: a full inbox stops reading, and may not hold up receipts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from shoal.acks import AckSender
from shoal.frames import DetachFrame, Frame
from shoal.limits import ATTACH_QUEUES_MAX
from shoal.map_watch import MapWatch
from shoal.messages import Delivery
from shoal.seen import Part, Seen
from shoal.slice_session import SliceSession
from shoal.waiting import deadline_exceeded
from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire

OnDelivery = Callable[[Delivery], Awaitable[None]]


class AttachFrame(Frame):
    """Takes what still has to be attached when it is sent; the next stream begins with frames of its own."""

    __slots__ = ("_handles", "_owner", "cost_bytes")

    def __init__(self, owner: InboxSlice) -> None:
        super().__init__()
        self.cost_bytes = 0
        self._owner = owner
        self._handles: list[int] = []

    def fill(self, request: wire.SessionRequest) -> bool:
        self._handles = self._owner.take_unsent()
        self._owner.fill_attach(self._handles, request.attach)
        return bool(self._handles)

    def answered(self, answer: wire.Answer) -> None:
        self._owner.attached(self._handles, answer.attached.absent)

    def failed(self, error: ShoalError) -> None:
        self._owner.fail(error)

    def stream_ended(self) -> bool:
        return False


class InboxSlice:
    """`queues` is the inbox's own: handle -> queue, changed only by the inbox."""

    def __init__(
        self,
        slice_name: str,
        map_watch: MapWatch,
        queues: Mapping[int, bytes],
        window: wire.Attach,
        buffer_bytes: int,
        on_delivery: OnDelivery,
        drop_repeats: bool,
        on_failure: Callable[[], None],
    ) -> None:
        self.absent: set[int] = set()
        """Handles whose queue had no part here when attached."""
        self.error: ShoalError | None = None
        """Why this slice refuses the inbox; repeating does not cure it."""
        self._queues = queues
        self._window = window
        self._on_delivery = on_delivery
        self._on_failure = on_failure
        self._unsent: dict[int, None] = {}
        self._unanswered: set[int] = set()
        """Handles not known to be attached on the current stream; holds all of `_unsent`."""
        self._any_detached = False
        self._changed = asyncio.Event()
        self._delivered = Seen() if drop_repeats else None
        self._acked = Seen()
        self.session = SliceSession(
            slice_name,
            map_watch,
            on_deliveries=self._deliver,
            first_frames=self._first_frames,
            on_refused=self.fail,
            window_bytes=buffer_bytes,
        )
        self.acks = AckSender(self.session, self.fail)

    def attach(self, handles: Sequence[int]) -> None:
        """Begins to attach; `wait_attached` tells when it is done."""
        self._unsent.update(dict.fromkeys(handles))
        self._unanswered.update(handles)
        for _ in range(0, len(handles), ATTACH_QUEUES_MAX):
            self.session.send(AttachFrame(self))

    async def wait_attached(self, handles: Sequence[int], deadline: float) -> None:
        """Raises DeadlineExceeded, or what the slice refuses the inbox with."""
        try:
            async with asyncio.timeout_at(deadline):
                while self.error is None and not self._unanswered.isdisjoint(handles):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise deadline_exceeded(f"attach at slice {self.session.slice_name}") from None
        if self.error is not None:
            raise self.error

    async def detach(self, handles: Sequence[int], deadline: float) -> None:
        self._any_detached = True
        for handle in handles:
            self._unsent.pop(handle, None)
        self._unanswered.difference_update(handles)
        self.absent.difference_update(handles)
        for start in range(0, len(handles), ATTACH_QUEUES_MAX):
            frame = DetachFrame(wire.Detach(handles=handles[start : start + ATTACH_QUEUES_MAX]), deadline)
            await self.session.room.take(frame.cost_bytes, deadline)
            self.session.send(frame)
            await frame.future

    def take_unsent(self) -> list[int]:
        handles = list(self._unsent)[:ATTACH_QUEUES_MAX]
        for handle in handles:
            del self._unsent[handle]
        return handles

    def fill_attach(self, handles: Sequence[int], attach: wire.Attach) -> None:
        attach.CopyFrom(self._window)
        attach.handles.extend(handles)
        attach.queues.extend([self._queues[handle] for handle in handles])

    def attached(self, handles: Sequence[int], absent: Sequence[int]) -> None:
        self._unanswered.difference_update(handles)
        self.absent.difference_update(handles)
        self.absent.update(absent)
        self._changed.set()

    def fail(self, error: ShoalError) -> None:
        self.error = error
        self._changed.set()
        self._on_failure()

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        """Acker of this slice's deliveries. What was detached since is not acked: it is given to others."""
        if self._any_detached:
            consumers = [handle for handle in consumers if handle in self._queues]
            if not consumers:
                return
        if self._delivered is not None:
            self._acked.add(delivery.key_bytes, first, end, consumers)  # type: ignore[arg-type]  # handles
        self.acks.add(delivery.key_bytes, first, end, consumers)

    def queue_of(self, consumer: int | bytes) -> bytes:
        return self._queues.get(consumer, b"") if isinstance(consumer, int) else consumer

    def _first_frames(self) -> list[AttachFrame]:
        self._unsent = dict.fromkeys(self._queues)
        self._unanswered = set(self._queues)
        return [AttachFrame(self) for _ in range(0, len(self._queues), ATTACH_QUEUES_MAX)]

    async def _deliver(self, deliveries: Sequence[wire.Delivery]) -> None:
        for item in deliveries:
            handles: Sequence[int] = list(item.handles)
            if self._any_detached:
                handles = [handle for handle in handles if handle in self._queues]
                if not handles:
                    continue
            first: int = item.low
            if self._delivered is None:
                parts: list[Part] = [(first, item.to, handles)]
            else:
                parts = self._delivered.add(item.key, first, item.to, handles)
                if parts != [(first, item.to, handles)]:
                    self._ack_again(item, first, handles)
            if parts:
                chunk = parse_chunk(item.chunk)
                for low, high, same in parts:
                    await self._on_delivery(Delivery(item, low, high, chunk, same, self))

    def _ack_again(self, item: wire.Delivery, first: int, handles: Sequence[int]) -> None:
        """Repeats of what was acked are acked once more: the slice may have lost the first ack in a crash."""
        for handle in handles:
            for low, high in self._acked.known(item.key, first, item.to, handle):
                self.acks.add(item.key, low, high, (handle,))
