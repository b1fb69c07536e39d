"""Does what is due when something that was out, or rested, is no more, but for acks of sessions and of
changes (acks_in_flight), leases that end (timeouts) and what is forgotten (registry), which do it themselves.

Windows have opened, a session may owe less, a pull may have nothing left, a queue may be idle. Whichever is forgotten,
a queue falls silent, or stays in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.registry import Registry


def after_release(registry: Registry, feed: Feed, attachment: Attachment | None = None) -> None:
    """Serves the feed, if it has something to give and room; forgets it if it is idle. `attachment`: the one that had
    it; None: none had it, or it was looked after already. The feed may be forgotten afterwards."""
    if attachment is not None:
        registry.end_pull_without_messages(attachment)
        registry.has_room_again(attachment.session)
    registry.wake(feed)
    registry.forget_if_idle(feed)
