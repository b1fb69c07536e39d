"""Friendship requests: a request must reach a person or fail, and the answer comes back by the same way.

`send` is mandatory: where there is no such person, it raises shoal.Unroutable and nothing is kept. Two friends then
share a key of their own, to which both are bound.
"""

from __future__ import annotations

import asyncio
import sys

import shoal


async def ask(broker: shoal.Broker, asker: str, friend: str) -> bool:
    """Asks a person to become a friend. Returns False if there is no such person."""
    try:
        await broker.send(f"person-{friend}", b"be my friend?", headers={"kind": b"request", "from": asker.encode()})
    except shoal.Unroutable:
        print(f"{asker} asks {friend}: there is no such person")
        return False
    print(f"{asker} asks {friend}")
    return True


async def answer_all(broker: shoal.Broker, person: str, requests: int) -> None:
    """Says yes to so many requests, and tells the askers."""
    async with broker.consume(f"person-{person}") as inbox:
        async for message in inbox:
            asker = message.headers["from"].decode()
            friends = "friends-" + "-".join(sorted((person, asker)))
            await broker.bind(f"person-{person}", friends)
            await broker.bind(f"person-{asker}", friends)
            await broker.publish(friends, f"{person} says yes".encode(), mandatory=True)
            await message.ack()  # Only now: had we died before, the request would come again.
            requests -= 1
            if not requests:
                break


async def main(at: str) -> None:
    async with shoal.connect(at) as broker:
        people = ["person-anna", "person-ben", "person-cleo"]
        await broker.declare(people)
        await broker.purge(people)  # What an earlier run left, if it was interrupted.
        for asker in ("anna", "cleo"):
            await ask(broker, asker, "ben")
        await ask(broker, "anna", "bert")
        await answer_all(broker, "ben", 2)
        for asker in ("anna", "cleo"):
            async with broker.consume(f"person-{asker}") as inbox:
                message = await anext(aiter(inbox))
                print(f"{asker} hears on {message.key}: {message.body.decode()}")
                await message.ack()
        await broker.drop(people)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7400"))
