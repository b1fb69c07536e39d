"""Defines what consumers get of live publishes: messages without offsets, which are not acked.

Not here: messages that are stored (messages.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.messages import Delivery, Message


class LiveDelivery(Delivery):
    """Holds the messages of one live publish, once for all the queues that get them. `first` is 0, and `end` the number
    of messages: these are places in the publish, not offsets of the key."""

    __slots__ = ()
    live = True

    def messages(self) -> Iterator[Message]:
        """Yields each message, once for each queue."""
        for place in range(self.first, self.end):
            for consumer in self._consumers:
                yield LiveMessage(self, consumer, place)

    def check_call(self) -> None:
        """Does nothing, as `ack_nowait`."""

    def ack_nowait(self) -> None:
        """Does nothing: a live message is not given again, acked or not."""

    def nack_nowait(self, delay_s: float = 0) -> None:
        """Does nothing, as `ack_nowait`."""

    def give_back(self, consumers: Sequence[int | bytes] | None = None) -> None:
        """Does nothing, as `ack_nowait`."""


class LiveMessage(Message):
    """Is one live message for one queue. It has no offset."""

    __slots__ = ("_place",)
    live = True

    def __init__(self, delivery: Delivery, consumer: int | bytes, place: int) -> None:
        super().__init__(delivery, consumer, 0)
        self._place = place

    def give_back(self) -> None:
        """Does nothing: a live message is not given again."""

    def after(self) -> list[Delivery]:
        """Returns what its delivery yields after it."""
        return self._delivery.after(self._consumer, self._place)

    @property
    def body(self) -> bytes:
        """Returns the body as it was published."""
        return self._delivery.body_at(self._place)

    @property
    def headers(self) -> dict[str, bytes]:
        """Returns a copy of the headers; empty if the publisher gave none."""
        return self._delivery.headers_at(self._place)

    def ack_nowait(self) -> None:
        """Does nothing: a live message is not given again, acked or not."""

    def nack_nowait(self, delay_s: float = 0) -> None:
        """Does nothing, as `ack_nowait`."""
