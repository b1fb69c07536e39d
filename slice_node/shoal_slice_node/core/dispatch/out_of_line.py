"""Picks a session of a queue though it may not stand in the queue's line: for a live chunk, which cannot wait, and for
what comes out of turn (out_of_turn.py).

It looks at a few, in turns: those that were looked at in vain go behind the others.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import OUT_OF_LINE_LOOKS_MAX

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.feeds import Feed


def next_for_live(feed: Feed, cost_bytes: int) -> Attachment | None:
    """Returns the next attachment whose session has room for a live chunk that takes so much memory: its window does
    not matter."""
    if feed.sole is not None:
        return feed.sole if feed.sole.session.has_room_for_live(cost_bytes) else None
    for attachment in list(islice(feed.attachments.values(), OUT_OF_LINE_LOOKS_MAX)):
        feed.put_behind(attachment)
        if attachment.session.has_room_for_live(cost_bytes):
            return attachment
    return None


def pick_any(feed: Feed, cost_bytes: int, more: int = 0, more_bytes: int = 0) -> Attachment | None:
    """Does as `Feed.pick`; with nobody in line, returns one of those that wait, if so little may come out of turn."""
    in_line = feed.pick(cost_bytes, more, more_bytes)
    if in_line is not None or feed.has_line:
        return in_line
    for attachment in list(islice(feed.attachments.values(), OUT_OF_LINE_LOOKS_MAX)):
        feed.put_behind(attachment)
        has_window = attachment.window_open and (not more or attachment.has_window_behind(more, more_bytes))
        if has_window and attachment.session.has_room_for(cost_bytes):
            return attachment
    return None


def finds_any(feed: Feed, cost_bytes: int) -> bool:
    """Returns whether `pick_any` would find one now. It stays the first."""
    if feed.find_room():
        return True
    for attachment in list(islice(feed.attachments.values(), OUT_OF_LINE_LOOKS_MAX)):
        if attachment.window_open and attachment.session.has_room_for(cost_bytes):
            return True
        feed.put_behind(attachment)
    return False
