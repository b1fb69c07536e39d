"""Registration jobs: workers share a queue; what fails is tried again, and after three times goes to a dead-letter key.

A job whose block raises is given back, here to be tried again at once; a worker that dies gives back what it had. The
copy at the dead-letter key says in its headers why it is there, and how often it was tried.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import shoal

JOBS = ["anna@example.org", "ben@example.org", "not an address", "cleo@example.org"]
WORKERS = 2


def registered(address: str) -> str:
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    return address


async def work(at: str, done: asyncio.Queue[str]) -> None:
    """Does jobs until it is cancelled."""
    async with shoal.connect(at) as broker, broker.consume("registrations") as inbox:
        async for job in inbox:
            with suppress(ValueError):
                async with job.process(retry_after_s=0):
                    done.put_nowait(registered(job.body.decode()))


async def main(at: str) -> None:
    async with shoal.connect(at) as broker:
        await broker.declare("failed-registrations")
        await broker.bind("failed-registrations", "failed")
        await broker.declare(
            "registrations", shoal.QueueOptions(ack_timeout_ms=30_000, max_deliveries=3, dead_letter="failed")
        )
        for address in JOBS:
            await broker.send("registrations", address.encode())
        done: asyncio.Queue[str] = asyncio.Queue()
        workers = [asyncio.create_task(work(at, done)) for _ in range(WORKERS)]
        async with broker.consume("failed-registrations") as inbox:
            failed = await anext(aiter(inbox))
            tried, queue = (failed.headers[name].decode() for name in ("shoal-deliveries", "shoal-queue"))
            print(f"{failed.body.decode()!r} of {queue} was tried {tried} times")
            await failed.ack()
        all_of_them = [await done.get() for _ in range(len(JOBS) - 1)]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        print(f"registered: {', '.join(sorted(all_of_them))}")
        await broker.drop(["registrations", "failed-registrations"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7400"))
