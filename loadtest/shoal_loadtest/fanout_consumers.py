"""The consumers of bench `fanout`, in a process of their own: its parent publishes.

    python -m shoal_loadtest.fanout_consumers ADDRESS CHUNK_MESSAGES

attaches all queues, prints {"ready": true}, then {"messages": the number every consumer has, "at_s": when, "repeats":
n} after every chunk, until its standard input ends. If anything was missing, it ends with exit code 1 and a sentence on
stderr.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

import uvloop

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.consuming import ConsumingSession
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.limits import FANOUT_QUEUES, FANOUT_SESSIONS
from shoal_loadtest.population import queue_name
from shoal_runtime.loops import Loop


class Progress:
    """Reports how many messages every consumer has. There is one key, so every queue gets the same number."""

    def __init__(self, step_messages: int) -> None:
        self.consumers: list[tuple[ConsumingSession, int]] = []
        """Each consumer, with its number of queues."""
        self._step = step_messages
        self._said = 0

    def delivered(self, _: wire.Delivery) -> None:
        messages = min(consumer.deliveries // queues for consumer, queues in self.consumers)
        if messages // self._step > self._said // self._step:
            self.say(messages)

    def say(self, messages: int) -> None:
        self._said = messages
        repeats = sum(consumer.repeats for consumer, _ in self.consumers)
        say_line({"messages": messages, "at_s": time.perf_counter(), "repeats": repeats})


def say_line(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def consume(address: str, step_messages: int) -> None:
    """Consumes until standard input ends. Raises BenchFailed."""
    progress = Progress(step_messages)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with AsyncExitStack() as stack:
        for number in range(FANOUT_SESSIONS):
            queues = [queue_name(queue) for queue in range(number, FANOUT_QUEUES, FANOUT_SESSIONS)]
            consumer = await stack.enter_async_context(ConsumingSession(address, queues, progress.delivered))
            progress.consumers.append((consumer, len(queues)))
        say_line({"ready": True})
        await ended
        for consumer, _ in progress.consumers:
            if consumer.failure is not None:
                raise BenchFailed(str(consumer.failure))


def main() -> int:
    address, step_messages = sys.argv[1], int(sys.argv[2])
    try:
        uvloop.run(consume(address, step_messages), loop_factory=Loop)
    except BenchFailed as error:
        sys.stderr.write(f"consumers: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
