"""Takes back what is out of one stream with attachments that left, to be given again: in the turn of their feed
(returning), or as soon as something behind it is to be given (filling), so that it comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple

from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Out
from shoal_slice_node.core.dispatch.unsent import split, unsent_between
from shoal_slice_node.core.limits import LISTED_AT_ONCE_MAX, LOOKED_AT_PER_COST, PUMP_TURN_HANDLES, UNSENT_PER_COST
from shoal_slice_node.core.ranges import Ranges

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.registry import Registry


class Back(NamedTuple):
    """Says what came back. `attachments`: whose. `is_all`: nothing else of those that were asked for is out. `cost`: 1
    for each stretch, and what was looked at and listed for it."""

    attachments: list[Attachment]
    is_all: bool
    cost: int


def take_stream_back(registry: Registry, stream: Stream, left: Container[Attachment], cost_max: int) -> Back:
    """Takes back what attachments that left have out of a stream: of the first one, and of others while they do not
    exceed `cost_max`. The caller must wake the feed."""
    cost = len(stream.out) // LOOKED_AT_PER_COST
    stretches = Counter([entry.attachment for entry in stream.out if entry.attachment in left])
    if not stretches:
        return Back([], True, cost)
    first, to = stream.out[0].first, stream.out[-1].to
    not_sent: dict[Attachment, Ranges | None] = {}
    for attachment in stretches:
        if not_sent and cost >= cost_max:
            break
        not_sent[attachment], looked_at = unsent_between(attachment, stream, first, to)
        cost += stretches[attachment] + looked_at // UNSENT_PER_COST
    back: dict[Attachment, list[Out]] = {}
    for entry in stream.take_all_back(not_sent):
        back.setdefault(entry.attachment, []).append(entry)
    for attachment, out in back.items():
        _give_again(registry, stream, attachment, out, not_sent[attachment])
    stream.feed.put_last(stream)
    return Back(list(not_sent), len(not_sent) == len(stretches), cost)


def _give_again(
    registry: Registry, stream: Stream, attachment: Attachment, out: list[Out], not_sent: Ranges | None
) -> None:
    """Lets what came back of one attachment be given again."""
    sent, kept = split(out, not_sent)
    if sent:
        registry.returns.came_back(stream, sent, Reason.LEFT, attachment.session, counts=not attachment.taken_over)
    if kept:
        registry.returns.not_sent(stream, kept)
    registry.has_room_again(attachment.session)


def bring_back(registry: Registry, stream: Stream) -> Back:
    """Takes back what is out of a stream with any that left, or whose sessions ended, before something behind it is
    given. Not `is_all`: it is more than a step may do; to go on, it must be asked again."""
    loses, looks = registry.leaving.loses(stream)
    if not loses:
        return Back([], True, looks // LOOKED_AT_PER_COST)
    left = {entry.attachment for entry in stream.out if not entry.attachment.attached}
    parcels = LISTED_AT_ONCE_MAX
    for attachment in left:
        session = attachment.session
        if stream.parcel > session.sent_to and session.not_sent.not_listed:
            some = min(parcels, session.not_sent.not_listed)
            parcels -= some
            if session.not_sent.list_left_behind(some) or not parcels:
                return Back([], False, LISTED_AT_ONCE_MAX // UNSENT_PER_COST)
    back = take_stream_back(registry, stream, left, PUMP_TURN_HANDLES)
    stream.feed.clear_lagging(stream)  # The caller goes on with it.
    return back
