"""Watches: members of a key, and counts of keys, as server-sent events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from shoal_ops.http import events, limits, watches
from shoal_ops.http.gateway import Gateway
from shoal_ops.http.parameters import KeyName, Prefix, TheGateway

router = APIRouter(tags=["watches"])

Presence = Annotated[bool, Query(description="tell also which members are attached by a session", examples=[True])]


def _stream(description: str, example: str) -> dict[int | str, dict[str, Any]]:
    content = {events.MEDIA_TYPE: {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": description, "content": content}}


@router.get(
    "/v1/keys/{key}/members/events",
    response_class=Response,
    responses=_stream(
        "First `members`, then `joined`, `left`, `online`, `offline`; of large groups `member_count`.",
        'id: 7.1.4\nevent: joined\ndata: {"queue": "inbox-anna", "online": false}\n\n',
    ),
)
async def watch_members(
    gateway: TheGateway,
    key: KeyName,
    presence: Presence = True,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="go on after this event", examples=["7.1.4"])
    ] = None,
) -> Response:
    """Tells the queues bound to a key, and then each change, as server-sent events. With Last-Event-ID, as browsers
    send it when they come back, only what came after that event, if it is not too long ago."""
    watch = gateway.broker.watch_members(
        key, presence=presence, after=last_event_id or "", deadline_s=limits.DEADLINE_S
    )
    return await _open(gateway, watch)


@router.get(
    "/v1/counts/events",
    response_class=Response,
    responses=_stream(
        "A `count` for each key, then `complete`, then a `count` for each change, a few times a second at most.",
        'event: count\ndata: {"key": "group-7", "queues": 12, "online": 3}\n\n',
    ),
)
async def watch_counts(gateway: TheGateway, prefix: Prefix, presence: Presence = True) -> Response:
    """Tells how many queues are bound to each key that begins with `prefix`, and then each change, as server-sent
    events."""
    watch = gateway.broker.watch_counts(prefix, presence=presence, deadline_s=limits.DEADLINE_S)
    return await _open(gateway, watch)


async def _open(gateway: Gateway, watch: watches.AnyWatch) -> Response:
    gateway.check_running()
    await gateway.watches.open(watch)
    return watches.WatchResponse(gateway.watches, watch, gateway.metrics)
