"""Presence: which members of a group are there, told as it changes: first the state, then every change once.

A member is a queue that is bound to the group's key, and is online while a session has it attached. Nothing is sent for
members that are not watched, and nothing is polled.

A watch tells only those that look now. So each person also leaves a farewell: a message that the slice keeps, and
publishes once nothing consumes the person's queue any more, however it ended. Queue `board` hears of it, now or later.
"""

from __future__ import annotations

import asyncio
import sys

import shoal

PEOPLE = ["anna", "ben", "cleo"]


async def come_and_go(at: str, person: str, until: asyncio.Event) -> None:
    """Is there until told to go, on a connection of its own, as an application of another person would be."""
    async with shoal.connect(at) as broker, broker.consume(f"here-{person}"):
        await broker.farewell(f"here-{person}", "news-7", f"{person} went offline".encode())
        await until.wait()


async def main(at: str) -> None:
    async with shoal.connect(at) as broker:
        await broker.declare(["board", *(f"here-{person}" for person in PEOPLE)])
        await broker.bind("board", "news-7")
        for person in PEOPLE[:2]:
            await broker.bind(f"here-{person}", "group-7")
        go = asyncio.Event()
        async with broker.watch_members("group-7") as watch, asyncio.TaskGroup() as people:
            async for event in watch:
                match event:
                    case shoal.Members():
                        print(f"members: {', '.join(sorted(event.online))}")
                        people.create_task(come_and_go(at, "anna", go))
                    case shoal.Online():
                        print(f"{event.queue} is there")
                        await broker.bind("here-cleo", "group-7")
                    case shoal.Joined():
                        print(f"{event.queue} joined")
                        go.set()
                    case shoal.Offline():
                        print(f"{event.queue} is gone")
                        await broker.unbind("here-cleo", "group-7")
                    case shoal.Left():
                        print(f"{event.queue} left")
                        break
        async with broker.consume("board") as board:
            message = await board.get(timeout=30)
            print(f"board: {message.body.decode()}")
            await message.ack()
        await broker.drop(["board", *(f"here-{person}" for person in PEOPLE)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7400"))
