"""The data source's tables of stores: a real node's, stopped cleanly or killed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shoal_contract.errors import BadCall, Conflict
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk, QueueOptions
from shoal_pipeline.failure import typed

from ..slice_node.node_process import NodeProcess

QUEUES = 30


async def live(folder: Path, *, kill: bool) -> datetime:
    """Anna is in red and blue, and has done two of three in blue; she left green with one message to get. Others are in
    red only. Returns when blue's messages were published."""
    node = await NodeProcess.start(folder)
    async with node.stub() as stub:
        for number in range(QUEUES):
            await stub.Declare(wire.DeclareRequest(queue=b"queue %d" % number))
            await stub.Bind(wire.BindRequest(queue=b"queue %d" % number, keys=[b"red"]))
        await stub.Declare(wire.DeclareRequest(queue=b"anna", options=QueueOptions(expires_after_s=60)))
        await stub.Bind(wire.BindRequest(queue=b"anna", keys=[b"red", b"blue", b"green"]))
        await stub.Publish(wire.PublishRequest(key=b"blue", chunk=Chunk(bodies=[b"1", b"22", b"333"])))
        await stub.Publish(wire.PublishRequest(key=b"green", chunk=Chunk(bodies=[b"4444"])))
        await stub.Unbind(wire.UnbindRequest(queue=b"anna", keys=[b"green"]))
        pulled = await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"anna", messages_max=10)))
        await stub.Ack(wire.AckRequest(acks=[wire.Ack(key=b"blue", low=1, to=3, queues=[b"anna"])]))
    if kill:
        await node.kill()
    else:
        assert await node.stop() == 0
    (time_ms,) = [delivery.time_ms for delivery in pulled.deliveries if delivery.key == b"blue"]
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def read(spark: SparkSession, path: Path, table: str, **options: str) -> list[tuple[Any, ...]]:
    frame = spark.read.format("shoal").options(table=table, ranges="3", **options).load(str(path))
    return [tuple(row) for row in frame.collect()]


async def test_a_stopped_nodes_store_reads_as_tables(spark: SparkSession, tmp_path: Path) -> None:
    published_at = await live(tmp_path / "s07", kill=False)
    queues = read(spark, tmp_path, "queues")
    assert sorted(queues) == sorted(
        [("s07", "anna", 2, 60), *(("s07", f"queue {number}", 1, 0) for number in range(QUEUES))]
    )
    red, blue, green = (partition_of(key, PARTITIONS_DEFAULT) for key in (b"red", b"blue", b"green"))
    assert sorted(read(spark, tmp_path, "keys")) == [
        ("s07", "blue", blue, 1, 4, 1),  # one chunk, never taken apart
        ("s07", "green", green, 0, 2, 1),
        ("s07", "red", red, QUEUES + 1, 1, 1),
    ]
    bindings = read(spark, tmp_path / "s07", "bindings")
    assert len(bindings) == QUEUES + 3
    assert sorted(row for row in bindings if row[1] == "anna") == [
        ("s07", "anna", "blue", blue, 1, 3, None, 1),
        ("s07", "anna", "green", green, 1, 1, 2, 1),
        ("s07", "anna", "red", red, 1, 1, None, 0),
    ]
    ((slice_name, queue, messages, size, oldest),) = read(spark, tmp_path, "backlog")
    assert (slice_name, queue, messages, size) == ("s07", "anna", 2, 7)
    assert oldest.astimezone(UTC) == published_at


async def test_a_killed_nodes_store_is_refused_unless_its_journal_is_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    await live(tmp_path / "s07", kill=True)
    with pytest.raises(Exception, match="stop the node cleanly first") as caught:
        read(spark, tmp_path, "queues")
    assert isinstance(typed(caught.value), Conflict)
    assert read(spark, tmp_path, "queues", journal="ignore") == []
    with pytest.raises(Exception, match="has no slice node's data") as caught:
        read(spark, tmp_path / "s07" / "journal", "queues")
    assert isinstance(typed(caught.value), BadCall)
