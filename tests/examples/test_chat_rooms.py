"""The chat's rooms on a real cluster: history, unread counts, presence, and nothing lost over connections and kills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import pytest_asyncio
from starlette.websockets import WebSocketDisconnect

import shoal
from shoal_local.cluster import LocalCluster

from .conftest import EXAMPLES, load

rooms = load(EXAMPLES / "chat" / "rooms.py")
WAIT_S = 60
HERE = {"host": "localhost"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def broker(cluster: LocalCluster) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(cluster.redirector) as broker:
        yield broker


async def opened(broker: shoal.Broker, person: str, tab: str) -> Any:
    found = rooms.Tab(broker, person, tab)
    await found.open()
    return found


async def read(inbox: shoal.Inbox, count: int, ack: bool = True) -> list[str]:
    texts: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while len(texts) < count:
            message = await anext(aiter(inbox))
            texts.append(message.body.decode())
            if ack:
                await message.ack()
    return texts


async def test_who_joins_gets_what_was_said_and_unread_is_counted(broker: shoal.Broker) -> None:
    anna = await opened(broker, "anna", "a1")
    await anna.join("tea")
    for number in range(60):
        await anna.say("tea", f"cup {number}", f"id-{number}")
    ben = await opened(broker, "ben", "b1")
    await ben.join("tea")
    async with broker.consume(ben.queue) as inbox:
        assert await read(inbox, rooms.HISTORY) == [f"cup {number}" for number in range(10, 60)]
    assert await ben.unread() == {"tea": 0}
    assert (await broker.describe_key("room-tea")).queues == 4  # Those of two people and two pages, which read it.
    await anna.say("tea", "are you there?", "id-60")
    assert await ben.unread() == {"tea": 1}
    await ben.read("tea")
    assert await ben.unread() == {"tea": 0}
    await anna.say("tea", "hello?", "id-61")
    assert await ben.unread() == {"tea": 1}
    assert (await opened(broker, "ben", "b2")).queue == "tab-ben-b2"
    await ben.leave("tea")
    assert await ben.unread() == {}


async def test_a_page_that_comes_back_has_lost_nothing(broker: shoal.Broker, cluster: LocalCluster) -> None:
    cleo, dan = await opened(broker, "cleo", "c1"), await opened(broker, "dan", "d1")
    for one in (cleo, dan):
        await one.join("lobby")
    async with broker.consume(dan.queue) as inbox:
        await cleo.say("lobby", "one", "1")
        assert await read(inbox, 1, ack=False) == ["one"]  # The page went before it confirmed.
    await cleo.say("lobby", "two", "2")
    await cleo.tell("dan", "for you", "3")
    async with broker.consume((await opened(broker, "dan", "d1")).queue) as inbox:
        assert sorted(await read(inbox, 3)) == ["for you", "one", "two"]


@pytest.mark.filterwarnings("ignore:Using `httpx`")
async def test_a_page_whose_queue_is_gone_is_told_to_connect_again(
    broker: shoal.Broker, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient

    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    with TestClient(load(EXAMPLES / "chat" / "server.py").application(cluster.redirector)) as client:
        with client.websocket_connect("/chat?person=emil&tab=e1", headers=HERE) as page:
            assert page.receive_json() == {"kind": "rooms", "rooms": {}}
            await broker.drop("tab-emil-e1")
            with pytest.raises(WebSocketDisconnect) as told:
                page.receive_json()
        assert told.value.code == 1012 and "tab-emil-e1" in told.value.reason
        with client.websocket_connect("/chat?person=emil&tab=e1", headers=HERE) as page:
            assert page.receive_json() == {"kind": "rooms", "rooms": {}}
            await broker.publish("private-emil", b"hello", headers={"from": b"x", "id": b"1"})
            assert page.receive_json()["text"] == "hello"


@pytest.mark.filterwarnings("ignore:Using `httpx`")
async def test_a_message_that_is_no_text_is_shown_as_far_as_it_can_and_ends_nothing(
    broker: shoal.Broker, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient

    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    with (
        TestClient(load(EXAMPLES / "chat" / "server.py").application(cluster.redirector)) as client,
        client.websocket_connect("/chat?person=gil&tab=g1", headers=HERE) as page,
    ):
        assert page.receive_json()["kind"] == "rooms"
        await broker.publish("private-gil", b"\xff\xfe\x00a", headers={"from": b"\xffz", "id": b"1"})
        await broker.publish("private-gil", b"text", headers={"from": b"z", "id": b"2"})
        odd = page.receive_json()
        assert (odd["from"], odd["text"]) == ("\ufffdz", "\ufffd\ufffd\x00a")
        assert page.receive_json()["text"] == "text"
        page.send_json({"do": "got", "n": 2})
        page.send_json({"do": "tell", "to": "gil", "text": "to myself", "id": "3"})
        assert page.receive_json()["kind"] in ("said", "message")
        async with asyncio.timeout(WAIT_S):
            while (await broker.describe("tab-gil-g1")).messages != 1:
                pass
    async with asyncio.timeout(WAIT_S), broker.consume("tab-gil-g1") as inbox:
        assert (await anext(aiter(inbox))).body == b"to myself", "what it got is acked"


@pytest.mark.parametrize("steps", range(6))
async def test_a_page_that_is_cancelled_as_it_ends_tells_who_cancelled_it(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Servers cancel by scopes of anyio, which know their own cancellations only."""
    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    server = load(EXAMPLES / "chat" / "server.py")
    left = asyncio.Event()

    class Socket:
        async def send_text(self, text: str) -> None:
            """Takes it."""

        async def receive_text(self) -> str:
            await left.wait()
            raise WebSocketDisconnect(1001)

    async def silent() -> AsyncIterator[shoal.Message]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    async def cancel_later() -> None:
        left.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        scope.cancel()

    with anyio.CancelScope() as scope:
        cancelling = asyncio.create_task(cancel_later())
        await server.Page(None, Socket(), silent()).serve({})
    await cancelling


@pytest.mark.filterwarnings("ignore:Using `httpx`")
@pytest.mark.parametrize(
    ("host", "origin"),
    [("localhost", "http://evil.example"), ("localhost", "null"), ("evil.example", "http://evil.example")],
)
async def test_pages_of_others_get_no_connection(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, host: str, origin: str
) -> None:
    from starlette.testclient import TestClient

    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    application = load(EXAMPLES / "chat" / "server.py").application(cluster.redirector)
    with TestClient(application) as client:
        foreign = client.websocket_connect("/chat?person=eve&tab=e1", headers={"host": host, "origin": origin})
        with pytest.raises(WebSocketDisconnect), foreign:
            raise AssertionError("it is connected")
        own = {"host": "localhost:7480", "origin": "http://localhost:7480"}
        with client.websocket_connect("/chat?person=eve&tab=e1", headers=own) as page:
            assert page.receive_json()["kind"] == "rooms"


async def test_a_notice_is_for_those_that_come_in_time(broker: shoal.Broker) -> None:
    ida, jan, kim = [await opened(broker, person, f"{person}1") for person in ("ida", "jan", "kim")]
    for one in (ida, jan):
        await one.join("hall")
    await ida.notify("hall", "the gate closes", "1", 600)
    await ida.notify("hall", "now", "2", 1)
    await ida.say("hall", "hello", "3")
    async with broker.consume(jan.queue, window_messages=1) as inbox:
        message = await inbox.get(timeout=WAIT_S)
        assert message.body == b"the gate closes" and message.expires_ms == message.time_ms + 600_000
    async with asyncio.timeout(WAIT_S):
        while len(await broker.peek(ida.queue, 10)) != 2:
            pass
    await kim.join("hall")
    gaps: list[shoal.Gap] = []
    async with broker.consume([jan.queue, kim.queue], on_gap=gaps.append) as inbox:
        assert sorted(await read(inbox, 4)) == ["hello", "hello", "the gate closes", "the gate closes"]
    assert {(gap.queue, gap.first, gap.end, gap.why) for gap in gaps} == {
        (one.queue, 2, 3, "expired") for one in (jan, kim)
    }


@pytest.mark.parametrize("seconds", [0, -1, 0.9, rooms.NOTICE_S_MAX + 1, float("nan"), "60", None, True, [60]])
async def test_a_notice_without_a_time_that_fits_is_refused(broker: shoal.Broker, seconds: object) -> None:
    leo = await opened(broker, "leo", "l1")
    await leo.join("attic")
    with pytest.raises(rooms.BadTime, match="1 to 86400 seconds"):
        await leo.notify("attic", "x", "1", seconds)
    assert await broker.peek(leo.queue, 1) == []


@pytest.mark.filterwarnings("ignore:Using `httpx`")
async def test_a_page_is_told_until_when_a_notice_is_valid(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient

    def told(page: Any, kind: str) -> Any:
        while (event := page.receive_json())["kind"] != kind:
            pass
        return event

    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    with (
        TestClient(load(EXAMPLES / "chat" / "server.py").application(cluster.redirector)) as client,
        client.websocket_connect("/chat?person=mia&tab=m1", headers=HERE) as page,
    ):
        page.send_json({"do": "join", "room": "porch"})
        page.send_json({"do": "notify", "room": "porch", "text": "x", "id": "1", "seconds": "soon"})
        assert told(page, "error") == {
            "kind": "error",
            "text": "a notice is valid for 1 to 86400 seconds, not soon",
            "id": "1",
        }
        page.send_json({"do": "notify", "room": "porch", "text": "x", "id": "2"})
        assert told(page, "error")["id"] == "2"
        page.send_json({"do": "notify", "room": "porch", "text": "for a minute", "id": "3", "seconds": 60})
        notice = told(page, "message")
        assert notice["text"] == "for a minute" and notice["until"] == notice["at"] + 60_000
        page.send_json({"do": "say", "room": "porch", "text": "for ever", "id": "4"})
        assert "until" not in told(page, "message")


async def test_people_come_and_go(broker: shoal.Broker) -> None:
    eve, fay = await opened(broker, "eve", "e1"), await opened(broker, "fay", "f1")
    for one in (eve, fay):
        await one.join("garden")
    people = aiter(eve.people("garden"))
    async with asyncio.timeout(WAIT_S):
        async with broker.consume(eve.queue):
            while await anext(people) != ["eve"]:
                pass
            async with broker.consume(fay.queue):
                while await anext(people) != ["eve", "fay"]:
                    pass
            while await anext(people) != ["eve"]:
                pass
    await people.aclose()


async def test_who_is_not_there_is_said(broker: shoal.Broker) -> None:
    gil = await opened(broker, "gil", "g1")
    with pytest.raises(shoal.Unroutable):
        await gil.tell("nobody", "hello", "1")
    with pytest.raises(shoal.Unroutable):
        await gil.say("empty", "hello", "2")


@pytest.mark.parametrize("name", ["", "a" * 33, "a-b", "a b", "<i>", None, 7])
async def test_other_names_are_refused(broker: shoal.Broker, name: Any) -> None:
    hal = await opened(broker, "hal", "h1")
    for wrong in (hal.join, hal.leave, hal.read):
        with pytest.raises(rooms.BadName):
            await wrong(name)
    with pytest.raises(rooms.BadName):
        rooms.Tab(broker, name, "t")


@pytest.mark.filterwarnings("ignore:Using `httpx`")
async def test_frames_that_cannot_be_read_are_answered_and_end_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient

    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    with (
        TestClient(load(EXAMPLES / "chat" / "server.py").application(cluster.redirector)) as client,
        client.websocket_connect("/chat?person=noa&tab=n1", headers=HERE) as page,
    ):
        assert page.receive_json()["kind"] == "rooms"
        for frame in ("[]", "7", "null", "{", "", "[" * 30_000, "1" * 5_000, "{}", '{"do": "got", "n": "x"}'):
            page.send_text(frame)
            if "got" not in frame:
                assert page.receive_json()["kind"] == "error", frame
        page.send_bytes(b"{}")
        assert page.receive_json()["kind"] == "error"
        page.send_json({"do": "join", "room": 7, "id": ["a"] * 100})
        refused = page.receive_json()
        assert refused["kind"] == "error" and len(refused["id"]) == 64
        page.send_json({"do": "tell", "to": "noa", "text": "still here", "id": "1"})
        assert {page.receive_json()["kind"], page.receive_json()["kind"]} == {"said", "message"}


async def test_a_person_is_in_so_many_rooms(broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "ROOMS_MAX", 3)
    ola = await opened(broker, "ola", "o1")
    for number in range(3):
        await ola.join(f"many{number}")
    other = await opened(broker, "ola", "o2")
    for page in (ola, other):
        with pytest.raises(rooms.TooManyRooms, match="ola is in 3 rooms, and may be in 3"):
            await page.join("many3")
        await page.join("many2")
    await ola.leave("many0")
    await other.join("many3")


async def test_a_page_watches_so_many_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    server = load(EXAMPLES / "chat" / "server.py")
    watched: list[str] = []

    class Watching(server.Page):  # type: ignore[misc, name-defined]  # a program, no package
        async def _tell_people(self, room: str) -> None:
            watched.append(room)

    page = Watching(None, None, None)
    for number in range(rooms.ROOMS_MAX + 10):
        page._watch(f"room{number}")
    await asyncio.gather(*page._watches.values())
    assert len(watched) == rooms.ROOMS_MAX


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_frame_of_a_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "chat")
    server = load(EXAMPLES / "chat" / "server.py")
    configs: list[Any] = []

    class Server:
        def __init__(self, config: Any, said: str) -> None:
            configs.append(config)

        async def serve(self) -> None:
            """Serves nothing."""

    monkeypatch.setattr(server, "Server", Server)
    monkeypatch.setattr("sys.argv", ["server.py", "--at", "127.0.0.1:1"])
    await server.main()
    assert configs[0].ws_max_size == server.FRAME_BYTES_MAX
    assert len(json.dumps("\u00fc" * server.TEXT_CHARACTERS_MAX)) * 2 < server.FRAME_BYTES_MAX
