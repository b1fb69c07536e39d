"""A real node killed with SIGKILL under a mix of verbs: nacks, ack timeouts, dead letters, delays, drops, transactions.

What the node acknowledged is compared with what consumers got: each message is acked, or has one copy at the
dead-letter key; a delayed one comes once, never early; a transaction is done whole or not at all; a dropped queue stays
away. Live publishes leave nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import Conflict, NoSuchQueue, from_wire
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk

from .core_driver import bind, configure, declare, drop_if, publish
from .dead_letters_driver import declare_with
from .node_process import NodeProcess
from .raw_session import RawSession
from .recovery_steps import KEYS, MISSING, WAIT_S, History, Producer, checked, load

ROUNDS = 6
MOST = 2
TIMEOUT_MS = 300
DELAY_MS_MAX = 1_200
HISTORY = 5
QUEUES = "workers", "late", "one", "other", "graveyard"
WORK, LATE, ONE, OTHER, DEAD = range(1, 6)
"""Their handles."""


class Books(History):
    """What answers said. `queues`: the temporary queues that must exist; False: dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, bool] = {}
        self.asked: Counter[str] = Counter()
        self.published: dict[str, set[bytes]] = {key: set() for key in ("work", "later", "{t}one", "kept")}

    def take(self, change: wire.Change, outcome: wire.Outcome) -> None:
        for step, answer in zip(change.steps, outcome.steps, strict=True):
            if step.HasField("publishes"):
                assert not answer.refusals
                for key, chunk in zip(step.publishes.keys, step.publishes.chunks, strict=True):
                    self.published.get(key.decode(), set()).update(parse_chunk(chunk).bodies)
            elif step.HasField("declares"):
                assert not answer.refusals
                self.queues |= {name.decode(): True for name in step.declares.queues if name.startswith(b"temporary")}
            elif step.HasField("drops"):
                self._dropped(step.drops, answer)

    def _dropped(self, drops: wire.Drops, answer: wire.StepOutcome) -> None:
        refused = {refusal.request: from_wire(refusal.error) for refusal in answer.refusals}
        for number, name in enumerate(drops.queues):
            error, exists = refused.get(number), self.queues.get(name.decode(), False)
            if error is None or not exists:
                assert (error is None) == exists, f"a drop of {name!r}, which is there: {exists}, is answered {error}"
                assert error is None or isinstance(error, NoSuchQueue)
                self.queues[name.decode()] = False
            else:
                assert isinstance(error, Conflict) and drops.if_empty, error
            self.asked["refused" if error else "dropped"] += 1


class Mixed(Producer):
    """Asks for everything, numbered; resends what was not answered."""

    def first_change(self) -> wire.Change:
        options = QueueOptions(ack_timeout_ms=TIMEOUT_MS, max_deliveries=MOST, dead_letter=b"dead")
        binds = [bind("workers", "work"), bind("late", "later"), bind("one", "{t}one"), bind("other", "{t}other")]
        steps = [declare_with("workers", options), declare(*QUEUES[1:]), *binds, bind("graveyard", "dead")]
        return wire.Change(steps=[*steps, configure("kept", KeyOptions(HISTORY))])

    def next_change(self) -> wire.Change:
        random, number = self.random, self.number
        self.number += 1
        body = b"%d" % number
        kind = random.choice(("work", "work", "later", "transaction", "kept", "temporary", "temporary", "drop"))
        if kind == "work":
            return wire.Change(steps=[publish("work", body, body + b"+")])
        if kind == "later":
            not_before_ms = int(time.time() * 1000) + random.randint(-100, DELAY_MS_MAX)
            return wire.Change(steps=[publish("later", b"%s/%d" % (body, not_before_ms), not_before_ms=not_before_ms)])
        if kind == "transaction":
            steps = [publish("{t}one", body), publish("{t}other", body)]
            doomed = [bind(MISSING, random.choice(KEYS))] if random.random() < 0.4 else []
            return wire.Change(steps=[*steps, *doomed], atomic=True)
        if kind == "kept":
            return wire.Change(steps=[publish("kept", body)])
        if kind == "temporary":
            name = f"temporary-{random.randrange(20)}"
            filled = [publish(f"key of {name}", b"x")] if random.random() < 0.4 else []
            return wire.Change(steps=[declare(name), bind(name, f"key of {name}"), *filled])
        names = [f"temporary-{one}" for one in random.sample(range(20), 3)]
        return wire.Change(steps=[drop_if(*names, unused=random.random() < 0.5, empty=random.random() < 0.5)])


class Consumer:
    """`came`: by queue, offset -> body. `acked`: what an answer said is not owed, by queue and offset."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.came: dict[int, dict[int, bytes]] = {handle: {} for handle in (WORK, LATE, ONE, OTHER, DEAD)}
        self.sent: set[tuple[int, int]] = set()
        self.acked: set[tuple[int, int]] = set()
        self.acked_before: set[tuple[int, int]] = set()
        """By earlier sessions. In one session, a message may be on its way again while its ack is."""
        self.copies: dict[int, bytes] = {}
        """Offset at the dead-letter key -> the offset of the message it is a copy of."""
        self.kinds: Counter[str] = Counter()

    async def run(self, node: NodeProcess, idle_s: float = WAIT_S) -> None:
        """Until nothing came for so long, or the node is gone."""
        async with node.stub() as stub:
            session = await RawSession.open(stub)
            self.acked_before = set(self.acked)
            while (await session.attach([name.encode() for name in QUEUES])).absent:
                await session.detach(*range(1, 1 + len(QUEUES)))
            under_way: dict[int, list[tuple[int, int]]] = {}
            while True:
                try:
                    await session.read_until(lambda: bool(session.deliveries or session.answers), idle_s)
                except TimeoutError:
                    return
                for sequence, answer in session.answers.items():
                    assert not answer.HasField("error"), answer
                    if not answer.unacked.places:
                        self.acked.update(under_way.pop(sequence, ()))
                session.answers.clear()
                deliveries, session.deliveries = session.deliveries, []
                for delivery in deliveries:
                    (handle,) = delivery.handles
                    self._came(handle, delivery)
                    for offset in range(delivery.low, delivery.to):
                        await self._settle(session, under_way, handle, delivery.key, offset)
                if self.random.random() < 0.2:
                    chunk = Chunk(bodies=[b"live"])
                    found = await stub.Publish(wire.PublishRequest(key=b"work", chunk=chunk, live=True))
                    assert not found.offset

    def _came(self, handle: int, delivery: wire.Delivery) -> None:
        chunk = parse_chunk(delivery.chunk)
        if delivery.live:
            assert (handle, list(chunk.bodies)) == (WORK, [b"live"])
            return
        for offset in range(delivery.low, delivery.to):
            body = chunk.bodies[offset - delivery.first]
            assert (handle, offset) not in self.acked_before, (
                f"{QUEUES[handle - 1]} {offset} was acked, and comes again"
            )
            assert self.came[handle].setdefault(offset, body) == body
            if handle == WORK:
                assert delivery.redelivered < MOST
            elif handle == LATE:
                assert int(body.split(b"/")[1]) <= delivery.time_ms <= time.time() * 1000 + 1, "it comes early"
            elif handle == DEAD:
                fields = chunk.headers[offset - delivery.first].fields
                assert (fields["shoal-queue"], fields["shoal-key"]) == (b"workers", b"work")
                assert fields["shoal-deliveries"] == b"%d" % MOST
                self.copies[offset] = fields["shoal-offset"]

    async def _settle(
        self, session: RawSession, under_way: dict[int, list[tuple[int, int]]], handle: int, key: bytes, offset: int
    ) -> None:
        if not offset:
            return  # Live.
        bad = handle == WORK and (offset % 4 == 0 or self.random.random() < 0.2)
        named = wire.Ack(key=key, low=offset, to=offset + 1, handles=[handle])
        kind = self.random.choice(("nack", "nack with a delay", "nothing")) if bad else "ack"
        self.kinds[kind] += 1
        if kind == "ack":
            self.sent.add((handle, offset))
            sequence = await session.write(wire.SessionRequest(acks=wire.Acks(acks=[named], tell_unacked=True)))
            under_way[sequence] = [(handle, offset)]
        elif kind != "nothing":
            delay_ms = 50 if kind == "nack with a delay" else 0
            await session.write(wire.SessionRequest(nacks=wire.Nacks(messages=[named], delay_ms=delay_ms)))


def compare(books: Books, consumer: Consumer) -> None:
    bodies = {handle: list(found.values()) for handle, found in consumer.came.items()}
    assert set(bodies[WORK]) | set(bodies[DEAD]) == books.published["work"], "lost, or from nowhere"
    assert sorted(consumer.copies.values()) == sorted(set(consumer.copies.values())), "a message has two copies"
    dead = {int(offset) for offset in consumer.copies.values()}
    assert {offset for handle, offset in consumer.sent if handle == WORK} | dead == set(consumer.came[WORK])
    assert all(consumer.came[DEAD][copy] == consumer.came[WORK][int(of)] for copy, of in consumer.copies.items())
    assert len(bodies[LATE]) == len(set(bodies[LATE])) and set(bodies[LATE]) == books.published["later"]
    assert set(bodies[ONE]) == set(bodies[OTHER]) == books.published["{t}one"], "half a transaction"


async def queues_of(node: NodeProcess, books: Books) -> dict[str, bool]:
    async with node.stub() as stub:
        describe = wire.Describe(queues=[name.encode() for name in books.queues])
        found = (await stub.Describe(wire.DescribeRequest(describe=describe))).description.queues
        return dict(zip(books.queues, (one.exists for one in found), strict=True))


async def kept(node: NodeProcess) -> set[bytes]:
    """What a new queue sees of the history."""
    async with node.stub() as stub:
        await stub.Declare(wire.DeclareRequest(queue=b"newcomer"))
        binding = wire.BindRequest(queue=b"newcomer", keys=[b"kept"], start=wire.START_LAST, start_value=HISTORY)
        await stub.Bind(binding)
        found = await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"newcomer", messages_max=100, peek=True)))
        return {
            parse_chunk(one.chunk).bodies[offset - one.first]
            for one in found.deliveries
            for offset in range(one.low, one.to)
        }


@pytest.mark.slow
async def test_a_node_killed_under_a_mix_of_verbs_does_each_once(tmp_path: Path) -> None:
    random = Random(8)
    books, consumer = Books(), Consumer(random)
    producer = Mixed(random, books)
    arguments = ("--delta-rows", "300")
    for _ in range(ROUNDS):
        node = await NodeProcess.start(tmp_path, *arguments)
        try:
            never = asyncio.Event()
            await load(node, random.uniform(0.3, 1.0), producer.run(node, never), consumer.run(node))
        finally:
            await node.kill()
        report = await checked(tmp_path)
        assert report.sound, "\n".join(map(str, report.problems))
    node = await NodeProcess.start(tmp_path, *arguments)
    try:
        stop = asyncio.Event()
        stop.set()
        async with asyncio.timeout(WAIT_S):
            await producer.run(node, stop)
            await consumer.run(node, idle_s=2 * (DELAY_MS_MAX + TIMEOUT_MS) / 1000)
        assert await queues_of(node, books) == books.queues
        last = sorted(books.published["kept"], key=int)[-HISTORY:]
        assert await kept(node) == set(last)
        assert await node.stop() == 0
    finally:
        await node.kill()
    compare(books, consumer)
    assert consumer.copies and consumer.kinds.keys() == {"ack", "nack", "nack with a delay", "nothing"}
    assert producer.repeated and producer.refused and {"dropped", "refused"} <= books.asked.keys(), "nothing was tested"
