"""A call from another event loop than its connection's is refused at once: it would wait for ever, without an error."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import shoal
from shoal.testing import FakeCluster
from tests.client.calls import take

Calls = dict[str, Callable[[], Any]]
WAIT_S = 10
NOT_CALLS = {"map_version", "state", "slices", "connection"}
"""Public names of a broker that read what is known, and wait for nothing."""


async def elsewhere(call: Callable[[], Any]) -> None:
    """Makes a call in an event loop of another thread. Raises what it raises; TimeoutError if it goes on."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[BaseException | None] = loop.create_future()

    async def made() -> None:
        found = call()
        if isinstance(found, Awaitable):
            await found

    def run() -> None:
        error: BaseException | None = None
        try:
            asyncio.run(made())
        except Exception as raised:
            error = raised
        loop.call_soon_threadsafe(outcome.set_result, error)

    threading.Thread(target=run, name="other", daemon=True).start()
    async with asyncio.timeout(WAIT_S):
        error = await outcome
    if error is not None:
        raise error


@pytest.fixture
async def broker() -> AsyncIterator[shoal.Broker]:
    async with FakeCluster().connect() as broker:
        await broker.declare(["q", "other"])
        await broker.bind("q", "k")
        await broker.publish_many("k", [b"x", b"y"])
        yield broker


async def entered(context: Any) -> None:
    async with context:
        pass


async def transaction(broker: shoal.Broker) -> None:
    async with broker.transaction() as made:
        made.publish("k", b"x")


def calls_of(broker: shoal.Broker, pulled: list[shoal.Message]) -> Calls:
    return {
        "declare": lambda: broker.declare("new"),
        "configure": lambda: broker.configure("k", shoal.KeyOptions()),
        "describe": lambda: broker.describe("q"),
        "describe_key": lambda: broker.describe_key("k"),
        "farewell": lambda: broker.farewell("q"),
        "drop": lambda: broker.drop("q"),
        "purge": lambda: broker.purge("q"),
        "bind": lambda: broker.bind("q", "k2"),
        "unbind": lambda: broker.unbind("q", "k"),
        "publish": lambda: broker.publish("k", b"x"),
        "publish_soon": lambda: broker.publish_soon("k", b"x"),
        "publish_nowait": lambda: broker.publish_nowait("k", b"x"),
        "publish_many": lambda: broker.publish_many("k", [b"x"]),
        "send": lambda: broker.send("q", b"x"),
        "pull": lambda: broker.pull("q", 1),
        "peek": lambda: broker.peek("q", 1),
        "ack": lambda: broker.ack(*pulled),
        "flush": broker.flush,
        "consume": lambda: entered(broker.consume("q")),
        "transaction": lambda: transaction(broker),
        "watch_members": lambda: anext(broker.watch_members("k")),
        "watch_counts": lambda: entered(broker.watch_counts("")),
        "__aexit__": lambda: broker.__aexit__(None, None, None),
    }


def calls_of_inbox(inbox: shoal.Inbox, message: shoal.Message) -> Calls:
    return {
        "__aenter__": inbox.__aenter__,
        "__anext__": inbox.__anext__,
        "__aexit__": lambda: inbox.__aexit__(None, None, None),
        "get": lambda: inbox.get(1),
        "deliveries": lambda: anext(inbox.deliveries()),
        "attach": lambda: inbox.attach("other"),
        "detach": lambda: inbox.detach("q"),
        "stop": lambda: inbox.stop("q"),
        "ack": lambda: inbox.ack(message),
        "nack": lambda: inbox.nack(message),
        "flush": inbox.flush,
        "drain": inbox.drain,
        "close": inbox.close,
    }


def public(kind: type) -> set[str]:
    """The names of a class's calls, without those that only read."""
    return {
        name
        for name, found in inspect.getmembers(kind)
        if inspect.isfunction(found) and not name.startswith("_") and name not in NOT_CALLS
    }


async def all_refused(calls: Calls) -> None:
    for name, call in calls.items():
        with pytest.raises(shoal.BadCall, match=r"belongs to the event loop of thread MainThread.* in thread other"):
            await elsewhere(call)
            pytest.fail(f"{name} was not refused")


async def test_each_call_of_a_connection(broker: shoal.Broker) -> None:
    pulled = await broker.pull("q", 1)
    calls = calls_of(broker, pulled)
    assert public(shoal.Broker) - set(calls) == set()
    await all_refused(calls)
    await broker.ack(*pulled)
    await broker.flush()
    assert (await broker.describe("q")).messages == 1, "nothing of those calls was done"
    await broker.publish("k", b"z")


async def test_each_call_of_an_inbox(broker: shoal.Broker) -> None:
    async with broker.consume("q") as inbox:
        (message,) = await take(inbox, 1)
        calls = calls_of_inbox(inbox, message)
        assert public(shoal.Inbox) - set(calls) == set()
        await all_refused(calls)
        (other,) = await take(inbox, 1)
        inbox.ack(message, other)
        await inbox.flush()
    assert (await broker.describe("q")).messages == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_block_of_process_does_not_begin(broker: shoal.Broker, fails: bool) -> None:
    """Its end could not ack or give back the message: the work would be done again, or not given again."""
    began = []

    async def work(done: shoal.Message | shoal.Delivery) -> None:
        async with done.process():
            began.append(done)
            if fails:
                raise ValueError

    (pulled,) = await broker.pull("q", 1)
    async with broker.consume("q") as inbox:
        (message,) = await take(inbox, 1)
        await broker.publish("k", b"z")
        delivery = await anext(inbox.deliveries())
        await all_refused({"pulled": lambda: work(pulled), "one": lambda: work(message), "all": lambda: work(delivery)})
        assert not began
        for one in () if fails else (pulled, message, delivery):
            await work(one)
        await inbox.flush()
    await broker.flush()
    assert (await broker.describe("q")).messages == (3 if fails else 0)


async def test_calls_of_what_shares_the_connection(broker: shoal.Broker) -> None:
    admin, leases, parts = shoal.Admin(broker), shoal.Leases(broker), shoal.Parts(broker)
    (message,) = await broker.pull("q", 1)
    watch = broker.watch_members("k")
    await all_refused(
        {
            "figures": lambda: admin.figures("s01"),
            "queues": admin.queues,
            "keys": admin.keys,
            "backlogs": lambda: leases.backlogs(["q"]),
            "lease": lambda: leases.pull("q", 1, lease_ms=1000),
            "lease ack": lambda: leases.ack("q", [shoal.Done("k", 1, 2)]),
            "parts": lambda: parts.look("s01", [b"q"], deadline_s=1),
            "message": message.ack,
            "nack": message.nack,
            "process": lambda: entered(message.process()),
            "watch": watch.__aenter__,
            "close": watch.close,
        }
    )


async def test_a_call_from_a_thread_without_an_event_loop(broker: shoal.Broker) -> None:
    (message,) = await broker.pull("q", 1)
    for call in (message.ack_nowait, lambda: broker.publish_nowait("k", b"x")):
        with pytest.raises(shoal.BadCall, match=r"comes from outside of an event loop.*run_coroutine_threadsafe"):
            await asyncio.to_thread(call)


def test_a_connection_whose_event_loop_has_ended() -> None:
    """A program that makes `asyncio.run` twice, and takes the connection of the first."""

    async def left_open() -> shoal.Broker:
        return await FakeCluster().connect().__aenter__()

    async def publish(broker: shoal.Broker) -> None:
        await broker.publish("k", b"x")

    broker = asyncio.run(left_open())
    with pytest.raises(shoal.BadCall, match=r"which has ended.*connect again"):
        asyncio.run(publish(broker))


def test_a_connection_that_was_closed_says_so() -> None:
    async def closed() -> shoal.Broker:
        async with FakeCluster().connect() as broker:
            return broker

    async def publish(broker: shoal.Broker) -> None:
        await broker.publish("k", b"x")

    broker = asyncio.run(closed())
    with pytest.raises(shoal.Unavailable, match=r"the connection is closed"):
        asyncio.run(publish(broker))
