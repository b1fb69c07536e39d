"""The bounds of transactions, on the fake over gRPC, in memory, and on a real cluster (conftest)."""

from __future__ import annotations

import pytest

import shoal
from shoal import Broker
from tests.client.calls import fresh, tagged


async def test_the_bounds_of_a_transaction_are_named_before_anything_is_sent(broker: Broker) -> None:
    tag = fresh("room")
    queue, key = tagged(tag, "queue"), tagged(tag, "key")
    await broker.declare(queue)
    first = await broker.bind(queue, key)
    async with broker.transaction() as tx:
        fits = [tx.publish(tagged(tag, "empty"), b"x") for _ in range(999)] + [tx.publish(key, b"y")]
    assert fits[-1].value.offset == first
    with pytest.raises(shoal.TooLarge, match="keys and queues of a transaction: 1001; the limit is 1000"):
        async with broker.transaction() as tx:
            for number in range(1001):
                tx.publish(tagged(tag, f"empty-{number}"), b"x")
    with pytest.raises(shoal.TooLarge, match="bytes of a transaction"):
        async with broker.transaction() as tx:
            for _ in range(3):
                tx.publish(key, bytes(1 << 20))
    with pytest.raises(shoal.TooLarge, match="keys and queues of a transaction: 1001"):
        async with broker.transaction() as tx:  # Acks count when the block ends.
            tx.bind(queue, [tagged(tag, f"bound-{number}") for number in range(999)])
            for offset in (1, 3):
                tx.ack_done(queue, [shoal.Done(key, offset, offset + 1)])
    async with broker.transaction() as tx:
        large = tx.publish(key, bytes(1 << 20))
        other = tx.publish(key, bytes((1 << 20) - 1000))
    assert (large.value.offset, other.value.offset) == (first + 1, first + 2)


async def test_a_step_that_is_too_much_is_refused_at_once_and_leaves_the_others(broker: Broker) -> None:
    tag = fresh("room")
    names = [tagged(tag, f"name-{number}") for number in range(1001)]
    async with broker.transaction() as tx:
        tx.declare(names[:990])
        queue = names[0]
        for too_many in (
            lambda: tx.declare(names[:11]),
            lambda: tx.configure(names[:11], shoal.KeyOptions(history_messages=1)),
            lambda: tx.bind(queue, names[:11]),
            lambda: tx.unbind(queue, names[:11]),
        ):
            with pytest.raises(shoal.TooLarge, match="keys and queues of a transaction: 1001; the limit is 1000"):
                too_many()
        tx.publish(names[0], bytes(1 << 20))
        with pytest.raises(shoal.TooLarge, match="bytes of a transaction"):
            tx.publish(names[0], bytes(1 << 20))
        bound = tx.bind(queue, names[-9:])
    assert len(bound.value) == 9
