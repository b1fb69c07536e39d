"""What the library says by itself: where it connects, what is away and back, why nothing comes (operator M5, Low)."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import pytest

import shoal
from shoal_contract.limits import KEY_UNACKED_MAX
from tests.client.calls import bound, fresh, take, until
from tests.client.fake_cluster import FakeCluster

WAIT_S = 30


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "shoal")
    return caplog


def said(log: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in log.records if record.name == "shoal" and record.levelno == level]


def test_a_host_alone_means_the_redirectors_port() -> None:
    assert shoal.connect("localhost").connection.map.redirectors == ["localhost:7400"]
    assert shoal.connect("a:1", "b").connection.map.redirectors == ["a:1", "b:7400"]
    with pytest.raises(shoal.Malformed, match="is not host:port"):
        shoal.connect("localhost:http")
    for wrong in (7400, None, b"localhost"):
        with pytest.raises(TypeError, match="redirector must be str"):
            shoal.connect(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at least one redirector"):
        shoal.connect()


async def test_a_port_that_speaks_http_is_told_as_such(log: pytest.LogCaptureFixture) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    expected = f"127.0.0.1:{port} answers HTTP, not gRPC: that is an HTTP port; clients connect to the redirector's"
    async with server:
        with pytest.raises(shoal.Unavailable, match=expected):
            async with shoal.connect(f"127.0.0.1:{port}", deadline_s=2):
                pass
    assert expected in said(log, logging.WARNING)[0]


async def test_a_refused_connection_is_told_while_it_is_waited_for(log: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = shoal.connect(f"127.0.0.1:{port}", deadline_s=30)
    entering = asyncio.ensure_future(broker.__aenter__())
    await until(lambda: bool(said(log, logging.WARNING)))
    assert not entering.done()
    (sentence,) = said(log, logging.WARNING)
    assert f"127.0.0.1:{port}" in sentence and "Connection refused" in sentence
    entering.cancel()
    await asyncio.wait([entering])


async def test_slices_and_the_map_are_told_lost_and_back(
    cluster: FakeCluster, fake_broker: shoal.Broker, log: pytest.LogCaptureFixture
) -> None:
    _, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await slice_.stop()
    await until(lambda: any("requests to slice s01: away" in line for line in said(log, logging.INFO)))
    await slice_.start()
    await fake_broker.publish(key, b"x")
    told = [line for line in said(log, logging.INFO) if "slice s01" in line]
    assert len(told) == 2 and f"requests to slice s01: back, at {slice_.address}" in told[1]
    log.clear()
    await cluster.redirectors[0].stop()
    await until(lambda: any("the cluster does not answer; trying again" in line for line in said(log, logging.INFO)))
    await cluster.redirectors[0].start()
    await until(lambda: any("map again" in line for line in said(log, logging.INFO)))
    assert not said(log, logging.WARNING)


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.window_look.WINDOW_LOOK_S", 0.01)
    monkeypatch.setattr("shoal.window_look.WINDOW_FULL_S", 0.05)


def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of all looks at windows from now on."""
    times: list[float] = []
    real = shoal.window_look.WindowLook._look

    def look(watch: shoal.window_look.WindowLook) -> None:
        times.append(asyncio.get_running_loop().time())
        real(watch)

    monkeypatch.setattr(shoal.window_look.WindowLook, "_look", look)
    return times


async def test_a_full_window_is_told_once(
    cluster: FakeCluster,
    quick_looks: None,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Exception] = []
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10, on_error=errors.append) as broker:
        key = cluster.key_of("s01")
        queue = cluster.queue_with_home("s01", "hq\x1b")
        await broker.declare(queue)
        await broker.bind(queue, key)
        await broker.publish_many(key, [b"x"] * 1500)
        times = looks(monkeypatch)
        async with broker.consume(queue) as inbox:
            taken = [await anext(inbox) for _ in range(1000)]
            await until(lambda: bool(errors))
            (sentence,) = said(log, logging.WARNING)
            assert sentence.startswith(
                f"window of {queue.replace(chr(27), chr(92) + 'x1b')} is full: 1,000 messages are"
            )
            (error,) = errors
            assert isinstance(error, shoal.ResourceExhausted)
            assert (str(error), error.limit, error.value) == (sentence, 1000, 1000)
            many = len(times) + 20
            await until(lambda: len(times) >= many)
            assert said(log, logging.WARNING) == [sentence], "not again at once"
            inbox.ack(*taken)
            for _ in range(500):
                await anext(inbox)
            await broker.publish_many(key, [b"x"] * 600)
            for _ in range(500):
                await anext(inbox)
            inbox._look._tell_from_s = 0.0  # The minute is over.
            await until(lambda: len(errors) == 2)


async def test_a_window_that_is_full_by_bytes_is_told(
    connect: Callable[[], shoal.Broker], quick_looks: None, log: pytest.LogCaptureFixture
) -> None:
    async with connect() as broker:
        queue, key = fresh("queue"), fresh("key")
        await broker.declare(queue)
        await broker.bind(queue, key)
        await broker.publish_many(key, [b"x" * 100] * 10)
        async with asyncio.timeout(WAIT_S), broker.consume(queue, window_bytes=1_000) as inbox:
            first = [await anext(inbox) for _ in range(10)]
            await until(lambda: bool(said(log, logging.WARNING)))
            (sentence,) = said(log, logging.WARNING)
            assert sentence.startswith(f"window of {queue} is full: 1,000 bytes are unacked")
            assert sentence.endswith("a larger window_bytes")
            inbox.ack(*first[:4])
            await first[4].nack()
            await inbox.flush()
            again = await anext(inbox)
            assert again.offset == first[4].offset
            part = next(part for part in inbox._slices.values() if part.last_handle)
            assert part.repeats is not None and part.recent.unacked(part.last_handle, part.repeats) == 600
            inbox.ack(*first[5:], again)
            await inbox.flush()
            assert part.recent.unacked(part.last_handle, part.repeats) == 0


async def test_a_key_of_which_a_slice_gives_no_more_is_told_where_the_window_has_room(
    connect: Callable[[], shoal.Broker], quick_looks: None, log: pytest.LogCaptureFixture
) -> None:
    """A program that took batches of 5,000 got 4,096 messages, waited for ever, and heard nothing."""
    errors: list[Exception] = []
    async with asyncio.timeout(4 * WAIT_S), connect() as broker:
        broker.connection.telling._on_error = errors.append
        queue = fresh("queue")
        await broker.declare(queue)
        for _ in range(2):
            await broker.publish_many(f"@{queue}", [b"x"] * 2_100)
        async with broker.consume(queue, window_messages=10_000) as inbox:
            held = await take(inbox, KEY_UNACKED_MAX)
            await until(lambda: bool(errors), WAIT_S)
            (sentence,) = said(log, logging.WARNING)
            assert sentence.startswith(f"key @{queue} of queue {queue}: 4,096 messages are unacked; slice s0")
            assert sentence.endswith(
                " gives no more than 4,096 of one key, whatever the window, so it sends no more of this key:"
                " ack what is done, the oldest first"
            )
            (error,) = errors
            assert isinstance(error, shoal.ResourceExhausted) and str(error) == sentence
            assert error.subject == f"unacked messages of key @{queue}"
            assert (error.limit, error.value) == (KEY_UNACKED_MAX, KEY_UNACKED_MAX)
            with pytest.raises(TimeoutError):
                await inbox.get(timeout=0)
            described = await broker.describe(queue, bindings=True)
            (binding,) = described.bindings
            assert described.unacked == binding.unacked == KEY_UNACKED_MAX and binding.full
            await held.pop(0).ack()
            held += await take(inbox, 1)
            inbox.ack(*held)
            assert len(await take(inbox, 4_200 - KEY_UNACKED_MAX - 1)) == 103
            await inbox.flush()
            described = await broker.describe(queue, bindings=True)
            (binding,) = described.bindings
            assert described.unacked == binding.unacked == 103 and not binding.full


async def test_stretches_of_acked_messages_count_for_what_a_slice_gives_of_a_key(
    real_redirector: str, quick_looks: None, log: pytest.LogCaptureFixture
) -> None:
    """Every second message is acked: 2,048 are unacked, with as many acked ones between them, and nothing comes."""
    async with asyncio.timeout(4 * WAIT_S), shoal.connect(real_redirector) as broker:
        queue = fresh("queue")
        await broker.declare(queue)
        async with broker.consume(queue, window_messages=10_000) as inbox:
            for some in (KEY_UNACKED_MAX - 60, 60):
                await broker.publish_many(f"@{queue}", [b"x"] * some)
                for number in range(some):
                    message = await anext(inbox)
                    if number % 2:
                        await message.ack()
                await inbox.flush()
            await broker.publish(f"@{queue}", b"one more")
            await until(lambda: bool(said(log, logging.WARNING)), WAIT_S)
            (sentence,) = said(log, logging.WARNING)
            assert "2,048 messages are unacked, in 2,048 stretches; slice" in sentence
            with pytest.raises(TimeoutError):
                await inbox.get(timeout=0)


async def test_a_full_window_is_told_where_it_is_not_sure_that_a_key_is_full(
    cluster: FakeCluster,
    fake_broker: shoal.Broker,
    quick_looks: None,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What lies between its messages may be another consumer's: the inbox of a shared queue was told that a larger
    window would not help, where it would."""
    stretches = KEY_UNACKED_MAX - 10
    monkeypatch.setattr("shoal.core.repeats.Repeats.full_key", lambda *_: (b"k", 10, stretches))
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish_many(key, [b"x"] * 30)
    async with fake_broker.consume(queue, window_messages=10) as inbox:
        await take(inbox, 10)
        await until(lambda: bool(said(log, logging.WARNING)), WAIT_S)
        assert "consume with a larger window_messages" in said(log, logging.WARNING)[0]


async def test_acked_messages_fill_no_window(
    cluster: FakeCluster,
    fake_broker: shoal.Broker,
    quick_looks: None,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish_many(key, [b"x"] * 30)
    times = looks(monkeypatch)
    async with fake_broker.consume(queue, window_messages=10) as inbox:
        for _ in range(30):
            await (await anext(inbox)).ack()
        await inbox.flush()
        first = len(times)
        await until(lambda: len(times) > first + 10 and times[-1] - times[first] > 0.1)
    assert not said(log, logging.WARNING)


async def test_a_slice_that_does_not_answer_is_named_while_it_is_waited_for(
    cluster: FakeCluster, fake_broker: shoal.Broker, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the frame and is silent, as a process that hangs: for a stream that is lost there is a reason."""
    monkeypatch.setattr("shoal.slice_session.SILENT_S", 0.5)
    _, key = await bound(fake_broker, cluster)
    cluster.slices["s01"].answering.clear()
    publishing = asyncio.ensure_future(fake_broker.publish(key, b"x"))
    await until(lambda: bool(said(log, logging.WARNING)))
    (sentence,) = said(log, logging.WARNING)
    assert sentence.startswith("slice s01 has not answered for ")
    assert sentence.endswith(" s: calls that need it wait until their deadlines")
    assert not publishing.done()
    cluster.slices["s01"].answering.set()
    await publishing
    assert said(log, logging.WARNING)[1:] == ["slice s01 answers again"]


async def test_an_administration_that_does_not_answer_is_named(
    cluster: FakeCluster, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.answering.SILENT_S", 0.2)
    monkeypatch.setattr("shoal.answering.SILENT_ASK_S", 0.1)
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=1) as broker:
        await cluster.slices["s02"].stop()
        port = int(cluster.slices["s02"].address.rpartition(":")[2])
        silent = pytest.raises(shoal.OutcomeUnknown, match=r"^slice s02 does not answer: ")
        with socket.create_server(("127.0.0.1", port)), silent:
            await shoal.Admin(broker).queues()
        await cluster.slices["s02"].start()
    assert any(line.startswith("slice s02 has not answered for 0.2 s") for line in said(log, logging.WARNING))


async def test_an_inbox_that_was_not_entered_says_so(fake_broker: shoal.Broker) -> None:
    async with asyncio.timeout(5):
        for wait in (anext(fake_broker.consume("z")), anext(fake_broker.consume("z").deliveries())):
            with pytest.raises(shoal.Unavailable, match=r"not open: use `async with broker\.consume"):
                await wait


async def test_a_dropped_queue_is_told_to_its_consumer(real_redirector: str, log: pytest.LogCaptureFixture) -> None:
    async with shoal.connect(real_redirector) as broker:
        await broker.declare("told-of-drop")
        async with broker.consume("told-of-drop"):
            await broker.drop("told-of-drop")
            await until(lambda: any("queue told-of-drop was dropped" in line for line in said(log, logging.INFO)))
