"""What a chat is in Shoal's words. A room is a key; a person and an open page are queues.

- `person-NAME` is durable and bound to every room that its person has joined. Nothing consumes it: its backlog is the
  number of unread messages, by room, and costs nothing while it is not looked at.
- `tab-NAME-ID` is transient: one open page. Its backlog is what the page has not confirmed, so a page that comes back
  within a minute has lost nothing.

A room's key is configured to keep its last 50 messages, so that a new member sees them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

import shoal

HISTORY: Final = 50
TAB_LIVES_S: Final = 60
NOTICE_S_MAX: Final = 86_400
ROOMS_MAX: Final = 50
"""Rooms of a person. Each one that a page shows is a watch, with a connection of its own to a slice."""
_NAME: Final = re.compile(r"[\w.]{1,32}")


class BadName(ValueError):
    """Says that a person, room or page may not be called so."""


class TooManyRooms(ValueError):
    """Says that a person is in as many rooms as one may be."""


class BadTime(ValueError):
    """Says that a notice may not be valid for so long."""


def checked(name: object) -> str:
    """Returns a name of up to 32 letters, digits, dots and underscores. Raises BadName."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadName(f"{str(name)[:40]!r} is not a name: use up to 32 letters, digits, dots and underscores")
    return name


def room_key(room: str) -> str:
    return f"room-{room}"


def private_key(person: str) -> str:
    return f"private-{person}"


class Tab:
    """One open page of a person. `queue`: what it consumes."""

    def __init__(self, broker: shoal.Broker, person: str, tab: str) -> None:
        self._broker = broker
        self.person = checked(person)
        self.queue = f"tab-{self.person}-{checked(tab)}"
        self._mine = f"person-{self.person}"

    async def open(self) -> dict[str, int]:
        """Makes the person and the page known. Returns the rooms that the person has joined, with unread messages."""
        await self._broker.declare(self._mine)
        await self._broker.declare(self.queue, shoal.QueueOptions(expires_after_s=TAB_LIVES_S))
        for queue in (self._mine, self.queue):
            await self._broker.bind(queue, private_key(self.person))
        unread = await self.unread()
        for room in unread:
            await self._broker.bind(self.queue, room_key(room), start=shoal.Last(HISTORY))
        return unread

    async def join(self, room: str) -> None:
        """Joins a room; its last messages come to this page. Joining twice changes nothing. Raises TooManyRooms."""
        key = room_key(checked(room))
        joined = await self.unread()
        if room not in joined and len(joined) >= ROOMS_MAX:
            raise TooManyRooms(f"{self.person} is in {len(joined)} rooms, and may be in {ROOMS_MAX}: leave one first")
        await self._broker.configure(key, shoal.KeyOptions(history_messages=HISTORY))
        await self._broker.bind(self.queue, key, start=shoal.Last(HISTORY))
        await self._broker.bind(self._mine, key)

    async def leave(self, room: str) -> None:
        """Leaves a room on this page, and for good."""
        for queue in (self._mine, self.queue):
            await self._broker.unbind(queue, room_key(checked(room)), discard=True)

    async def say(self, room: str, text: str, id: str) -> None:
        """Says something in a room. `id`: the page's own number of it, so that pages leave out what comes twice."""
        headers = {"from": self.person.encode(), "id": id.encode()}
        await self._broker.publish(room_key(checked(room)), text.encode(), headers=headers, mandatory=True)

    async def notify(self, room: str, text: str, id: str, seconds: object) -> None:
        """Says something in a room that is over after some seconds: then nobody gets it any more. Raises BadTime."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1 <= seconds <= NOTICE_S_MAX:
            raise BadTime(f"a notice is valid for 1 to {NOTICE_S_MAX} seconds, not {str(seconds)[:40]}")
        headers = {"from": self.person.encode(), "id": id.encode()}
        key = room_key(checked(room))
        await self._broker.publish(key, text.encode(), headers=headers, mandatory=True, ttl=seconds)

    async def tell(self, person: str, text: str, id: str) -> None:
        """Says something to one person. Raises shoal.Unroutable if there is no such person."""
        headers = {"from": self.person.encode(), "id": id.encode(), "to": checked(person).encode()}
        await self._broker.publish(private_key(person), text.encode(), headers=headers, mandatory=True)

    async def unread(self) -> dict[str, int]:
        """Returns how many messages of each joined room the person has not read."""
        mine = await self._broker.describe(self._mine, bindings=True)
        prefix = room_key("")
        return {one.key.removeprefix(prefix): one.messages for one in mine.bindings if one.key.startswith(prefix)}

    async def read(self, room: str) -> None:
        """Counts all messages of a room as read: leaves the room and joins it again, in one record of the slice."""
        async with self._broker.transaction() as change:
            change.unbind(self._mine, room_key(checked(room)), discard=True)
            change.bind(self._mine, room_key(room))

    async def people(self, room: str) -> AsyncIterator[list[str]]:
        """Yields the people in a room, anew with each change: those with a page that is connected now."""
        online: dict[str, bool] = {}
        async with self._broker.watch_members(room_key(checked(room))) as watch:
            async for event in watch:
                match event:
                    case shoal.Members():
                        online = dict(event.online)
                    case shoal.Joined():
                        online[event.queue] = event.online
                    case shoal.Left():
                        online.pop(event.queue, None)
                    case shoal.Online() | shoal.Offline():
                        online[event.queue] = isinstance(event, shoal.Online)
                    case shoal.MemberCount():
                        yield [f"{event.online} pages"]
                        continue
                yield sorted({queue.split("-")[1] for queue, on in online.items() if on and queue.startswith("tab-")})
