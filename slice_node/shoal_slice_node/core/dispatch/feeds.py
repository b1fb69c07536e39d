"""A queue under consumption: its streams, and the sessions that compete for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.streams import Stream

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session


class Attachment:
    """One session's part in one queue. `handle` None: it pulls. Counts what it has out and unacked."""

    __slots__ = (
        "body_bytes",
        "feed",
        "handle",
        "messages",
        "session",
        "window_bytes",
        "window_messages",
    )

    def __init__(
        self, session: Session, feed: Feed, handle: int | None, window_messages: int, window_bytes: int
    ) -> None:
        self.session = session
        self.feed = feed
        self.handle = handle
        self.window_messages = window_messages
        self.window_bytes = window_bytes
        self.messages = 0
        self.body_bytes = 0

    @property
    def window_open(self) -> bool:
        """A chunk may pass the window by its own size: it is never taken apart."""
        return self.messages < self.window_messages and self.body_bytes < self.window_bytes

    def hold(self, messages: int, body_bytes: int) -> None:
        self.messages += messages
        self.body_bytes += body_bytes

    def release(self, messages: int, body_bytes: int) -> None:
        self.messages -= messages
        self.body_bytes -= body_bytes
        assert self.messages >= 0 and self.body_bytes >= 0


class Feed:
    """`attachments` get pushes, in turns; `pullers` took messages. `lagging`: streams with something to read or give
    again. `unflushed`: streams with acks that are not in the journal."""

    __slots__ = (
        "attachments",
        "lagging",
        "name",
        "pullers",
        "queue_id",
        "streams",
        "turn",
        "unapplied_acks",
        "unflushed",
    )

    def __init__(self, queue_id: bytes, name: bytes) -> None:
        self.queue_id = queue_id
        self.name = name
        self.streams: dict[bytes, Stream] = {}
        self.attachments: list[Attachment] = []
        self.pullers: dict[int, Attachment] = {}
        self.lagging: dict[bytes, Stream] = {}
        self.unflushed: dict[bytes, Stream] = {}
        self.unapplied_acks = 0
        self.turn = 0

    @property
    def idle(self) -> bool:
        """Nobody consumes it, and the tables know all that was acked: it may be forgotten."""
        return not (self.attachments or self.pullers or self.unflushed or self.unapplied_acks)

    def set_lagging(self, stream: Stream) -> None:
        stream.lagging = True
        self.lagging[stream.key_id] = stream

    def clear_lagging(self, stream: Stream) -> None:
        stream.lagging = False
        self.lagging.pop(stream.key_id, None)

    def pick(self) -> Attachment | None:
        """Whose turn it is among those with room. A session without room will ask for this feed when it has."""
        step = self._first_with_room()
        if step is None:
            return None
        count = len(self.attachments)
        attachment = self.attachments[(self.turn + step) % count]
        self.turn = (self.turn + step + 1) % count
        return attachment

    @property
    def has_room(self) -> bool:
        """Whether `pick` would find somebody; asks for room as `pick` does."""
        return self._first_with_room() is not None

    def _first_with_room(self) -> int | None:
        attachments = self.attachments
        count = len(attachments)
        for step in range(count):
            attachment = attachments[(self.turn + step) % count]
            if not attachment.window_open:
                continue
            if attachment.session.has_room:
                return step
            attachment.session.stalled[self.queue_id] = self
        return None
