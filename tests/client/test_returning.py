"""What an inbox gave back, and what comes of the same key meanwhile: nothing overtakes that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.core.numbered_nacks import NumberedNacks
from shoal.core.returning import NackPlace, Returning
from shoal.eras import Era
from shoal.inbox_buffer import InboxBuffer
from shoal.inbox_delivery import InboxDelivery
from shoal.live_messages import LiveDelivery
from shoal.messages import PartLife
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk


class Slice:
    """Takes nacks when it is told to, and tells in deliveries which it has."""

    def __init__(self) -> None:
        self.nacks = NumberedNacks()
        self.taken = 0
        self.given_back: list[tuple[int, int]] = []
        self.copies: list[tuple[int, int]] = []
        self.era = Era(self, 1, 1)

    def give_back_numbered(
        self, era: Era, key: bytes, first: int, end: int, handle: int
    ) -> list[tuple[int, int, NackPlace]]:
        self.given_back.append((handle, first))
        return [(first, end, (era.stream, self.nacks.add(key, first, end, handle)))]

    def forget_copy(self, era: Era, key: bytes, first: int, end: int, handle: int) -> None:
        self.copies.append((handle, first))

    def ack(self, *_: Any) -> None:
        raise AssertionError

    nack = give_back = note_handed_out = ack

    def check_call(self) -> None:
        raise AssertionError

    def queue_of(self, consumer: int | bytes) -> bytes:
        return b"q"

    def part_of(self, era: Era, handle: int) -> PartLife:
        raise AssertionError

    def takes_nacks(self) -> None:
        self.taken = self.nacks.number

    def delivery(self, first: int, handles: Sequence[int] = (1,), key: bytes = b"k") -> InboxDelivery:
        item = wire.Delivery(key=key, first=first, low=first, to=first + 1, nacks_taken=self.taken)
        return InboxDelivery(item, first, first + 1, Chunk(bodies=[b"x"]), list(handles), self.era)


class Inbox:
    """A buffer that held these messages of one slice, and gave them back."""

    def __init__(self, *handles: int) -> None:
        self.slice = Slice()
        self.buffer = InboxBuffer(dict.fromkeys(handles, b"q"), 1 << 20)

    async def gives_back(self, *offsets: int, key: bytes = b"k", handles: Sequence[int] = (1,)) -> None:
        for offset in offsets:
            await self.buffer.put(self.slice.delivery(offset, handles, key))
        self.buffer.give_back_old({1: 60.0, 2: 60.0}, 60.0, asyncio.get_running_loop().time() + 61)
        assert not self.buffer

    async def gets(self, *offsets: int) -> list[int]:
        """Those of these messages that are handed out once they have come."""
        for offset in offsets:
            await self.buffer.put(self.slice.delivery(offset))
        return self.handed_out()

    def handed_out(self) -> list[int]:
        out = []
        while self.buffer:
            item: Any = self.buffer.take()
            out.append(item.first)
        return out


async def test_what_was_on_its_way_goes_back_and_comes_again_behind() -> None:
    inbox = Inbox(1)
    await inbox.gives_back(4, 5, 6)
    assert await inbox.gets(7, 3, 8) == [3], "what was nacked before is before them"
    inbox.slice.takes_nacks()
    assert await inbox.gets(4, 5, 6, 7, 8, 9) == [4, 5, 6, 7, 8, 9]
    assert not inbox.buffer._returning, "nothing is remembered of what is over"


async def test_what_does_not_come_again_is_not_waited_for() -> None:
    """It had expired, or others have it."""
    inbox = Inbox(1)
    await inbox.gives_back(4, 5, 6)
    assert await inbox.gets(7) == []
    inbox.slice.takes_nacks()
    assert await inbox.gets(6, 9) == [6, 9]


async def test_a_copy_of_what_went_back_before_overtakes_nothing_and_does_not_go_back_again() -> None:
    """An ack timeout ended while it was on its way, so it came twice. If each copy went back, each came again."""
    inbox = Inbox(1)
    await inbox.gives_back(44, 45, 46)
    inbox.slice.given_back.clear()
    assert await inbox.gets(134, 47, 135, 136, 135, 136, 45) == []
    assert inbox.slice.given_back == [(1, 134), (1, 47), (1, 135), (1, 136)]
    assert inbox.slice.copies == [(1, 135), (1, 136), (1, 45)]
    inbox.slice.takes_nacks()
    assert await inbox.gets(44, 45, 46, 47, 134) == [44, 45, 46, 47, 134]


async def test_what_went_back_in_two_frames_comes_in_its_order() -> None:
    """The slice has the first of them and not the second when it goes on, with what is behind both."""
    inbox = Inbox(1)
    await inbox.gives_back(4, 5)
    inbox.slice.nacks.clear()  # They are sent.
    assert await inbox.gets(6, 7) == []
    inbox.slice.taken = 1
    assert await inbox.gets(4, 5, 8, 9) == [4, 5], "6 and 7 are still on their way"
    inbox.slice.takes_nacks()
    assert await inbox.gets(6, 7, 8, 9) == [6, 7, 8, 9]


async def test_on_a_new_stream_nothing_is_on_its_way_back() -> None:
    inbox = Inbox(1)
    await inbox.gives_back(4, 5)
    inbox.slice.era = Era(inbox.slice, 2, 2)
    assert await inbox.gets(5, 6) == [5, 6]


def test_what_is_given_back_goes_although_nothing_looks_at_what_the_call_returns() -> None:
    one = Slice()
    delivery = one.delivery(4, handles=(1, 2))
    delivery.give_back_numbered({1})
    assert (delivery.handles, one.given_back) == ([2], [(1, 4)])


async def test_only_the_queue_whose_messages_are_on_their_way_back_waits_for_them() -> None:
    inbox = Inbox(1, 2)
    await inbox.gives_back(4, 5, 6)
    both = inbox.slice.delivery(7, handles=(1, 2))
    await inbox.buffer.put(both)
    assert (both.handles, inbox.slice.given_back[-1]) == ([2], (1, 7))
    assert inbox.buffer.take() is both
    live = LiveDelivery(wire.Delivery(key=b"k", live=True), 0, 1, Chunk(bodies=[b"x"]), [1], inbox.slice.era)
    await inbox.buffer.put(live)
    assert inbox.buffer.take() is live, "a live message has no place among them"


async def test_what_an_inbox_remembers_of_what_it_gave_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.inbox_buffer.RETURNING_MAX", 10)
    inbox = Inbox(1, 2)
    for number in range(30):
        await inbox.buffer.put(inbox.slice.delivery(1, (1 + number % 2,), b"%d" % number))
    inbox.buffer.give_back_old({1: 60.0, 2: 60.0}, 60.0, asyncio.get_running_loop().time() + 61)
    assert [key for _, key in inbox.buffer._returning] == [b"%d" % number for number in range(20, 30)]
    inbox.buffer.give_back_of({1})
    assert {handle for handle, _ in inbox.buffer._returning} == {2}


def test_what_is_followed_of_one_key_is_bounded() -> None:
    returning = Returning()
    for offset in range(10_001):
        returning.add(offset, offset + 1, (1, offset + 1))
    assert returning.has(10_000, 10_001) and not returning.has(9_999, 10_001), "order may break then, nothing is lost"


def test_the_lowest_that_is_on_its_way_decides() -> None:
    returning = Returning()
    for number, offset in enumerate((30, 50, 10, 40), 1):
        returning.add(offset, offset + 5, (1, number))
    assert not returning.is_behind(10) and returning.is_behind(11)
    returning.taken((1, 2))
    assert not returning.is_behind(10) and returning.is_behind(11) and not returning.has(30, 35)
    returning.taken((1, 3))
    assert not returning.is_behind(40) and returning.is_behind(41)
    assert returning.has(40, 45) and not returning.has(40, 46) and not returning.has(41, 45)
    returning.taken((2, 0))
    assert not returning and not returning.is_behind(1000)


def test_each_nack_has_a_number_in_the_order_of_the_frames() -> None:
    nacks = NumberedNacks()
    numbers = [nacks.add(b"k", first, first + 1, handle) for first in (1, 2) for handle in (7, 8)]
    assert numbers == [1, 2, 1, 2], "ranges that touch go together"
    assert [nacks.add(b"k", 9, 10, 7), nacks.add(b"m", 1, 2, 7), nacks.add(b"k", 3, 4, 8)] == [3, 4, 2]
    blocks = [(b"k", 1, 3, [7]), (b"k", 1, 4, [8]), (b"k", 9, 10, [7]), (b"m", 1, 2, [7])]
    assert list(nacks.take()) == [(1, blocks)] and not nacks
    many = [nacks.add(b"k", 1, 2, handle) for handle in range(25_000)]
    assert many == list(range(5, 25_005))
    frames = list(nacks.take())
    assert [(number, len(block.consumers)) for number, (block,) in frames] == [
        (5, 10_000),
        (10_005, 10_000),
        (20_005, 5_000),
    ]


def test_what_goes_back_again_and_again_is_noted_once() -> None:
    returning = Returning()
    for number in range(1, 1_000):
        returning.add(4, 5, (1, number))
    assert len(returning._lowest) == len(returning._pieces) == 1
    returning.taken((1, 998))
    assert returning.is_behind(5), "the newest nack counts"
    returning.taken((1, 999))
    assert not returning and not returning.is_behind(5)


async def test_what_is_put_back_is_as_old_as_when_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer had been looked at while the program had it: what is left of it was given back too late."""
    inbox, loop = Inbox(1), asyncio.get_running_loop()
    came_s, real = loop.time(), loop.time
    await inbox.buffer.put(inbox.slice.delivery(1))
    taken: Any = inbox.buffer.take()
    with monkeypatch.context() as later:
        later.setattr(loop, "time", lambda: real() + 50)
        await inbox.buffer.put(inbox.slice.delivery(1, key=b"l"))
    inbox.buffer.give_back_old({1: 60.0}, 60.0, came_s + 61)
    assert inbox.slice.given_back == []
    inbox.buffer.put_back([taken])
    inbox.buffer.give_back_old({1: 60.0}, 60.0, came_s + 62)
    assert inbox.slice.given_back == [(1, 1)] and inbox.handed_out() == [1]
