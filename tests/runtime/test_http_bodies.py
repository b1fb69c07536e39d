"""Bodies: their places, what too slow ones and too many of them come to."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Scope

from shoal_contract.errors import Malformed, ResourceExhausted, TooLarge
from shoal_runtime.http import limits
from shoal_runtime.http.bodies import Bodies, Body
from shoal_runtime.http.problem import Refused

BODY_MAX = 1000


class Peer:
    """Sends pieces of a body when it is told to."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()

    def send(self, body: bytes, more: bool = True) -> None:
        self._messages.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def receive(self) -> Message:
        return await self._messages.get()


def scope(length: int | None = None, *more: tuple[bytes, bytes]) -> Scope:
    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return {"type": "http", "headers": [*headers, *more]}


CHUNKED = (b"transfer-encoding", b"chunked")


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> Bodies:
    monkeypatch.setattr(limits, "BODIES_BYTES_MAX", 2 * BODY_MAX)
    monkeypatch.setattr(limits, "BODY_PIECE_BYTES", 100)
    monkeypatch.setattr(limits, "STEP_BYTES", 10)
    monkeypatch.setattr(limits, "SMALL_BODY_BYTES", BODY_MAX)
    return Bodies(BODY_MAX)


async def opened(bodies: Bodies, length: int | None = BODY_MAX, *more: tuple[bytes, bytes]) -> tuple[Peer, Body]:
    peer = Peer()
    return peer, bodies.open(scope(length, *more), peer.receive)


async def test_a_place_is_held_from_head_to_answer(bodies: Bodies) -> None:
    peer, body = await opened(bodies, 300)
    assert bodies.held_bytes == 300
    peer.send(b"x" * 300, more=False)
    assert (await body.receive())["body"] == b"x" * 300
    assert bodies.held_bytes == 300, "while it is worked on"
    body.close()
    body.close()
    assert bodies.held_bytes == 0


async def test_a_request_without_a_body_takes_no_place(bodies: Bodies) -> None:
    peer, body = await opened(bodies, None)
    peer.send(b"", more=False)
    assert (await body.receive())["more_body"] is False
    assert bodies.held_bytes == 0


async def test_a_body_larger_than_the_limit_is_refused_by_its_head_or_when_it_is(bodies: Bodies) -> None:
    with pytest.raises(TooLarge, match="request body is 1001 bytes; the limit is 1000") as caught:
        await opened(bodies, BODY_MAX + 1)
    assert (caught.value.limit, caught.value.value) == (BODY_MAX, BODY_MAX + 1)
    peer, body = await opened(bodies, None, CHUNKED)
    peer.send(b"x" * BODY_MAX)
    await body.receive()
    peer.send(b"x")
    with pytest.raises(Refused) as refused:
        await body.receive()
    assert (refused.value.status_code, type(refused.value.error)) == (413, TooLarge)


@pytest.mark.parametrize("length", [b"-1", b"1 0", b"0x10", "٣".encode("latin-1", "replace")])
async def test_a_length_that_is_no_number_is_malformed(bodies: Bodies, length: bytes) -> None:
    with pytest.raises(Malformed, match="is no number"):
        bodies.open({"type": "http", "headers": [(b"content-length", length)]}, Peer().receive)


async def test_a_body_of_unknown_length_grows_its_place(bodies: Bodies) -> None:
    peer, body = await opened(bodies, None, CHUNKED)
    assert bodies.held_bytes == limits.BODY_PIECE_BYTES
    for _ in range(5):
        peer.send(b"x" * 100)
        await body.receive()
    assert bodies.held_bytes == 500
    body.close()
    assert bodies.held_bytes == 0


async def test_objects_of_json_count_beside_their_bytes(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OBJECT_BYTES", 20)
    peer, body = await opened(bodies, 90)
    peer.send(b"{}" * 5)
    await body.receive()
    assert bodies.held_bytes == 90 + 5 * 20
    peer.send(b"{" * 80, more=False)
    await body.receive()
    assert bodies.held_bytes == 90 + BODY_MAX, "never so much that it could not be taken alone"
    other, late = await opened(bodies, 10)
    other.send(b"{" * 100)
    with pytest.raises(Refused) as refused:
        await late.receive()
    assert refused.value.status_code == 429
    body.close()
    late.close()
    assert bodies.held_bytes == 0


async def test_no_room_asks_the_newcomer_to_come_again_while_others_get_on(bodies: Bodies) -> None:
    for _ in range(2):
        await opened(bodies)
    with pytest.raises(ResourceExhausted, match="request bodies under way: 2000 bytes, and 1 more") as caught:
        await opened(bodies, 1)
    assert (caught.value.subject, caught.value.limit) == ("request bodies under way", 2000)
    assert bodies.held_bytes == 2000


async def test_no_room_to_grow_ends_the_one_that_did_not_announce_it(bodies: Bodies) -> None:
    peer, body = await opened(bodies, None, CHUNKED)
    await opened(bodies)
    await opened(bodies, 900)
    peer.send(b"x" * 101)
    with pytest.raises(Refused) as refused:
        await body.receive()
    assert refused.value.status_code == 429


async def test_where_room_is_short_the_slowest_makes_place(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLOW_S", 0.0)
    _, slow = await opened(bodies)
    waiting = asyncio.ensure_future(slow.receive())
    await asyncio.sleep(0)
    peer, quick = await opened(bodies)
    peer.send(b"x" * 10)
    await quick.receive()
    _, new = await opened(bodies)
    with pytest.raises(Refused, match="given up after 0 bytes") as refused:
        await waiting
    assert refused.value.status_code == 408
    with pytest.raises(Refused):
        await slow.receive()
    assert (bodies.arriving(quick), bodies.arriving(new), bodies.held_bytes) == (True, True, 2000)


async def test_a_body_that_is_complete_is_never_ended_for_another(
    bodies: Bodies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SLOW_S", 0.0)
    for _ in range(2):
        peer, body = await opened(bodies)
        peer.send(b"x", more=False)
        await body.receive()
    assert not bodies.end_late()
    with pytest.raises(ResourceExhausted):
        await opened(bodies)


async def test_a_body_without_progress_is_given_up(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STEP_S", 0.2)
    peer, body = await opened(bodies)

    async def trickle() -> None:
        # Less than a step of STEP_BYTES in all.
        while True:
            peer.send(b"x")
            await asyncio.sleep(0.04)

    trickling = asyncio.ensure_future(trickle())
    with pytest.raises(Refused, match=r"it brought less than 10 bytes in 0\.2 s") as refused:
        async with asyncio.timeout(30):
            while True:
                await body.receive()
    trickling.cancel()
    assert refused.value.status_code == 408


async def test_a_body_that_gets_on_has_all_the_time_it_needs(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STEP_S", 1.0)
    loop = asyncio.get_running_loop()
    peer, body = await opened(bodies)
    began = loop.time()
    while loop.time() - began < 1.5:
        peer.send(b"x" * 10)
        await body.receive()
        await asyncio.sleep(0.05)
        if body.received_bytes > BODY_MAX - 100:
            break
    assert bodies.arriving(body)


async def test_commas_colons_and_lists_count_beside_their_bytes(bodies: Bodies) -> None:
    peer, body = await opened(bodies, 90)
    peer.send(b'[1,{"a":2}]')
    await body.receive()
    assert bodies.held_bytes == 90 + 3 * limits.VALUE_BYTES + limits.OBJECT_BYTES


async def test_small_bodies_have_a_part_of_the_room(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALL_BODY_BYTES", 50)
    await opened(bodies, 1000)
    await opened(bodies, 500)
    with pytest.raises(ResourceExhausted, match="the limit is 1500"):
        await opened(bodies, 51)
    for _ in range(10):
        await opened(bodies, 50)
    with pytest.raises(ResourceExhausted, match="the limit is 2000"):
        await opened(bodies, 1)
    assert bodies.held_bytes == 2000


async def test_a_body_too_slow_for_its_size_makes_room(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    """It brought STEP_BYTES each SLOW_S, and so kept its place, of all that it announced, for minutes."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(limits, "SMALL_BODY_BYTES", 50)
    peers = [await opened(bodies, 500) for _ in range(2)]
    fast_peer, fast = await opened(bodies, 500)
    for second in range(1, 5):
        clock.now_s = 1.0 * second
        for peer, body in peers:
            peer.send(b"x" * (10 + (body is peers[0][1])))
            await body.receive()
        fast_peer.send(b"x" * 40)
        await fast.receive()
    _, new = await opened(bodies, 500)
    assert [bodies.arriving(body) for body in (*(body for _, body in peers), fast, new)] == [True, False, True, True]
    with pytest.raises(Refused, match="more than 10 s"):
        await peers[1][1].receive()


async def test_a_newcomer_has_a_moment(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(limits, "SMALL_BODY_BYTES", 50)
    for _ in range(3):
        await opened(bodies, 500)
    clock.now_s = limits.SLOW_S - 0.1
    with pytest.raises(ResourceExhausted):
        await opened(bodies, 500)
    clock.now_s = limits.SLOW_S + 0.1
    await opened(bodies, 500)


class Clock:
    """Tells the loop the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now_s)
