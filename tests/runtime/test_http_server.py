"""The server against peers that are silent, slow or wrong: health keeps answering, and every wait for a peer ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

import httpx
import pytest

from shoal_runtime.http import limits
from shoal_runtime.http.connections import Waits
from shoal_runtime.http.server import HttpServer
from shoal_runtime.tasks import Tasks
from tests.runtime.conftest import LARGE, SMALL, WAIT_S, Raw, Served, serving, until

GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
HEALTH = GET % b"/healthz"
MANY = 3 * SMALL.connections_max


async def write(peer: Raw, data: bytes) -> None:
    """A peer that was ended meanwhile is no matter."""
    with contextlib.suppress(ConnectionError):
        await peer.send(data)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: loc", id="half a head"),
        pytest.param(HEALTH, id="one request, then idle"),
        pytest.param(POST % (b"/length", 1000) + b"x", id="one byte of a body"),
        pytest.param(POST % (b"/healthz", 1000) + b"x", id="one byte of a body that is not wanted"),
        pytest.param(POST % (b"/length", 1 << 20) + b"x" * 900_000, id="most of a large body"),
        pytest.param(GET % b"/large", id="an answer that is not read"),
        pytest.param(GET % b"/events", id="a stream that is not read"),
    ],
)
async def test_many_such_connections_do_not_close_the_port(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLOW_S", 0.0)
    monkeypatch.setattr(limits, "ANSWERS_BYTES_MAX", 4 * len(LARGE))
    monkeypatch.setattr(limits, "BODIES_BYTES_MAX", 4 * SMALL.body_bytes_max)
    async with serving() as served, Tasks("peers") as tasks:
        peers = []
        for number in range(MANY):
            peers.append(await served.connect())
            tasks.start(f"peer {number}", write(peers[-1], sent))
            if number % 10 == 0:
                assert await served.is_healthy()
        assert await served.is_healthy()
        assert len(served.server.connections) <= SMALL.connections_max + SMALL.requests_max
        assert served.guard.bodies.held_bytes <= 4 * SMALL.body_bytes_max
        for peer in peers:
            peer.writer.transport.abort()
        await until(lambda: (len(served.server.connections), served.guard.active) == (0, 0))
        assert (served.guard.bodies.held_bytes, served.server.connections.held_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("bound", "sent"),
    [
        pytest.param("HEAD_S", b"", id="silent"),
        pytest.param("HEAD_S", b"GET / HT", id="half a head"),
        pytest.param("REST_S", POST % (b"/healthz", 1000) + b"x", id="the rest of a body that is not wanted"),
        pytest.param("STEP_S", GET % b"/events", id="a stream that is not read"),
    ],
)
async def test_a_peer_has_its_time(bound: str, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, bound, 0.3)
    async with serving() as served:
        peer = await served.connect(sent)
        await until(lambda: len(served.server.connections) == 0)
        peer.writer.transport.abort()


async def test_the_second_head_has_no_more_time_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_S", 0.3)
    async with serving() as served:
        peer = await served.connect(HEALTH)
        assert (await peer.answer())[0] == 200
        await peer.send(HEALTH + b"GET /he")
        assert (await peer.answer())[0] == 200
        assert await peer.is_closed()


async def test_a_reader_that_goes_on_slowly_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STEP_S", 4.0)
    async with serving() as served:
        peer = await served.connect(GET % b"/large")
        loop = asyncio.get_running_loop()
        began, received = loop.time(), 0
        while received < len(LARGE):
            part = await peer.reader.read(1 << 16)
            assert part, "it was cut off"
            received += len(part)
            if loop.time() - began < 6:
                await asyncio.sleep(0.05)
        peer.writer.close()


async def test_more_requests_than_the_limit_are_refused_and_health_is_not(served: Served) -> None:
    waiting = await served.many(SMALL.requests_max, GET % b"/wait")
    await until(lambda: served.guard.active == SMALL.requests_max)
    refused = await served.connect(GET % b"/wait")
    status, problem = await refused.answer()
    assert (status, problem["type"], problem["limit"]) == (429, "urn:shoal:error:ResourceExhausted", SMALL.requests_max)
    assert await served.is_healthy()
    served.release.set()
    for peer in waiting:
        assert (await peer.answer())[0] == 200
    assert served.guard.active == 0


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (b"GET / HTTP/1.1\nHost: x\n\n", 400, "Malformed"),
        (b"\x16\x03\x01\x02\x00", 400, "Malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Malformed"),
        (b"GET /" + b"a" * SMALL.head_bytes_max + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, "TooLarge"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "Malformed"),
    ],
)
async def test_what_is_no_request_is_a_problem_and_the_end(served: Served, sent: bytes, status: int, kind: str) -> None:
    peer = await served.connect(sent)
    found, problem = await peer.answer()
    assert (found, problem["status"], problem["type"]) == (status, status, f"urn:shoal:error:{kind}")
    assert await peer.is_closed()


async def test_the_log_names_the_peer_and_is_not_filled_by_it(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for _ in range(50):
            peer = await served.connect(b"nonsense\r\n\r\n")
            assert (await peer.answer())[0] == 400
            peer.writer.close()
        upgrade = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
        assert (await (await served.connect(upgrade)).answer())[0] == 200
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(lines) <= 5
    assert "bad HTTP request from 127.0.0.1:" in lines[0]


async def test_nonsense_in_a_body_ends_the_request_without_a_traceback(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    chunked = b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    peer = await served.connect(chunked)
    await until(lambda: served.guard.active == 1)
    await peer.send(b"no chunk\r\n")
    assert (await peer.answer())[0] == 400
    assert await peer.is_closed()
    await until(lambda: served.guard.active == 0)
    assert not [record for record in caplog.records if record.exc_info]


async def test_nonsense_in_a_body_ends_an_answer_under_way(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    peer = await served.connect(b"POST /events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
    assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    await peer.send(b"no chunk\r\n")
    async with asyncio.timeout(WAIT_S):
        while await peer.reader.read(1 << 16):
            pass
    await until(lambda: len(served.server.connections) == 0)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_bug_of_the_application_is_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    peer = await served.connect(GET % b"/fail")
    await peer.reader.readuntil(b"\r\n\r\n")
    assert [record for record in caplog.records if record.exc_info]


async def test_requests_in_a_row_on_one_connection_are_answered_in_order(served: Served) -> None:
    peer = await served.connect(POST % (b"/length", 3) + b"abc" + HEALTH + POST % (b"/length", 4) + b"abcd")
    answers = [await peer.answer() for _ in range(3)]
    assert answers == [(200, {"length": 3}), (200, {"healthy": True}), (200, {"length": 4})]


async def test_a_process_that_leaves_ends_each_connection_with_its_answer() -> None:
    async with serving(is_leaving=True) as served:
        peer = await served.connect(HEALTH)
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        assert await peer.reader.read() == b'{"healthy":true}'


@pytest.mark.parametrize("address", ["[::1]:0", "[::]:0", "0.0.0.0:0", "localhost:0"])
async def test_it_listens_where_it_is_told_ipv6_too(address: str) -> None:
    async with serving(address=address) as served:
        host, _, port = served.server.address.rpartition(":")
        assert (host, int(port) > 0) == (address.rpartition(":")[0], True)
        at = {"[::]": ["[::1]", "127.0.0.1"], "0.0.0.0": ["127.0.0.1"]}.get(host, [host])
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
            for one in at:
                assert (await http.get(f"http://{one}:{port}/healthz")).status_code == 200


@pytest.mark.parametrize("address", ["nonsense", "256.0.0.1:1", "127.0.0.1:99999", "[::1:0x]"])
async def test_an_address_that_cannot_be_had_is_named(address: str) -> None:
    with pytest.raises(OSError, match="cannot listen on"):
        HttpServer(address, SMALL)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {used}"):
            HttpServer(used, SMALL)


def test_connections_are_no_more_than_there_may_be_files_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shoal_runtime.http.server.raise_open_files", lambda: 60)
    assert HttpServer("127.0.0.1:0", SMALL).connections.connections_max == 30
    assert "ulimit -n" in caplog.text
    monkeypatch.setattr("shoal_runtime.http.server.raise_open_files", lambda: 1000)
    assert HttpServer("127.0.0.1:0", SMALL).connections.connections_max == SMALL.connections_max


async def test_an_answer_counts_until_its_last_byte_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it stays in memory until then. With its last 16 KiB unread it counted as nothing."""
    async with serving() as served:
        peer = await served.connect(GET % b"/large")
        connections = served.server.connections
        await until(lambda: len(connections.readers()) == 1)
        (protocol,) = connections.readers()
        unsent = 10 << 10  # The kernel takes the rest in pieces of any size.
        monkeypatch.setattr(protocol._counted, "get_write_buffer_size", lambda: unsent)
        protocol.resume_writing()
        await until(lambda: protocol.cycle.response_complete)
        assert (connections.count(Waits.READER), connections.held_bytes >= len(LARGE)) == (1, True)
        unsent = 0
        await until(lambda: connections.count(Waits.NEXT) == 1)
        assert connections.held_bytes == 0
        peer.writer.transport.abort()
