"""Checks whether queues may be attached or pulled from, before anything changes, so that a refusal leaves everything as
it was."""

from __future__ import annotations

from shoal_contract.errors import Conflict, ResourceExhausted, exhausted
from shoal_contract.names import show
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed, long_bytes
from shoal_slice_node.core.dispatch.range_room import counted_as_pulled
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import (
    ATTACHED_PER_SESSION_MAX,
    ATTACHMENT_BYTES,
    CONSUMERS_PER_QUEUE_MAX,
    ENDED_UNREAD_MAX,
    FEED_BYTES,
    HEAVY_RANGES,
    INLINE_STREAMS_MAX,
    PULLED_RANGES_PART,
    RANGE_BYTES,
    SMALL_PULLS_PART,
    STREAM_BYTES,
)
from shoal_slice_node.core.rows.queue_row import name_of, streams_of


class AttachRoom:
    """Checks the room of one session for one or more queues that it attaches one after the other. Counts what earlier
    queues take, and what the replaced handles free."""

    def __init__(self, registry: Registry, session: Session) -> None:
        self._registry = registry
        self._session = session
        self._queues = len(session.by_queue)
        self._used_bytes = registry.shares.attached.used_bytes
        self._replaced: set[bytes] = set()
        """Names of queues with a replaced handle."""
        self._forgotten: set[bytes] = set()
        """Ids of queues that nothing consumes any more after that."""

    def check(self, name: bytes, handle: int) -> None:
        """Checks one more queue. Raises Conflict if the session has it under another handle, ResourceExhausted."""
        session = self._session
        other = session.by_queue.get(name)
        if other is not None and other != handle and name not in self._replaced:
            raise Conflict(
                f"this session has queue {show(name)} attached already, as handle {other}", subject=show(name)
            )
        if len(session.ended_handles) >= ENDED_UNREAD_MAX:
            raise exhausted("ended handles that the session has not read", ENDED_UNREAD_MAX, len(session.ended_handles))
        self._replace(handle)
        self._queues += 1
        if self._queues > ATTACHED_PER_SESSION_MAX:
            raise exhausted("queues attached by one session", ATTACHED_PER_SESSION_MAX, self._queues)
        self._used_bytes += self._cost_bytes(name)
        share = self._registry.shares.attached
        if self._used_bytes > share.limit_bytes:
            self._registry.range_room.note_refused(self._used_bytes - share.used_bytes)
            raise no_room(share.limit_bytes, self._used_bytes)

    def _replace(self, handle: int) -> None:
        session = self._session
        name = session.queue_of(handle)
        if name is None or name in self._replaced:
            return
        self._replaced.add(name)
        self._queues -= 1
        self._used_bytes -= ATTACHMENT_BYTES
        attachment = session.attachments.get(handle)
        if attachment is not None and self._goes_with(attachment):
            feed = attachment.feed
            self._forgotten.add(feed.queue_id)
            streams_bytes = STREAM_BYTES * feed.streams_counted + RANGE_BYTES * feed.ranges
            self._used_bytes -= FEED_BYTES + streams_bytes + feed.names_bytes

    def _goes_with(self, attachment: Attachment) -> bool:
        """Returns whether the attachment's feed is forgotten as soon as the attachment is detached."""
        feed = attachment.feed
        stays = feed.gone or feed.busy or len(feed.attachments) > 1
        return not stays and len(feed.streams) <= INLINE_STREAMS_MAX

    def _cost_bytes(self, name: bytes) -> int:
        registry = self._registry
        queue_id = registry.state.tables.queue_by_name.get(name)
        feed: Feed | None = None if queue_id is None else registry.feeds.get(queue_id)
        if feed is not None:
            consumers = len(feed.attachments) + (self._session.number not in feed.attachments)
            if consumers > CONSUMERS_PER_QUEUE_MAX:
                raise exhausted(f"consumers of queue {show(name)}", CONSUMERS_PER_QUEUE_MAX, consumers)
            if feed.queue_id not in self._forgotten:
                return ATTACHMENT_BYTES
        return ATTACHMENT_BYTES + _feed_bytes(registry, queue_id)


def _feed_bytes(registry: Registry, queue_id: bytes | None) -> int:
    """Returns what a queue takes that is not in memory yet, as its row says; that tells no names of keys. None: it has
    no part here."""
    row = None if queue_id is None else registry.state.tables.queue.get(queue_id)
    return FEED_BYTES if row is None else FEED_BYTES + STREAM_BYTES * streams_of(row) + long_bytes(name_of(row))


def no_room(limit_bytes: int, used_bytes: int) -> ResourceExhausted:
    """Returns the error of what finds no memory among attached queues."""
    return exhausted("memory of attached queues, bytes", limit_bytes, used_bytes)


def overload(registry: Registry, feed: Feed) -> ResourceExhausted | None:
    """Returns why a feed that is being loaded has no room: its bindings have more done ranges than an attach, or a
    pull, can know. None: it has."""
    share = registry.shares.attached
    if not feed.ranges_outweigh_streams:
        return None
    if registry.range_room.is_short:
        return no_room(share.limit_bytes, share.used_bytes)
    limit_bytes, used_bytes = _part_of_pulled(registry, feed, feed.ranges)
    is_too_much = counted_as_pulled(feed) and used_bytes > limit_bytes
    return _no_room_to_pull(limit_bytes, used_bytes) if is_too_much else None


def may_be_refused(registry: Registry, feed: Feed) -> bool:
    """Returns whether a pull from a feed that is being loaded may find no room in the end, as far as is known."""
    if feed.ranges_outweigh_streams:
        return True
    ranges = 0 if feed.attachments else feed.ranges_expected
    limit_bytes, used_bytes = _part_of_pulled(registry, feed, ranges)
    return ranges > HEAVY_RANGES and used_bytes > limit_bytes


def check_ranges_pulled(registry: Registry, feed: Feed) -> None:
    """Raises ResourceExhausted if a queue that nothing consumes yet, and that is to be pulled from, has more than
    HEAVY_RANGES done ranges, for which there is no room: in memory, or in the part of those that are only pulled from.
    """
    if feed.consumed or feed.ranges <= HEAVY_RANGES:
        return
    share = registry.shares.attached
    if registry.range_room.is_short:
        raise no_room(share.limit_bytes, share.used_bytes)
    limit_bytes, used_bytes = _part_of_pulled(registry, feed, feed.ranges)
    if used_bytes > limit_bytes:
        raise _no_room_to_pull(limit_bytes, used_bytes)


def _part_of_pulled(registry: Registry, feed: Feed, ranges: int) -> tuple[int, int]:
    """Returns the bytes that ranges of queues only pulled from may take, and what they take if the feed has so many."""
    more = ranges - counted_as_pulled(feed)
    limit_bytes = registry.shares.attached.limit_bytes // PULLED_RANGES_PART
    return limit_bytes, registry.range_room.pulled_bytes + RANGE_BYTES * more


def _no_room_to_pull(limit_bytes: int, used_bytes: int) -> ResourceExhausted:
    return exhausted("memory of done ranges of queues that are only pulled from, bytes", limit_bytes, used_bytes)


def check_pulls(registry: Registry, queue_id: bytes) -> None:
    """Raises ResourceExhausted if there is no room to pull from a queue, which this session does not yet."""
    feed_bytes = 0 if queue_id in registry.feeds else _feed_bytes(registry, queue_id)
    share, needed_bytes = registry.shares.attached, feed_bytes + ATTACHMENT_BYTES
    is_small = feed_bytes <= FEED_BYTES + STREAM_BYTES * INLINE_STREAMS_MAX
    limit_bytes = share.limit_bytes + is_small * share.limit_bytes // SMALL_PULLS_PART
    if share.used_bytes + needed_bytes > limit_bytes:
        if not is_small:  # A small one is refused only where ranges that may give way are overdrawn anyway.
            registry.range_room.note_refused(needed_bytes)
        raise no_room(limit_bytes, share.used_bytes + needed_bytes)
