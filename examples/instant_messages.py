"""Instant messages: from person to person, kept on disk while the other one is away.

Each person has one queue. `send` publishes to its direct key, so nothing has to be bound.
"""

from __future__ import annotations

import asyncio
import sys

import shoal


async def say(broker: shoal.Broker, to: str, sender: str, text: str) -> None:
    """Sends a message; it is on disk when this returns. Raises shoal.Unroutable if there is no such person."""
    receipt = await broker.send(f"im-{to}", text.encode(), headers={"from": sender.encode()})
    print(f"{sender} -> {to}: {text} ({'read at once' if receipt.consumed else 'waits'})")


async def read(broker: shoal.Broker, person: str, messages: int) -> None:
    """Prints so many messages for a person, in the order in which they were sent, and marks them as read."""
    async with broker.consume(f"im-{person}") as inbox:
        async for message in inbox:
            print(f"{person} reads from {message.headers['from'].decode()}: {message.body.decode()}")
            await message.ack()
            messages -= 1
            if not messages:
                break
        await inbox.flush()  # They do not come again, whatever happens now.


async def main(at: str) -> None:
    async with shoal.connect(at) as broker:
        await broker.declare(["im-anna", "im-ben"])
        await say(broker, "ben", "anna", "are you there?")
        await say(broker, "ben", "anna", "call me")
        waiting = await broker.describe("im-ben")
        print(f"ben has {waiting.messages} unread messages")
        await read(broker, "ben", 2)
        await say(broker, "anna", "ben", "here I am")
        await read(broker, "anna", 1)
        try:
            await say(broker, "nobody", "anna", "hello?")
        except shoal.Unroutable as error:
            print(error)
        await broker.drop(["im-anna", "im-ben"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7400"))
