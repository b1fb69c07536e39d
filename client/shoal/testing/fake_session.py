"""Keeps one stream of a fake slice: its handles, what it was told of them, and what it still has to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from shoal.core.refusals import no_such_queue
from shoal.testing.fake_queues import FakeQueues
from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import Conflict, ShoalError
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire


class FakeSession:
    """Keeps one stream. Everything is sent in the order in which it is put into `outbox`."""

    def __init__(self) -> None:
        self.producer = b""
        self.cut = False
        self.queues: dict[int, bytes] = {}
        self.windows: dict[int, int] = {}
        self.nacks_taken = 0
        self.outbox: asyncio.Queue[wire.SessionResponse | None] = asyncio.Queue()
        self._resets = 0
        self._resets_before: dict[int, int] = {}
        """Handle -> how many resets its client has seen before anything of the present life; none: it attached this
        life itself."""

    def attach(self, queue: bytes, handle: int, window_messages: int) -> None:
        """Attaches a queue, as the client asks."""
        assert queue not in self.queues.values(), "a session may attach a queue only once"
        self.queues[handle] = queue
        self.windows[handle] = window_messages
        self._resets_before.pop(handle, None)

    def tell_resets(self, handles: Sequence[int]) -> None:
        """Tells that the lives of these handles' queues ended."""
        self._resets += len(handles)
        self._resets_before.update(dict.fromkeys(handles, self._resets))
        self.outbox.put_nowait(wire.SessionResponse(resets=handles))

    def queues_of(self, handles: Sequence[int], frame: wire.Acks | wire.Nacks) -> list[bytes | None]:
        """Returns the queues of handles that a frame names. None: the handle is not attached. b"": it stood for an
        earlier life when the client made the frame."""
        seen = frame.resets_seen if frame.HasField("resets_seen") else self._resets
        return [b"" if self._resets_before.get(handle, 0) > seen else self.queues.get(handle) for handle in handles]

    def give(self, deliveries: list[wire.Delivery], gaps: list[wire.Gap]) -> None:
        """Gives deliveries and gaps."""
        for delivery in deliveries:
            delivery.nacks_taken = self.nacks_taken
        self.outbox.put_nowait(wire.SessionResponse(deliveries=deliveries, gaps=gaps))

    def give_live(self, key: bytes, chunk: bytes, handles: list[int]) -> None:
        """Gives a live chunk to these handles."""
        live = wire.Delivery(key=key, to=len(parse_chunk(chunk).bodies), chunk=chunk, handles=handles, live=True)
        self.outbox.put_nowait(wire.SessionResponse(deliveries=[live]))


def refused_pull(queues: FakeQueues, queue: bytes, others: Iterable[FakeSession]) -> ShoalError | None:
    """Returns why a pull is refused: there is no such queue, or it is exclusive, and one of the other sessions consumes
    it."""
    if queue not in queues:
        return no_such_queue(queue)
    if queues.parts[queue].options.exclusive != "none" and any(queue in other.queues.values() for other in others):
        return consumed_elsewhere(queue)
    return None


def consumed_elsewhere(queue: bytes) -> Conflict:
    """Returns the error that refuses an exclusive queue."""
    return Conflict(f"queue {show(queue)} is exclusive: another session consumes it", subject=show(queue))


def delivery_of(given: Any, handles: list[int]) -> wire.Delivery:
    """Returns a delivery of what a fake state gave."""
    key, first, start, stop, chunk, again = given
    delivery = wire.Delivery(key=key, first=first, to=stop, chunk=chunk, handles=handles, redelivered=again)
    delivery.low = start
    delivery.time_ms = 1_700_000_000_000 + start
    return delivery
