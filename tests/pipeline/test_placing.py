"""Spark places keys as the contract does."""

from __future__ import annotations

from random import Random

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shoal_contract.partition_map import PartitionMap
from shoal_pipeline.bulk.runs import owner_index

PARTITIONS = 64


def test_spark_finds_the_slice_that_the_map_names_for_keys_of_any_bytes(spark: SparkSession) -> None:
    """Among them tags, tags that are not whole, bytes that are no text, and bytes whose digits look like a brace."""
    random = Random(7)
    keys = [b"{room-7}", b"{room-7}/votes", b"@{room-7}anna", b"{}", b"{}a", b"{open", b"@{open", b"a{b}", b"@a{b}"]
    keys += [b"{\xff\x00}x", b"{\xe6\x9d\x91}x", b"@", b"{", b"}", b"{{a}}", b"{\x77\xd7}b", b"{\x07\xd0}b"]
    keys += [bytes(random.choices(b"@{}a\x77\xd7", k=random.randint(1, 9))) for _ in range(500)]
    slices = tuple(f"s{number:02d}" for number in range(PARTITIONS))
    partition_map = PartitionMap(1, slices, tuple(range(PARTITIONS)))
    rows = spark.createDataFrame([(bytearray(key),) for key in keys], "key binary")
    found = [row[0] for row in rows.select(owner_index(F.col("key"), partition_map)).collect()]
    assert [slices[index] for index in found] == [partition_map.owner_of(key) for key in keys]
