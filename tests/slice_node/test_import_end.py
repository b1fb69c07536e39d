"""An import's end, which comes behind its chunks: it is answered also where the slice takes nothing any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_slice_node.core.node.commit import Item

from .brokers import connected, running
from .bulk_client import chunk, import_all, imports

WAIT_S = 30


@pytest.mark.parametrize("refused", [False, True])
async def test_an_import_whose_end_fails_gets_every_answer_and_ends(
    refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung until the slice's role was over. A chunk that is refused is answered at the end."""
    chunks = [chunk(1, imports({b"q": [b"k"]})), chunk(2, imports({b"q": [b"l"]}))]
    if refused:
        chunks[1] = wire.ImportRequest(run=chunks[1].run, chunk=2, change=chunks[1].change, checksum=1)
    failed: list[ShoalError] = []

    def fails(item: Item) -> Item:
        """The item in its place among others, where it fails."""

        def fail(_: object) -> None:
            failed.append(Unavailable("the slice stops"))
            item.failed(failed[-1])

        return Item(item.kind, None, fail, fail)

    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(WAIT_S):
        submit = broker.commit_loop.submit
        replaced = lambda item, source: submit(fails(item) if item.payload is None else item, source)  # noqa: E731
        monkeypatch.setattr(broker.commit_loop, "submit", replaced)
        answers = await import_all(BulkServiceStub(channel), chunks)
    assert len(failed) == 1
    assert [(answer.chunk, answer.HasField("error")) for answer in answers] == [(1, False), (2, refused)]
