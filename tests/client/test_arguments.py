"""A wrong argument harms its call only: it is named where it was given, and other users' calls pass (operator C1)."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shoal
from tests.client.fake_cluster import FakeCluster

DEADLINE_S = 10.0
"""A test machine may be busy; the other user's call takes milliseconds."""


LATER: dict[str, Any] = {"not_before": 1e9, "deadline_s": 1}


class User:
    """Calls every verb of one connection, with one argument replaced."""

    def __init__(self, broker: shoal.Broker, inbox: shoal.Inbox) -> None:
        leases, admin = shoal.Leases(broker), shoal.Admin(broker)
        self.verbs: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
            "declare": (broker.declare, {"queues": "q", "options": shoal.QueueOptions(), "deadline_s": 1}),
            "configure": (broker.configure, {"keys": "k", "options": shoal.KeyOptions(), "deadline_s": 1}),
            "farewell": (
                broker.farewell,
                {"queue": "q", "key": "k", "body": b"", "headers": None, "after_s": 0, "deadline_s": 1},
            ),
            "bind": (broker.bind, {"queue": "q", "keys": ["k"], "start": shoal.NOW, "deadline_s": 1}),
            "unbind": (broker.unbind, {"queue": "q", "keys": ["k"], "discard": False, "deadline_s": 1}),
            "publish": (
                broker.publish,
                {
                    "key": "k",
                    "body": b"",
                    "headers": {"a": b""},
                    "mandatory": False,
                    "not_before": None,
                    "deadline_s": 1,
                },
            ),
            "publish_soon": (broker.publish_soon, {"key": "k", "body": b"", "headers": None, "deadline_s": 1}),
            "publish_nowait": (broker.publish_nowait, {"key": "k", "body": b"", "headers": None, "deadline_s": 1}),
            "publish_many": (
                broker.publish_many,
                {
                    "key": "k",
                    "bodies": [b"a"],
                    "headers": [{"a": b""}],
                    "mandatory": False,
                    "not_before": None,
                    "deadline_s": 1,
                },
            ),
            "send": (broker.send, {"queue": "q", "body": b"", "headers": None, "deadline_s": 1}),
            "consume": (
                broker.consume,
                {"queues": ["q"], "window_messages": 0, "window_bytes": 0, "buffer_bytes": 9, "drop_repeats": True}
                | {"deadline_s": 1},
            ),
            "pull": (broker.pull, {"queue": "q", "messages": 1, "lease_ms": 1, "deadline_s": 1}),
            "peek": (broker.peek, {"queue": "q", "messages": 1, "deadline_s": 1}),
            "ack": (broker.ack, {"*": None}),
            "describe": (broker.describe, {"queue": "q", "bindings": True, "deadline_s": 1}),
            "describe_key": (broker.describe_key, {"key": "k", "deadline_s": 1}),
            "drop": (broker.drop, {"queue": "gone", "deadline_s": 1}),
            "purge": (broker.purge, {"queue": "q", "deadline_s": 1}),
            "flush": (broker.flush, {"deadline_s": 1}),
            "inbox.attach": (inbox.attach, {"*": "q", "deadline_s": 1}),
            "inbox.detach": (inbox.detach, {"*": "nothing-of-that-name", "deadline_s": 1}),
            "inbox.flush": (inbox.flush, {"deadline_s": 1}),
            "inbox.ack": (inbox.ack, {"*": None}),
            "leases.backlogs": (leases.backlogs, {"queues": ["q"], "deadline_s": 1}),
            "leases.pull": (
                leases.pull,
                {"queue": "q", "messages": 1, "lease_ms": 1, "bytes_max": 9, "deadline_s": 1},
            ),
            "leases.ack": (leases.ack, {"queue": "q", "done": [shoal.Done("k", 1, 2)], "deadline_s": 1}),
            "admin.figures": (admin.figures, {"slice_name": "s01"}),
            "admin.queues": (admin.queues, {"prefix": "", "after": "", "limit": 1}),
            "admin.keys": (admin.keys, {"prefix": "", "after": "", "limit": 1}),
            "admin.members": (admin.members, {"key": "k", "after": "", "limit": 1}),
            "admin.bindings": (admin.bindings, {"queue": "q", "after": "", "limit": 1}),
        }

    async def call(self, verb: str, argument: str, value: Any) -> None:
        """Raises what it may: TypeError, or an error of shoal's own. Entering is part of consuming."""
        method, arguments = self.verbs[verb]
        given_ = dict(arguments) | {argument: value}
        positional = (given_.pop("*"),) if "*" in given_ else ()
        result = method(*positional, **given_)
        if isinstance(result, shoal.Inbox):
            async with result:
                return
        while inspect.isawaitable(result):
            result = await result


@pytest.fixture
async def user(cluster: FakeCluster, fake_broker: shoal.Broker) -> User:
    await fake_broker.declare("q")
    inbox = fake_broker.consume(())
    await inbox.__aenter__()
    return User(fake_broker, inbox)


NAME = [7, None, 1.5, ["a"], bytearray(b"q"), object()]
NUMBER = ["7", b"7", 1.5, None, True, math.nan, [1]]
BEYOND = [-1, 1 << 32, 1 << 40, 1 << 64, -(1 << 70), 1 << 2000]
WRONG: list[tuple[str, str, list[Any], type[Exception]]] = [
    ("declare", "queues", [7, None, 1.5, [7], [None]], TypeError),
    ("declare", "queues", ["", b"", "q" * 256, "\ud800", ["a", ""]], shoal.InvalidName),
    ("declare", "options", [7, None, "60", {"expires_after_s": 60}], TypeError),
    ("declare", "options", [shoal.QueueOptions(number) for number in NUMBER], TypeError),  # type: ignore[arg-type]
    ("declare", "options", [shoal.QueueOptions(number) for number in BEYOND], shoal.OutOfRange),
    ("configure", "keys", [7, None, [7], [["a"]]], TypeError),
    ("configure", "keys", ["", "@q", ["a", "@"]], shoal.InvalidName),
    ("configure", "options", [7, None, shoal.QueueOptions()], TypeError),
    ("configure", "options", [shoal.KeyOptions(number) for number in NUMBER], TypeError),  # type: ignore[arg-type]
    ("configure", "options", [shoal.KeyOptions(capacity_bytes=number) for number in BEYOND[3:]], shoal.OutOfRange),
    ("configure", "options", [shoal.KeyOptions(9, capacity_messages=9)], shoal.OutOfRange),
    ("farewell", "queue", NAME, TypeError),
    ("farewell", "key", NAME, TypeError),
    ("farewell", "key", ["", "@", "k" * 256], shoal.InvalidName),
    ("farewell", "body", ["text", 7, None, [b"a"]], TypeError),
    ("farewell", "body", [bytes((1 << 16) - 3), bytes(2 << 20)], shoal.TooLarge),
    ("farewell", "headers", [7, "a", {1: b""}, {"a": "b"}], TypeError),
    ("farewell", "headers", [{"a": bytes(1 << 16)}, {f"h{number}": b"" for number in range(5000)}], shoal.TooLarge),
    ("farewell", "after_s", NUMBER, TypeError),
    ("farewell", "after_s", [86_401, *BEYOND], shoal.OutOfRange),
    ("bind", "queue", NAME, TypeError),
    ("bind", "keys", [7, None, [7], [["a"]]], TypeError),
    ("bind", "keys", ["", ["a", ""], ["k" * 256]], shoal.InvalidName),
    ("bind", "keys", [[f"k{number}" for number in range(4000)]], shoal.TooLarge),
    ("bind", "start", ["earliest", "now", "last", 1, None, (1, 0), b"", shoal.Start("x"), shoal.Start(9)], TypeError),  # type: ignore[arg-type]
    ("bind", "start", [shoal.Start(3, -1), shoal.Start(3, 1 << 64)], shoal.OutOfRange),  # type: ignore[arg-type]
    ("unbind", "discard", [1, 0, None, "yes"], TypeError),
    ("publish", "key", NAME, TypeError),
    ("publish", "body", ["text", 7, None, [b"a"]], TypeError),
    ("publish", "body", [bytes((1 << 20) + 1), bytearray(2 << 20)], shoal.TooLarge),
    ("publish", "headers", [7, "a", [("a", b"b")], {1: b""}, {"a": "b"}, {"a": None}], TypeError),
    ("publish", "headers", [{"\ud800": b""}], shoal.Malformed),
    ("publish", "headers", [{"a": b"", "shoal-hops": b"8"}, {"shoal-" + "\ud800" * 300: b""}], shoal.InvalidName),
    ("publish", "headers", [{f"h{number}": b"" for number in range(5000)}, {"a": bytes(2 << 20)}], shoal.TooLarge),
    ("publish", "mandatory", [1, None, "no"], TypeError),
    ("publish", "not_before", ["2030-01-01", b"1", True, [1], datetime(2030, 1, 1)], TypeError),
    ("publish_many", "not_before", [-1, 10, math.nan, math.inf, 1e12, 1 << 2000], shoal.OutOfRange),
    ("publish_many", "bodies", [b"abc", "abc", 7, None, ["a"], [b"a", None]], TypeError),
    ("publish_many", "bodies", [[b""] * 5000, [bytes(1 << 20)] * 3], shoal.TooLarge),
    ("publish_many", "headers", [7, {"a": b""}, [7], [{1: b""}]], TypeError),
    ("publish_many", "headers", [[{}, {}], [None] * 3], shoal.Malformed),
    ("publish_many", "headers", [[{"shoal-key": b""}]], shoal.InvalidName),
    ("consume", "queues", [7, None, [7]], TypeError),
    ("consume", "window_messages", NUMBER, TypeError),
    ("consume", "window_messages", BEYOND, shoal.OutOfRange),
    ("consume", "window_bytes", BEYOND, shoal.OutOfRange),
    ("consume", "buffer_bytes", [0, *BEYOND[3:]], shoal.OutOfRange),
    ("consume", "drop_repeats", [1, None], TypeError),
    ("pull", "messages", NUMBER, TypeError),
    ("pull", "messages", [0, *BEYOND], shoal.OutOfRange),
    ("pull", "lease_ms", NUMBER, TypeError),
    ("pull", "lease_ms", [3_600_001, *BEYOND], shoal.OutOfRange),
    ("peek", "messages", [0, *BEYOND], shoal.OutOfRange),
    ("ack", "*", [7, None, "message", [1]], TypeError),
    ("inbox.ack", "*", [7, None, "message", [1]], TypeError),
    ("inbox.attach", "*", NAME, TypeError),
    ("inbox.detach", "*", NAME, TypeError),
    ("describe", "bindings", [1, "yes"], TypeError),
    ("leases.backlogs", "queues", [7, [7]], TypeError),
    ("leases.backlogs", "queues", [[f"q{number}" for number in range(1001)]], shoal.TooLarge),
    ("leases.pull", "messages", [0, *BEYOND], shoal.OutOfRange),
    ("leases.pull", "lease_ms", [0, 3_600_001, *BEYOND], shoal.OutOfRange),
    ("leases.pull", "bytes_max", [0, *BEYOND[3:]], shoal.OutOfRange),
    ("leases.ack", "done", [[7], [("k", 1, 2)]], TypeError),
    ("leases.ack", "done", [[shoal.Done("k", -1, 2)], [shoal.Done("k", 2, 2)]], shoal.OutOfRange),
    ("admin.figures", "slice_name", [7, None], TypeError),
    ("admin.queues", "prefix", [7, None], TypeError),
    ("admin.queues", "prefix", ["q" * 256, b"q" * 256], shoal.InvalidName),
    ("admin.queues", "prefix", ["\ud800"], shoal.Malformed),
    ("admin.keys", "after", [7, None], TypeError),
    ("admin.keys", "after", ["\ud800"], shoal.Malformed),
    ("admin.members", "limit", NUMBER, TypeError),
    ("admin.bindings", "limit", [0, 1001, *BEYOND], shoal.OutOfRange),
]
CALLED = {
    "*": ["queue", "ack takes messages"],
    "queues": ["queue"],
    "keys": ["key"],
    "options": ["options", "expires_after_s", "history_messages", "capacity"],
    "headers": ["header"],
    "done": ["done", "offset"],
    "bodies": ["bod", "chunk messages", "chunk bytes"],
}
"""What messages call an argument that is of many, or has no name."""
WRONG += [
    (verb, "deadline_s", ["3", [3], True], TypeError)
    for verb in ("publish", "bind", "pull", "consume", "flush", "inbox.flush", "inbox.detach")
]
WRONG += [
    (verb, "deadline_s", [0, -1, math.nan, math.inf, 1e30], shoal.OutOfRange)
    for verb in ("publish", "bind", "pull", "consume", "flush", "inbox.flush", "inbox.detach")
]


@pytest.mark.parametrize(("verb", "argument", "values", "error"), WRONG, ids=lambda value: str(value)[:20])
async def test_a_wrong_argument_is_named_and_nothing_is_sent(
    cluster: FakeCluster, user: User, verb: str, argument: str, values: list[Any], error: type[Exception]
) -> None:
    before = sum(len(slice_.frames) for slice_ in cluster.slices.values())
    for value in values:
        with pytest.raises(error) as caught:
            async with asyncio.timeout(DEADLINE_S):
                await user.call(verb, argument, value)
        assert any(word in str(caught.value) for word in CALLED.get(argument, [argument])), (value, caught.value)
    if verb != "consume":
        assert sum(len(slice_.frames) for slice_ in cluster.slices.values()) == before


async def test_a_start_by_name_says_what_to_pass(fake_broker: shoal.Broker) -> None:
    with pytest.raises(TypeError, match=r"not 'earliest'; pass shoal\.EARLIEST"):
        await fake_broker.bind("q", "k", start="earliest")  # type: ignore[call-overload]


def test_starts_check_their_numbers() -> None:
    for make in (shoal.Last, shoal.Offset):
        assert make(3).value == 3
        with pytest.raises(TypeError, match="whole number"):
            make("3")  # type: ignore[arg-type]
        with pytest.raises(shoal.OutOfRange, match="is -1; it needs 0 to"):
            make(-1)


async def test_what_holds_bytes_is_taken_as_it_is_now(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    await fake_broker.declare("q")
    await fake_broker.bind("q", "k")
    body, value = bytearray(b"before"), bytearray(b"value")
    future = fake_broker.publish_nowait("k", body, headers={"name": value})
    body[:], value[:] = b"after.", b"other"
    await future
    await fake_broker.publish_many("k", [memoryview(b"view"), bytearray(b"array"), b"bytes"])
    messages = await fake_broker.pull("q", 9)
    assert [message.body for message in messages] == [b"before", b"view", b"array", b"bytes"]
    assert messages[0].headers == {"name": b"value"}


MADE_UP: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(BEYOND)
    | st.floats()
    | st.text(max_size=300)
    | st.sampled_from(["\ud800", "@", "", "earliest"])
    | st.binary(max_size=300)
    | st.builds(bytearray, st.binary(max_size=9))
    | st.builds(object)
    | st.just(shoal.EARLIEST),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=9) | st.integers() | st.none(), inner, max_size=3)
        | st.builds(iter, st.lists(inner, max_size=3))
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def users(runner: asyncio.Runner) -> Iterator[tuple[User, Callable[[], Awaitable[None]]]]:
    """One connection for all examples: what one harmed, a later one would find; and another user's call on it."""
    cluster = FakeCluster(["s01", "s02"])

    async def start() -> tuple[shoal.Broker, User]:
        await cluster.start()
        broker = shoal.connect(cluster.redirectors[0].address, deadline_s=DEADLINE_S)
        await broker.__aenter__()
        await broker.declare(["q", "theirs"])
        inbox = broker.consume(())
        await inbox.__aenter__()
        return broker, User(broker, inbox)

    broker, user = runner.run(start())

    async def others_pass() -> None:
        keys = [cluster.key_of(name, "theirs") for name in cluster.slices]
        await broker.bind("theirs", keys)
        for key in keys:
            assert (await broker.publish(key, b"hello")).queues >= 1

    yield user, others_pass

    async def stop() -> None:
        async with asyncio.timeout(2 * DEADLINE_S):
            await broker.__aexit__(None, None, None)
        await cluster.stop()

    runner.run(stop())


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_made_up_arguments_at_every_verb_harm_no_other_call(
    runner: asyncio.Runner, users: tuple[User, Callable[[], Awaitable[None]]], data: st.DataObject
) -> None:
    user, others_pass = users
    verb = data.draw(st.sampled_from(sorted(user.verbs)), "verb")
    argument = data.draw(st.sampled_from(sorted(user.verbs[verb][1])), "argument")
    value = data.draw(MADE_UP, "value")

    async def calls() -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                await user.call(verb, argument, value)
        except (TypeError, shoal.ShoalError) as error:
            assert str(error)
        await others_pass()

    runner.run(calls())
