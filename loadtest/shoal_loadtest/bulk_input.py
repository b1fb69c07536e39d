"""Writes a population's memberships as a Parquet file, which `shoal pipeline load` takes. It is made once and kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shoal_loadtest.limits import BULK_QUEUES_PER_ROW_GROUP, MEMBERSHIPS_PER_QUEUE
from shoal_loadtest.population import Population, queue_name
from shoal_loadtest.report import say

_SCHEMA = pa.schema([pa.field("queue", pa.string()), pa.field("key", pa.string())])


def made_input(data: Path, population: Population) -> Path:
    """Returns the kept file, and makes it if there is none."""
    path = data / f"memberships-{population.queues}.parquet"
    if path.exists():
        return path
    say(f"making {population.memberships:,} memberships in {path} ...")
    data.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with pq.ParquetWriter(unfinished, _SCHEMA) as writer:
        for first in range(0, population.queues, BULK_QUEUES_PER_ROW_GROUP):
            writer.write_table(
                _rows(population, range(first, min(population.queues, first + BULK_QUEUES_PER_ROW_GROUP)))
            )
    unfinished.rename(path)
    return path


def _rows(population: Population, queues: range) -> pa.Table:
    names = [queue_name(number).decode() for number in queues for _ in range(MEMBERSHIPS_PER_QUEUE)]
    keys = [key.decode() for number in queues for key in population.keys_of(number)]
    return pa.table({"queue": names, "key": keys}, schema=_SCHEMA)
