"""What an inbox gave back, and what comes of the same key meanwhile: nothing overtakes, and nothing goes to and fro
without end."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.inbox_buffer import InboxBuffer
from shoal_contract.limits import WINDOW_MESSAGES_DEFAULT


class Given(SimpleNamespace):
    """A delivery of one message, or more."""

    size_bytes, live, key_bytes = 1, False, b"k"
    handles: list[int]

    def __init__(self, first: int, end: int = 0, handles: Sequence[int] = (1,), **kwargs: Any) -> None:
        super().__init__(first=first, end=end or first + 1, handles=list(handles), given_back=[], **kwargs)

    def leave_out(self, handles: Container[int]) -> bool:
        self.given_back += [one for one in self.handles if one in handles]
        self.handles = [one for one in self.handles if one not in handles]
        return bool(self.handles)


async def given_back(*offsets: int, queues: Sequence[int] = (1,)) -> Any:
    """A buffer that held these messages, and gave them back."""
    buffer: Any = InboxBuffer(dict.fromkeys(queues, b"q"), 1 << 20)
    for offset in offsets:
        await buffer.put(Given(offset))
    buffer.give_back_old({1: 60.0}, 60.0, asyncio.get_running_loop().time() + 61)
    assert not buffer
    return buffer


async def taken(buffer: Any, *offsets: int) -> list[int]:
    """Those of these messages that the inbox has once they have come."""
    for offset in offsets:
        await buffer.put(Given(offset))
    return [buffer.take().first for _ in range(len(buffer._deliveries))]


async def test_a_nacked_message_that_comes_again_lets_nothing_overtake_what_was_given_back() -> None:
    """It was nacked before the others were given back, so it is before them, and none of them."""
    buffer = await given_back(4, 5, 6)
    assert await taken(buffer, 7, 3, 8) == [3], "those behind go back, too"
    assert await taken(buffer, 4, 5, 6, 7, 8, 9) == [4, 5, 6, 7, 8, 9]


async def test_where_those_before_do_not_come_again_the_rest_goes_back_a_few_times_only() -> None:
    """They had expired, or others had them: all that came of the key went to and fro until a time was over."""
    buffer = await given_back(4, 5, 6)
    for _ in range(3):
        assert await taken(buffer, 7, 8, 9) == []
    assert await taken(buffer, 7, 8, 9, 10) == [7, 8, 9, 10]
    buffer = await given_back(4, 5, 6)
    rounds = [await taken(buffer, 6, 7) for _ in range(3)]
    assert rounds == [[], [], [6, 7]], "the others are gone"
    buffer = await given_back(4, 5, 6)
    came = [await taken(buffer, offset, offset + 1) for offset in range(50, 150)]
    assert came.count([]) == 100, "never twice the same"
    shrinking = [await taken(buffer, *range(first, 150)) for first in range(50, 60)]
    assert shrinking[0] == [] and shrinking[-1] == [*range(59, 150)], "others take the first each time"


async def test_what_others_take_each_time_is_not_waited_for_without_end() -> None:
    buffer = await given_back(4, 5, 6)
    most = 3 * WINDOW_MESSAGES_DEFAULT
    assert await taken(buffer, *range(10, 10 + most)) == []
    assert await taken(buffer, 10 + most, 11 + most) == [10 + most, 11 + most]


async def test_what_comes_for_the_first_time_is_not_taken_for_what_comes_again() -> None:
    """The slice took back what it had not sent yet, so what was given back has a hole."""
    buffer = await given_back(*range(10, 20))
    assert await taken(buffer, 30, 20, 21) == []
    assert await taken(buffer, *range(10, 22), 30) == [*range(10, 22), 30]
    buffer = await given_back(10, 11, 15)
    assert await taken(buffer, 12, 9, 20) == [9]
    assert await taken(buffer, 10, 11, 12, 13, 15, 20) == [10, 11, 12, 13, 15, 20]


async def test_a_copy_of_what_went_back_before_overtakes_nothing() -> None:
    """An ack timeout ended while it was on its way, so it came twice: the first copy went back, the second came before
    all that went back before it."""
    buffer = await given_back(44, 45, 46)
    assert await taken(buffer, 134, 47, 135, 136, 135, 136) == []
    assert await taken(buffer, 44, 45, 46, 47, 134, 135, 136) == [44, 45, 46, 47, 134, 135, 136]


async def test_only_the_queue_whose_messages_are_on_their_way_back_waits_for_them() -> None:
    buffer = await given_back(4, 5, 6, queues=(1, 2))
    both = Given(7, handles=(1, 2))
    await buffer.put(both)
    assert (both.handles, both.given_back) == ([2], [1])
    assert buffer.take() is both
    live = Given(0, handles=(1,))
    live.live = True
    await buffer.put(live)
    assert buffer.take() is live, "a live message has no place among them"


async def test_what_an_inbox_remembers_of_what_it_gave_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.inbox_buffer.RETURNING_MAX", 10)
    buffer: Any = InboxBuffer({1: b"q", 2: b"r"}, 1 << 20)
    for number in range(30):
        await buffer.put(Given(1, handles=(1 + number % 2,), key_bytes=b"%d" % number))
    buffer.give_back_old({1: 60.0, 2: 60.0}, 60.0, asyncio.get_running_loop().time() + 61)
    assert [key for _, key in buffer._returning] == [b"%d" % number for number in range(20, 30)]
    buffer.give_back_of({1})
    assert {handle for handle, _ in buffer._returning} == {2}
