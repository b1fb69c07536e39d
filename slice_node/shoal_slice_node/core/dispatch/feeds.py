"""Keeps a queue under consumption: its streams, and the sessions that compete for it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.streams import Stream

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session


class Attachment:
    """Keeps one session's part in one queue, and counts what it has out and unacked. `handle` None: it pulls.
    `pulling`: the number of its pulls under way. `lined`: it stands in its feed's line. `left`: it was detached, and
    gets nothing more."""

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
        """Returns whether the window has room. A chunk may exceed the window by its own size: it is never split."""
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
    """Keeps what dispatch knows of one queue.

    `attachments`, by session number, get pushes, in turns; `pullers` took messages. `sole`: the attachment, if there is
    exactly one. `lagging`: streams with something to read or give again. `unflushed`: streams with acks that are not in
    the journal. `loading`: some bindings may have no stream yet; the loader makes them. `leaving`: the number of
    attachments that left, while their messages are still being taken back. `gone`: the feed is not registered any more.
    `passed_over`: the number of streams, at the end of `lagging`, that were looked at and got nothing, as they wait for
    acks. If all wait, the feed waits too. Every event that may change this sets it to 0.

    `line` holds the attachments that may have room, the next to be served first. An attachment without room leaves the
    line. It is lined up again when its window opens or its session has room. So a look for room never costs more than
    the attachments that leave the line.
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
        """Returns whether the feed may be forgotten: nothing consumes the queue, and the tables have all its acks."""
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
        """Puts an attachment in line, if it is not there: it may have room again."""
        if not (attachment.lined or attachment.left) and attachment.handle is not None:
            attachment.lined = True
            self.line.append(attachment)

    def pick(self) -> Attachment | None:
        """Returns the next attachment in line that has room. A session without room notes this feed, and asks for it
        when it has room."""
        attachment = self._first_with_room()
        if attachment is not None and len(self.line) > 1:
            self.line.rotate(-1)
        return attachment

    @property
    def has_room(self) -> bool:
        """Returns whether `pick` would find an attachment. Sessions without room note this feed, as with `pick`."""
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
