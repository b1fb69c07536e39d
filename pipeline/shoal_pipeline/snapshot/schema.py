"""Defines the tables of a store.

queues    every queue's part on the slice: its bindings, and after how many idle seconds it is dropped (0: never)
keys      every key: its members, the next offset (head), the lowest offset kept (low)
bindings  every binding: from `start` on, done below `cursor`; `end`: where it was unbound with a backlog, else null;
          `messages`: still to get
backlog   every queue that still has something to get: messages, their bodies' bytes, when the oldest was published
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

TABLES: Final[dict[str, StructType]] = {
    "queues": StructType(
        [
            StructField("slice", StringType()),
            StructField("queue", StringType()),
            StructField("bindings", LongType()),
            StructField("expires_after_s", LongType()),
        ]
    ),
    "keys": StructType(
        [
            StructField("slice", StringType()),
            StructField("key", StringType()),
            StructField("partition", IntegerType()),
            StructField("members", LongType()),
            StructField("head", LongType()),
            StructField("low", LongType()),
        ]
    ),
    "bindings": StructType(
        [
            StructField("slice", StringType()),
            StructField("queue", StringType()),
            StructField("key", StringType()),
            StructField("partition", IntegerType()),
            StructField("start", LongType()),
            StructField("cursor", LongType()),
            StructField("end", LongType()),
            StructField("messages", LongType()),
        ]
    ),
    "backlog": StructType(
        [
            StructField("slice", StringType()),
            StructField("queue", StringType()),
            StructField("messages", LongType()),
            StructField("size", LongType()),
            StructField("oldest", TimestampType()),
        ]
    ),
}
