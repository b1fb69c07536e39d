"""A queue under consumption: its streams, and the sessions that compete for it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.streams import Stream

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session


class Attachment:
    """One session's part in one queue. `handle` None: it pulls, in so many calls now as `pulling` says. Counts what it
    has out and unacked. `lined`: it stands in its feed's line. `left`: it was detached, and gets nothing more."""

    __slots__ = (
        "body_bytes",
        "feed",
        "handle",
        "left",
        "lined",
        "messages",
        "pulling",
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
        self.lined = False
        self.left = False
        self.pulling = 0

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
        if not self.lined and self.window_open:
            self.feed.line_up(self)


class Feed:
    """`attachments`, by session number, get pushes, in turns; `pullers` took messages. `sole`: the attachment, if there
    is exactly one. `lagging`: streams with something to read or give again. `unflushed`: streams with acks that are not
    in the journal. `loading`: some bindings may have no stream yet; the loader makes them. `leaving`: attachments that
    left and whose messages are still being taken back. `passed_over`: so many streams, the last in `lagging`,
    were looked at and got nothing, as they wait for acks; where all do, the feed waits too. 0 again with whatever may
    change that. `gone`: it is not registered any more.

    `line` holds the attachments that may have room, the next to be served first. One that has none leaves the line; it
    is lined up again when its window opens or its session has room, so a look never costs more than those that left.
    """

    __slots__ = (
        "attachments",
        "gone",
        "lagging",
        "leaving",
        "line",
        "loading",
        "name",
        "passed_over",
        "pullers",
        "queue_id",
        "sole",
        "streams",
        "unapplied_acks",
        "unflushed",
    )

    def __init__(self, queue_id: bytes, name: bytes) -> None:
        self.queue_id = queue_id
        self.name = name
        self.loading = True
        self.gone = False
        self.leaving = 0
        self.passed_over = 0
        self.streams: dict[bytes, Stream] = {}
        self.attachments: dict[int, Attachment] = {}
        self.sole: Attachment | None = None
        self.line: deque[Attachment] = deque()
        self.pullers: dict[int, Attachment] = {}
        self.lagging: dict[bytes, Stream] = {}
        self.unflushed: dict[bytes, Stream] = {}
        self.unapplied_acks = 0

    @property
    def idle(self) -> bool:
        """Nothing consumes it, and the tables know all that was acked: it may be forgotten."""
        return not (self.attachments or self.pullers or self.unflushed or self.unapplied_acks or self.leaving)

    def add(self, attachment: Attachment) -> None:
        self.attachments[attachment.session.number] = attachment
        self.sole = attachment if len(self.attachments) == 1 else None
        self.line_up(attachment)

    def remove(self, attachment: Attachment) -> None:
        del self.attachments[attachment.session.number]
        self.sole = next(iter(self.attachments.values())) if len(self.attachments) == 1 else None
        attachment.left = True
        if attachment.lined:
            self.line.remove(attachment)
            attachment.lined = False

    def set_lagging(self, stream: Stream) -> None:
        stream.lagging = True
        self.lagging[stream.key_id] = stream

    def clear_lagging(self, stream: Stream) -> None:
        self.passed_over = 0
        stream.lagging = False
        self.lagging.pop(stream.key_id, None)

    def line_up(self, attachment: Attachment) -> None:
        """It may have room again."""
        if not (attachment.lined or attachment.left) and attachment.handle is not None:
            attachment.lined = True
            self.line.append(attachment)

    def pick(self) -> Attachment | None:
        """Returns the next in line that has room. A session without room will ask for this feed when it has."""
        attachment = self._first_with_room()
        if attachment is not None and len(self.line) > 1:
            self.line.rotate(-1)
        return attachment

    @property
    def has_room(self) -> bool:
        """Whether `pick` would find one; asks for room as `pick` does."""
        return self._first_with_room() is not None

    def _first_with_room(self) -> Attachment | None:
        line = self.line
        while line:
            attachment = line[0]
            if attachment.window_open:
                if attachment.session.has_room:
                    return attachment
                attachment.session.stalled[self.queue_id] = self
            line.popleft()
            attachment.lined = False
        return None
