"""The board, and the watchers that read it: a slow one is never owed more than the newest map."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shoal_contract.errors import Unavailable
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire
from shoal_redirector.adapters.board import Board
from shoal_redirector.adapters.grpc import RedirectorService
from shoal_redirector.adapters.tally import Tally
from shoal_redirector.core.directory import directory_of
from shoal_runtime.unread import Unread

FIRST = directory_of(PartitionMap.even(["s1", "s2"], 16), {})


class Context:
    """A call's, as far as a watcher needs it."""

    def __init__(self) -> None:
        self.written = asyncio.Queue[bytes](1)
        self.write = self.written.put

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5000"

    async def send_initial_metadata(self, metadata: object) -> None:
        pass


async def watched(board: Board) -> AsyncIterator[wire.WatchMapResponse]:
    """What a watcher gets."""
    context: Any = Context()
    watching = asyncio.ensure_future(RedirectorService(board, Tally(1), Unread()).watch_map(nothing(), context))
    try:
        while True:
            yield wire.WatchMapResponse.FromString(await context.written.get())
    finally:
        watching.cancel()


async def nothing() -> AsyncIterator[bytes]:
    yield b""


def test_before_the_first_map_there_is_no_answer_and_age_grows() -> None:
    board = Board()
    with pytest.raises(Unavailable, match="not seen the partition map"):
        board.newest()
    board.link(True)
    board.show(FIRST)
    assert (board.newest(), board.age_ms) == (FIRST, 0)


async def test_a_waiter_wakes_for_another_directory_and_not_for_an_equal_one() -> None:
    board = Board()
    board.show(FIRST)
    waiting = asyncio.ensure_future(board.after(FIRST))
    board.show(directory_of(FIRST.map, {}))
    await asyncio.sleep(0)
    assert not waiting.done()
    second = directory_of(FIRST.map.moved({0: "s2"}), {})
    board.show(second)
    assert await asyncio.wait_for(waiting, 5) is second


async def test_a_watcher_that_was_slow_gets_one_step_to_the_newest_map() -> None:
    board = Board()
    board.show(FIRST)
    responses = watched(board)
    assert (await anext(responses)).partitions == 16
    current = FIRST.map
    for partition in range(8):
        current = current.moved({partition: "s2"})
        board.show(directory_of(current, {}))
    step = await anext(responses)
    assert (step.map_version, list(step.moved), list(step.owners)) == (9, list(range(8)), [1] * 8)
    nothing_more = asyncio.ensure_future(anext(responses))
    done, _ = await asyncio.wait([nothing_more], timeout=0.1)
    assert not done
    nothing_more.cancel()


async def test_a_cluster_made_anew_with_another_p_is_sent_whole() -> None:
    board = Board()
    board.show(FIRST)
    responses = watched(board)
    await anext(responses)
    board.show(directory_of(PartitionMap.even(["s1"], 4), {}))
    step = await anext(responses)
    assert (step.partitions, list(step.owners)) == (4, [0] * 4)
