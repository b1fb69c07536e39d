"""A process that holds a lease and does as it is told by lines on its standard input; and the test's side of it.

`sleep S`, `compute S`: blocks its event loop so long, then tells how long its lease lives. `left`: tells that at once.
`close`: closes the event loop, and lives on. `end`: ends without another word. It says "lost" when its lease is lost.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal_coordination.client import EtcdClient
from shoal_coordination.lease import Lease, grant_lease
from shoal_coordination.options import EtcdOptions

WAIT_S = 60


class Holder:
    """The test's side. `losses`: how often it said so."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lease = 0
        self.losses = 0

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    async def answer(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            while True:
                line = (await self.process.stdout.readline()).decode().strip()
                if line != "lost":
                    return line
                self.losses += 1

    async def ask(self, line: str) -> str:
        self.write(line)
        return await self.answer()


@asynccontextmanager
async def holding(options: EtcdOptions, ttl_s: int) -> AsyncIterator[Holder]:
    """A process that holds a lease of `ttl_s`; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, options.endpoints[0], str(ttl_s)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    holder = Holder(process)
    try:
        holder.lease = int(await holder.answer())
        yield holder
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _block(how: str, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    if how == "sleep":
        time.sleep(seconds)
    while time.monotonic() < until_s:
        sum(range(10_000))


async def _hold(endpoint: str, ttl_s: int) -> str:
    """Returns the last command: "close" or "end"."""
    client = EtcdClient(EtcdOptions((endpoint,)))
    lease: Lease = await grant_lease(client, ttl_s, lambda: _say("lost"))
    _say(lease.id)
    while True:
        line: str = await asyncio.to_thread(sys.stdin.readline)
        command, *more = line.split()
        if command in ("close", "end"):
            return command
        if more:
            _block(command, float(more[0]))
        _say(lease.remaining_s)


def _main() -> None:
    last = asyncio.run(_hold(sys.argv[1], int(sys.argv[2])))
    if last == "close":
        _say("closed")
        sys.stdin.readline()


if __name__ == "__main__":
    _main()
