"""Imports have places, as exports have: few are read at a time, and one whose client stands still ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal_contract.errors import DeadlineExceeded, ResourceExhausted, ShoalError
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_runtime.aborting import abort
from shoal_slice_node.adapters import bulk_service, import_stream
from shoal_slice_node.adapters.limits import IMPORTS

from .brokers import connections
from .bulk_client import chunk, import_all, imports

WAIT_S = 60
UNREAD = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024))
"""Options of a channel whose transport takes next to nothing for a client that does not read."""
REFUSED = imports({b"queue %d" % number: [b"key %d" % number] for number in range(450)}, [1 << 40] * 450)
"""Every queue of it is refused, so that its answer is long: no offset is so high."""


async def imported(channel: grpc.aio.Channel, run: int = 1) -> int:
    """How many bindings a small import of its own run made."""
    name = b"of run %d" % run
    answers = await import_all(BulkServiceStub(channel), [chunk(1, imports({name: [name]}), bytes([run]) * 16)])
    return sum(answer.bindings_made for answer in answers)


def silent_imports(channel: grpc.aio.Channel, count: int) -> list[asyncio.Future[Any]]:
    call: Any = channel.stream_stream("/shoal.v1.BulkService/Import")
    return [asyncio.ensure_future(call().read()) for _ in range(count)]


async def ended(calls: list[asyncio.Future[Any]]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


def failure_of(calls: set[asyncio.Future[Any]]) -> ShoalError:
    failure = next(iter(calls)).exception()
    assert isinstance(failure, grpc.aio.AioRpcError)
    return from_rpc_error(failure)


async def test_few_imports_of_one_connection_are_read_at_a_time(tmp_path: Path) -> None:
    """600 of them, each in the middle of a request of 2.3 MB, were 1.4 GiB that no share counted."""
    async with connections(tmp_path, 2) as (greedy, honest), asyncio.timeout(WAIT_S):
        calls = silent_imports(greedy, IMPORTS.places_each_max)
        await asyncio.wait(calls, timeout=0.05)
        waits = asyncio.ensure_future(imported(greedy, 1))
        assert not (await asyncio.wait([waits], timeout=0.2))[0], "its own connection has its places"
        assert await imported(honest, 2) == 1
        await ended(calls)
        assert await waits == 1


async def test_of_too_many_imports_that_wait_some_are_refused(tmp_path: Path) -> None:
    async with connections(tmp_path, 1) as (greedy,), asyncio.timeout(WAIT_S):
        calls = silent_imports(greedy, IMPORTS.places_each_max + IMPORTS.waiting_each_max + 3)
        refused: set[asyncio.Future[Any]] = set()
        waiting = set(calls)
        while len(refused) < 3:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        error = failure_of(refused)
        assert isinstance(error, ResourceExhausted) and error.subject == "imports"
        assert "25 wait of your connection" in error.message
        await ended(calls)


async def test_silent_imports_of_many_connections_end_when_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_stream, "IMPORT_STALL_CROWDED_S", 0.2, raising=False)
    connected = IMPORTS.places_max // IMPORTS.places_each_max
    async with connections(tmp_path, connected + 1) as (honest, *greedy), asyncio.timeout(WAIT_S):
        calls = [call for channel in greedy for call in silent_imports(channel, IMPORTS.places_each_max)]
        assert not (await asyncio.wait(calls, timeout=0.5))[0], "alone they have their time"
        assert await imported(honest) == 1
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        error = failure_of(done)
        assert isinstance(error, ResourceExhausted) and "others wait for its place" in error.message
        await ended(calls)


async def test_an_import_whose_answers_are_not_read_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for ever, with all that it had read."""
    monkeypatch.setattr(import_stream, "IMPORT_STALL_S", 0.3)
    errors: asyncio.Queue[ShoalError] = asyncio.Queue()

    async def told(context: Any, error: ShoalError) -> None:
        errors.put_nowait(error)
        await abort(context, error)

    monkeypatch.setattr(bulk_service, "abort", told)
    async with connections(tmp_path, 1, UNREAD) as (channel,), asyncio.timeout(WAIT_S):
        call: Any = BulkServiceStub(channel).Import()
        await call.write(chunk(1, REFUSED))
        await call.done_writing()
        error = await errors.get()
        assert isinstance(error, DeadlineExceeded) and "the client read nothing for 0." in error.message
        assert len((await call.read()).refusals) == 450, "what was written comes all the same"
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


async def test_an_import_that_was_refused_gives_its_place_up_at_once(tmp_path: Path) -> None:
    """Its client need not leave for that, nor end what it sends."""
    async with connections(tmp_path, 1) as (channel,), asyncio.timeout(WAIT_S):
        bad = chunk(1, imports({b"q": [b"k"]}))
        bad.checksum ^= 1
        calls: list[Any] = [BulkServiceStub(channel).Import() for _ in range(IMPORTS.places_each_max)]
        for call in calls:
            await call.write(bad)
            assert (await call.read()).HasField("error")
        assert await imported(channel) == 1
        for call in calls:
            assert await call.read() is grpc.aio.EOF


async def test_an_import_that_repeats_a_chunk_keeps_its_place_for_a_turn_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four connections that each repeated a chunk every 4 s kept all other imports out for good."""
    monkeypatch.setattr(import_stream, "IMPORT_TURN_S", 0.2)
    connected = IMPORTS.places_max // IMPORTS.places_each_max
    async with connections(tmp_path, connected + 1) as (honest, *greedy), asyncio.timeout(WAIT_S):
        calls: list[Any] = [BulkServiceStub(channel).Import() for channel in greedy for _ in range(2)]

        async def repeat(number: int, call: Any) -> None:
            while True:
                await call.write(chunk(1, imports({b"q": [b"k"]}), bytes([number]) * 16))
                await call.read()
                await asyncio.sleep(0.01)

        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(repeat(number, call)) for number, call in enumerate(calls, 10)
        ]
        assert not (await asyncio.wait(tasks, timeout=0.5))[0], "alone they may go on"
        assert await imported(honest) == 1
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert next(iter(done)).exception() is not None
        codes = [call for call in calls if call.done()]
        assert codes and "it ends, resume it" in await codes[0].details()
        await ended(tasks)
        for call in calls:
            call.cancel()
