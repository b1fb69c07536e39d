"""Takes back what attachments that left have out, to be given again: in turns, all that left a feed together.

A delivery is noted in its stream only (growing.py), so the feed's streams are walked to find what is out. One walk
serves all that left, also those that leave while it is under way: they need another one only for what it had passed.
What a walk finds is put last among the feed's streams, and the next walk begins there. So a feed keeps one list of its
streams however many leave, and where messages come of few keys, a few streams are looked at.
"""

from __future__ import annotations

from collections import OrderedDict

from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.bringing_back import take_stream_back
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.releasing import after_release
from shoal_slice_node.core.limits import INLINE_STREAMS_MAX, LOOKED_AT_PER_COST, STREAMS_PER_HANDLE


class Returning:
    """Takes back in turns. `walks`: feeds that attachments left, the next one first."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.walks: OrderedDict[Feed, _Walk] = OrderedDict()

    def take_back(self, attachment: Attachment) -> None:
        """Takes back what an attachment that left has out: at once if little is to be looked at."""
        feed, session = attachment.feed, attachment.session
        is_small = len(feed.streams) <= INLINE_STREAMS_MAX
        if is_small and not attachment.messages:
            after_release(self._registry, feed)
            return
        walk = self.walks.get(feed)
        if walk is None:
            walk = self.walks[feed] = _Walk(self._registry, feed)
            feed.begin_leave()
            self._registry.leaving.begin_feed()
        walk.left[attachment] = None
        is_small = is_small and session.owed <= INLINE_STREAMS_MAX
        if is_small and session.count_not_sent() <= INLINE_STREAMS_MAX // STREAMS_PER_HANDLE:
            at_once = self._registry.at_once
            if at_once.left:
                self.walks.move_to_end(feed, last=False)
                at_once.spend(self.turn(min(INLINE_STREAMS_MAX, at_once.left)))

    def turns(self, cost_max: int) -> None:
        """Goes on with feeds, as `turn` does, until that has cost so much, STREAMS_PER_HANDLE for each at least."""
        while self.walks and cost_max > 0:
            cost_max -= STREAMS_PER_HANDLE + self.turn(cost_max)

    def turn(self, cost_max: int) -> int:
        """Goes on with the feed that waited longest. What is taken back costs 1 for each stretch, and what is listed of
        its session's parcels; what is looked at costs less. The last attachment may exceed `cost_max`. Returns what it
        cost, 1 at least."""
        feed, walk = self.walks.popitem(last=False)
        cost = walk.go_on(cost_max)
        if walk.left and not feed.gone:
            self.walks[feed] = walk  # Behind the others: feeds take turns.
        else:
            feed.end_leave()
            self._registry.leaving.end_feed()
        after_release(self._registry, feed)
        return cost


class _Walk:
    """Takes back what is out of one feed. `left`: attachments that left, while they may have something out."""

    __slots__ = ("_feed", "_is_whole", "_key_ids", "_registry", "left")

    def __init__(self, registry: Registry, feed: Feed) -> None:
        self._registry = registry
        self._feed = feed
        self.left: dict[Attachment, None] = {}
        self._key_ids: list[bytes] = []
        """Those of the streams that are still to be looked at, the next one last."""
        self._is_whole = True
        """These are of all streams, or were. A few are looked at before all are listed: 2 ms if they are 95,000."""

    def go_on(self, cost_max: int) -> int:
        """Looks at some streams, while any `left`. Returns what it cost."""
        feed, looks = self._feed, cost_max * LOOKED_AT_PER_COST
        while looks > 0 and self.left and not feed.gone:
            looks -= 1
            if not self._key_ids:
                looks -= self._list_anew()
                continue
            stream = feed.streams.get(self._key_ids[-1])
            if stream is not None and stream.out:
                back = take_stream_back(self._registry, stream, self.left, looks // LOOKED_AT_PER_COST)
                for attachment in back.attachments:
                    if not attachment.messages:
                        del self.left[attachment]
                looks -= back.cost * LOOKED_AT_PER_COST
                if not back.is_all:
                    break
            self._key_ids.pop()
        return 1 + cost_max - looks // LOOKED_AT_PER_COST

    def _list_anew(self) -> int:
        """Begins to look at streams, if something is out that may be found there. Returns how many are listed."""
        self.left = {attachment: None for attachment in self.left if attachment.messages}
        if self.left:
            self._is_whole = not self._is_whole
            self._key_ids = self._feed.last_streams(1 << 62 if self._is_whole else INLINE_STREAMS_MAX)
        return len(self._key_ids)
