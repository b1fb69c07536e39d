"""`shoal watch`: prints members of a key, or counts of keys, as they change."""

from __future__ import annotations

import shoal
from shoal_ops import output
from shoal_ops.commands.verbs import connect

_WORDS = {shoal.Joined: "joined", shoal.Left: "left", shoal.Online: "online", shoal.Offline: "offline"}


async def members(at: str, key: str, presence: bool, after: str, events: int | None, as_json: bool) -> None:
    """Prints members and changes until there were so many `events`; None: for ever."""
    async with connect(at) as broker, broker.watch_members(key, presence=presence, after=after) as watch:
        seen = 0
        async for event in watch:
            _tell(event, presence, as_json)
            seen += 1
            if seen == events:
                return


async def counts(at: str, prefix: str, presence: bool, events: int | None, as_json: bool) -> None:
    """Prints counts and changes until there were so many `events`; None: for ever."""
    async with connect(at) as broker, broker.watch_counts(prefix, presence=presence) as watch:
        seen = 0
        async for event in watch:
            _tell_count(event, presence, as_json)
            seen += 1
            if seen == events:
                return


def _tell(event: shoal.MemberEvent, presence: bool, as_json: bool) -> None:
    if isinstance(event, shoal.Members):
        _tell_members(event, presence, as_json)
    elif isinstance(event, shoal.MemberCount):
        if as_json:
            told = {"event": "member_count", "queues": event.queues, "online": event.online}
            output.say_json(told | {"position": event.position})
        else:
            output.say(_counted(event.queues, event.online, presence))
    elif as_json:
        told = {"event": _WORDS[type(event)], "queue": event.queue, "position": event.position}
        output.say_json(told | ({"online": event.online} if isinstance(event, shoal.Joined) else {}))
    else:
        online = ", online" if isinstance(event, shoal.Joined) and event.online else ""
        output.say(f"{output.shown(event.queue_bytes)} {_WORDS[type(event)]}{online}")


def _tell_members(event: shoal.Members, presence: bool, as_json: bool) -> None:
    if as_json:
        output.say_json({"event": "members", "members": event.online, "position": event.position})
        return
    output.say(_counted(len(event.online_bytes), sum(event.online_bytes.values()), presence))
    for queue, online in event.online_bytes.items():
        output.say(f"{output.shown(queue)} is a member{', online' if online else ''}")


def _tell_count(event: shoal.CountEvent, presence: bool, as_json: bool) -> None:
    if isinstance(event, shoal.Complete):
        if as_json:
            output.say_json({"event": "complete"})
        else:
            output.say("all told; changes follow")
    elif as_json:
        output.say_json({"event": "count", "key": event.key, "queues": event.queues, "online": event.online})
    else:
        output.say(f"{output.shown(event.key_bytes)}: {_counted(event.queues, event.online, presence)}")


def _counted(queues: int, online: int, presence: bool) -> str:
    return output.count(queues, "queue") + (f", {online:,} online" if presence else "")
