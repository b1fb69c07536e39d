"""Group notices: one message to every member of a group, stored once, however many they are.

Members that are there get it at once, in one delivery for all queues behind a connection. For the others it waits, and
costs nothing until they come.
"""

from __future__ import annotations

import asyncio
import sys

import shoal

MEMBERS = 2_000
ONLINE = 500


async def main(at: str) -> None:
    async with shoal.connect(at) as broker:
        members = [f"resident-{number}" for number in range(MEMBERS)]
        await broker.declare(members)
        await asyncio.gather(*(broker.bind(member, "group-42") for member in members))

        async with broker.consume(members[:ONLINE]) as inbox:
            receipt = await broker.publish("group-42", b"the lights go out at ten")
            print(f"a notice for {receipt.queues} members; {receipt.consumed} of them are there")
            reached: set[str] = set()
            async for delivery in inbox.deliveries():
                reached.update(str(queue) for queue in delivery.queues)
                await delivery.ack()
                if len(reached) == ONLINE:
                    break
            await inbox.flush()
        print(f"{len(reached)} were reached at once")

        late = members[ONLINE]
        print(f"{late} has {(await broker.describe(late)).messages} unread")
        async with broker.consume(late) as inbox:
            message = await anext(aiter(inbox))
            print(f"{late} reads: {message.body.decode()}")
            await message.ack()
        await broker.drop(members)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7400"))
