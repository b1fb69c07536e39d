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
    """Does as `Feed.pick`; with nobody in line, returns one of those that wait, if so little may come out of turn. If
    none of a few may have it, the one that was found last is asked, too: it may be the only one that reads."""
    in_line = feed.pick(cost_bytes, more, more_bytes)
    if in_line is not None or feed.has_line:
        return in_line
    for attachment in list(islice(feed.attachments.values(), OUT_OF_LINE_LOOKS_MAX)):
        if not _may_have(attachment, cost_bytes):
            feed.put_behind(attachment)
        elif more and not attachment.has_window_behind(more, more_bytes):
            return None  # It stays the first, for a part.
        else:
            feed.put_behind(attachment)
            feed.note_found(attachment)
            return attachment
    return _found_last(feed, cost_bytes, more, more_bytes)


def pick_likely(feed: Feed, cost_bytes: int, more: int, more_bytes: int) -> Attachment | None:
    """Does as `pick_any`, but asks nobody besides those in line and the one that was found last."""
    in_line = feed.pick(cost_bytes, more, more_bytes)
    if in_line is not None or feed.has_line:
        return in_line
    return _found_last(feed, cost_bytes, more, more_bytes)


def finds_any(feed: Feed, cost_bytes: int) -> bool:
    """Returns whether `pick_any` would find one now, for a part at least. It stays the first, unless it was found
    last."""
    if feed.find_room(cost_bytes):
        return True
    for attachment in list(islice(feed.attachments.values(), OUT_OF_LINE_LOOKS_MAX)):
        if _may_have(attachment, cost_bytes):
            return True
        feed.put_behind(attachment)
    return _found_last(feed, cost_bytes) is not None


def _found_last(feed: Feed, cost_bytes: int, more: int = 0, more_bytes: int = 0) -> Attachment | None:
    last = feed.attachments.get(feed.found_last)
    if last is None or not _may_have(last, cost_bytes):
        return None
    return None if more and not last.has_window_behind(more, more_bytes) else last


def _may_have(attachment: Attachment, cost_bytes: int) -> bool:
    return attachment.window_open and attachment.session.has_room_for(cost_bytes)
