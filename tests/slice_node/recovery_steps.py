"""A node that is killed while it works, and what it must know afterwards."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from pathlib import Path
from random import Random

import grpc

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import Conflict
from shoal_contract.wire import common_pb2 as wire_common
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.storage.offline import CheckReport, check_path

from .core_driver import bind, declare, unbind
from .node_process import NodeProcess

QUEUES = [f"queue-{number}" for number in range(40)]
KEYS = [f"key-{number}" for number in range(30)]
MISSING = "queue-that-nobody-declares"
UNSETTLED = 8
UNDER_WAY_MAX = 8
WAIT_S = 60
Slot = tuple[str, str]
SessionCall = grpc.aio.StreamStreamCall[wire.SessionRequest, wire.SessionResponse]
CHUNKS_MAX = 3_000
"""Published in all, of 1 to 4 messages each: any backlog fits one peek of 10,000, however quick the machine."""


class History:
    """What answers said. `windows`: of a binding, [first, end), end 0: still bound."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.windows: dict[Slot, list[list[int]]] = defaultdict(list)
        self.ack_sent: dict[Slot, set[int]] = defaultdict(set)
        self.acked: dict[Slot, set[int]] = defaultdict(set)

    def take(self, change: wire.Change, outcome: wire.Outcome) -> None:
        for step, answer in zip(change.steps, outcome.steps, strict=True):
            assert not answer.refusals
            if step.HasField("publishes"):
                for key, chunk, first in zip(step.publishes.keys, step.publishes.chunks, answer.offsets, strict=True):
                    self._published(key.decode(), list(parse_chunk(chunk).bodies), first)
            elif step.HasField("binds"):
                queue = step.binds.queues[0].decode()
                for key, first in zip(step.binds.keys, answer.offsets, strict=True):
                    self._bound(self.windows[queue, key.decode()], first)
            elif step.HasField("unbinds"):
                queue = step.unbinds.queues[0].decode()
                for key, end in zip(step.unbinds.keys, answer.offsets, strict=True):
                    self._unbound(self.windows[queue, key.decode()], end, step.unbinds.discard)

    def _published(self, key: str, bodies: list[bytes], first: int) -> None:
        for offset, body in enumerate(bodies, first) if first else ():
            assert offset not in self.messages[key], "an offset never names two messages"
            self.messages[key][offset] = body

    def _bound(self, windows: list[list[int]], first: int) -> None:
        if windows and not windows[-1][1]:
            assert windows[-1][0] == first, "a second bind changes nothing"
        else:
            windows.append([first, 0])

    def _unbound(self, windows: list[list[int]], end: int, discard: bool) -> None:
        assert bool(end) == bool(windows and not windows[-1][1])
        if end:
            windows[-1][1] = end
        if discard:
            windows.clear()

    def owed(self, slot: Slot) -> set[int]:
        """Everything the queue ever had to get of the key and has not discarded."""
        offsets = self.messages[slot[1]]
        return {o for first, end in self.windows[slot] for o in offsets if first <= o and (not end or o < end)}


class Producer:
    """Random changes, numbered; resent in order after each loss until answered."""

    def __init__(self, random: Random, history: History) -> None:
        self.random = random
        self.history = history
        self.id = random.randbytes(16)
        self.changes: dict[int, wire.Change] = {}
        self.answers: dict[int, bytes] = {}
        self.last = self.answered = self.number = 0
        self.repeated = self.refused = 0

    def first_change(self) -> wire.Change:
        return wire.Change(steps=[declare(*QUEUES)])

    def next_change(self) -> wire.Change:
        random = self.random
        steps = [self._step(random) for _ in range(random.randint(1, 3))]
        atomic = random.random() < 0.4
        if atomic and random.random() < 0.4:
            steps.append(bind(MISSING, random.choice(KEYS)))
        return wire.Change(steps=steps, atomic=atomic)

    def _step(self, random: Random) -> wire.Step:
        queue, kind = random.choice(QUEUES), random.random()
        some = random.sample(KEYS, random.randint(1, 5))
        if kind < 0.3 or (kind >= 0.45 and self.number >= CHUNKS_MAX):
            return bind(queue, *some)
        if kind < 0.45:
            return unbind(queue, *some, discard=random.random() < 0.3)
        chunks = []
        for _ in some:
            self.number += 1
            chunks.append(encode_chunk([b"%d/%d" % (self.number, part) for part in range(random.randint(1, 4))]))
        return wire.Step(publishes=wire.Publishes(keys=[key.encode() for key in some], chunks=chunks))

    async def run(self, node: NodeProcess, until: asyncio.Event) -> None:
        """Resends what was not answered, and some that was; then goes on until `until` and all is answered."""
        async with node.stub() as stub:
            call = stub.Session()
            await call.write(wire.SessionRequest(open=wire.Open(producer=self.id)))
            resent = range(max(1, self.answered + 1 - UNSETTLED // 2), self.last + 1)
            for sequence in resent:
                await self._send(call, sequence)
            expected = resent.start
            while expected <= self.last or not until.is_set():
                while not until.is_set() and self.last - self.answered < UNDER_WAY_MAX:
                    self.last += 1
                    self.changes[self.last] = self.next_change() if self.last > 1 else self.first_change()
                    await self._send(call, self.last)
                response = await call.read()
                assert isinstance(response, wire.SessionResponse), "the node ended the session"
                for answer in response.answers:
                    assert answer.sequence == expected, "changes are answered in their order"
                    self._answered(answer)
                    expected += 1

    async def _send(self, call: SessionCall, n: int) -> None:
        settled = max(0, self.answered - UNSETTLED)
        data = self.changes[n].SerializeToString()
        await call.write(wire.SessionRequest(sequence=n, settled=settled, change=data))

    def _answered(self, answer: wire.Answer) -> None:
        sequence, refused = answer.sequence, answer.HasField("error")
        found = answer.error.SerializeToString() if refused else answer.outcome
        if sequence in self.answers:
            assert self.answers[sequence] == found, "a repeated frame gets its first answer"
            self.repeated += 1
            return
        self.answers[sequence] = found
        self.answered = sequence
        change = self.changes[sequence]
        doomed = change.atomic and any(MISSING.encode() in step.binds.queues for step in change.steps)
        assert refused == doomed, answer.error
        if refused:
            assert answer.error.code == wire_common.ERROR_CODE_NO_SUCH_QUEUE, answer.error
            self.refused += 1
            return
        self.history.take(self.changes[sequence], wire.Outcome.FromString(answer.outcome))


async def load(node: NodeProcess, seconds: float, *work: Coroutine[object, object, None]) -> None:
    """Kills the node in the middle of the work."""
    tasks = [asyncio.create_task(one) for one in work]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    await node.kill()
    assert not done, [task.result() for task in done]
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(found, grpc.aio.AioRpcError | asyncio.InvalidStateError) or "ended the session" in str(
            found
        ), found


async def checked(data: Path) -> CheckReport:
    """As soon as the killed node's checkpointer has let go of the folder."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await asyncio.to_thread(check_path, data)
            except Conflict:
                await asyncio.sleep(0.01)
