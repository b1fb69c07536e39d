"""A real node killed with SIGKILL at random moments under load, also during checkpoints; its history is compared.

One producer's frames are resent until each is answered, so that the answers say what must be there. Some are
transactions, and some of these are refused: nothing of them may be found. A consumer acks some of what it gets, by
acks or by transactions; what it was told is acked must never come again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.wire import common_pb2 as wire_common
from shoal_contract.wire import slice_pb2 as wire

from .core_driver import acks
from .node_process import NodeProcess
from .recovery_steps import QUEUES, WAIT_S, History, Producer, Slot, checked, load

ROUNDS = 7


async def consume(node: NodeProcess, history: History, random: Random, share: float) -> None:
    """Until cancelled or the node is gone: acks a share of what comes."""
    acked: dict[int, list[tuple[Slot, int]]] = {}
    async with node.stub() as stub:
        call = stub.Session()
        await call.write(wire.SessionRequest(open=wire.Open(producer=random.randbytes(16))))
        attach = wire.Attach(queues=[queue.encode() for queue in QUEUES], handles=range(len(QUEUES)))
        await call.write(wire.SessionRequest(sequence=1, attach=attach))
        sequence = 1
        while True:
            response = await call.read()
            assert isinstance(response, wire.SessionResponse), "the node ended the session"
            for delivery in response.deliveries:
                for handle in delivery.handles:
                    slot = (QUEUES[handle], delivery.key.decode())
                    offsets = range(delivery.low, delivery.to)
                    assert not history.acked[slot].intersection(offsets), f"{slot} {offsets} was acked"
                    if random.random() < share:
                        sequence += 1
                        acked[sequence] = [(slot, offset) for offset in offsets]
                        history.ack_sent[slot].update(offsets)
                        await call.write(_acking(sequence, slot, handle, delivery, random.random() < 0.4))
            for answer in response.answers:
                if answer.HasField("error"):  # Discarded meanwhile.
                    assert answer.error.code == wire_common.ERROR_CODE_CONFLICT, answer.error
                    del acked[answer.sequence]
                for slot, offset in acked.pop(answer.sequence, ()):
                    history.acked[slot].add(offset)


def _acking(
    sequence: int, slot: Slot, handle: int, delivery: wire.Delivery, in_transaction: bool
) -> wire.SessionRequest:
    if in_transaction:
        named = acks((*slot, delivery.low, delivery.to))
        change = wire.Change(steps=[named], atomic=True).SerializeToString()
        return wire.SessionRequest(sequence=sequence, settled=sequence - 1, change=change)
    ack = wire.Ack(key=delivery.key, low=delivery.low, to=delivery.to, handles=[handle])
    return wire.SessionRequest(sequence=sequence, acks=wire.Acks(acks=[ack]))


async def drained(node: NodeProcess, history: History) -> dict[Slot, dict[int, bytes]]:
    """What peeks show that each queue still has, and that describe counts the same."""
    found: dict[Slot, dict[int, bytes]] = defaultdict(dict)
    async with node.stub() as stub:
        for queue in QUEUES:
            peek = wire.Pull(queue=queue.encode(), messages_max=10_000, peek=True)
            pulled = await stub.Pull(wire.PullRequest(pull=peek))
            described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[queue.encode()])))
            count = 0
            for delivery in pulled.deliveries:
                bodies = parse_chunk(delivery.chunk).bodies
                for offset in range(delivery.low, delivery.to):
                    found[queue, delivery.key.decode()][offset] = bodies[offset - delivery.first]
                    count += 1
            assert count == described.description.queues[0].messages < 10_000
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_node_killed_at_random_moments_loses_and_invents_nothing(seed: int, tmp_path: Path) -> None:
    print("seed", seed)  # noqa: T201
    random = Random(seed)
    history = History()
    producer = Producer(random, history)
    arguments = ("--delta-rows", "300")
    replayed = checkpoint_lsn = 0
    for _ in range(ROUNDS):
        node = await NodeProcess.start(tmp_path, *arguments)
        try:
            work = producer.run(node, asyncio.Event()), consume(node, history, random, share=0.8)
            await load(node, random.uniform(0.1, 0.7), *work)
        finally:
            await node.kill()
        report = await checked(tmp_path)
        assert report.sound, "\n".join(map(str, report.problems))
        replayed += report.replayed
        checkpoint_lsn = report.checkpoint_lsn
    node = await NodeProcess.start(tmp_path, *arguments)
    try:
        stop = asyncio.Event()
        stop.set()
        async with asyncio.timeout(WAIT_S):
            await producer.run(node, stop)
        found = await drained(node, history)
        assert await node.stop() == 0
    finally:
        await node.kill()
    for slot in {*history.windows, *found}:
        owed = history.owed(slot)
        assert set(found[slot]) <= owed - history.acked[slot], f"{slot}: acked, discarded or never owed"
        assert owed - history.ack_sent[slot] <= set(found[slot]), f"{slot}: lost"
        assert found[slot].items() <= history.messages[slot[1]].items()
    report = await checked(tmp_path)
    assert report.sound and report.replayed == 0
    assert producer.repeated and producer.refused and replayed and checkpoint_lsn, "nothing was tested"
