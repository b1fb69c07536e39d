"""Heads: what is enforced, whole or in pieces, and what is refused that other parsers read otherwise."""

from __future__ import annotations

import h11
import pytest

from shoal_runtime.http.head import StrictConnection

MAX = 1000
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


def head_of(length: int) -> bytes:
    return GET + b"A: " + b"a" * (length - len(GET) - 7) + b"\r\n\r\n"


def first_event(*pieces: bytes) -> object:
    connection = StrictConnection(MAX)
    event: object = h11.NEED_DATA
    for piece in pieces:
        connection.receive_data(piece)
        event = connection.next_event()
    return event


def test_a_head_of_the_limit_is_taken() -> None:
    assert len(head_of(MAX)) == MAX
    assert isinstance(first_event(head_of(MAX)), h11.Request)


@pytest.mark.parametrize("cut", [1, 500, MAX + 1])
def test_a_longer_one_is_refused_also_when_it_comes_whole(cut: int) -> None:
    head = head_of(MAX + 1)
    with pytest.raises(h11.RemoteProtocolError, match="longer than the limit of 1000 bytes") as caught:
        first_event(head[:cut], head[cut:])
    assert caught.value.error_status_hint == 431


def test_a_head_that_does_not_end_is_refused_at_the_limit() -> None:
    with pytest.raises(h11.RemoteProtocolError, match="longer than the limit"):
        first_event(GET + b"A: " + b"a" * MAX)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\n",
        b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_a_bare_line_feed_is_refused(head: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError, match="LF without CR"):
        first_event(head)


@pytest.mark.parametrize("fold", [b"\r\n \tfolded", b"\r\n folded"])
def test_a_folded_header_is_refused(fold: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError, match="folded"):
        first_event(GET + b"A: b" + fold + b"\r\n\r\n")


def test_bodies_and_the_next_request_are_read_as_before() -> None:
    connection = StrictConnection(MAX)
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\na\nb\n"
    connection.receive_data(post + GET + b"\r\n")
    events = [connection.next_event() for _ in range(4)]
    assert [type(event) for event in events[:3]] == [h11.Request, h11.Data, h11.EndOfMessage]
    assert events[3] is h11.PAUSED
    connection.send(h11.Response(status_code=204, headers=[]))
    connection.send(h11.EndOfMessage())
    connection.start_next_cycle()
    assert connection.next_event() is h11.NEED_DATA and connection.more, "the next head waits for the next turn"
    connection.begin_turn()
    assert isinstance(connection.next_event(), h11.Request)
    assert not connection.begun


def test_a_head_that_has_begun_is_told_from_silence() -> None:
    connection = StrictConnection(MAX)
    assert connection.next_event() is h11.NEED_DATA
    assert not connection.begun
    connection.receive_data(b"G")
    assert connection.next_event() is h11.NEED_DATA
    assert connection.begun
    assert connection.refusal is None
