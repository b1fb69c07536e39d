"""Defines the columns of an archive's rows, and what each kind of row says.

| kind | one row for each | key | queue | offset | messages | size |
|---|---|---|---|---|---|---|
| declare, drop, purge | queue | | x | | | |
| bind | key of a request | x | x | asked for, else null | | |
| unbind | key of a request | x | x | | | |
| import | key of a queue, or the queue alone | x | x | asked for, else null | | |
| publish | chunk | x | | | in it | of its bodies, bytes |
| configure | key | x | | | | |
| farewell | queue | x, null if taken back | x | | in it | of its body, bytes |
| ack | range | of a transaction | of a transaction | first done | in it | |
| trim | key | | | lowest kept | | |
| reclaim | record | | | | | |
| due | delayed publish, expiry | x | | | | |
| expire | queue | | x | LSN when decided | | |
| said | farewell that is due | x | x, null if it arrived | LSN when it was decided | | |
| own | owned partition | | | | partitions of the cluster | |
| retry | range that came back | | | first | in it | times delivered |
| damaged | damage that was skipped | | | byte in the segment | records lost | bytes |
| other | record of a later version | | | | | |

The archive holds requests as clients sent them, before a slice applied them. So it has neither the offset that a bind
got nor a refusal. A transaction that was refused did nothing, and cannot be told from one that was done. A publish with
`not_before` has a row `publish` when it was kept, and a row `due` when its time had come: it was published then, or it
stays, if the clock had gone back or the key is another slice's. A key whose first messages expire has a row `due`, too.
A farewell has a row `farewell` when it was set, and a row `said` when its time was over: it was published then, unless
it had been set anew, or went to the slice that owns its key. A second row `said`, without a queue, says that it has
arrived there. One that is published because its queue expires has no row. `step` and `request` number the requests in
their record (a request is all or nothing). `producer` and `sequence` are those of its frame, null where the frame has
none. If `sequence` is not above the producer's last one, the frame is a repeat and changed nothing. For kind own,
`sequence` is the map's version. Acks and trims name ids, and the partition is part of an id; acks of transactions have
names. Retries name ids, too: their `step` is 0 for messages that are given again, 1 for those that are done and copied
to the queue's dead-letter key, 2 where the copies are on another slice. A copy gives no row of its own.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

KINDS: Final = (
    *("declare", "bind", "unbind", "publish", "drop", "purge", "import", "configure", "farewell"),
    *("ack", "trim", "reclaim", "own", "expire", "retry", "due", "said", "damaged", "other"),
)

SCHEMA: Final = StructType(
    [
        StructField("time", TimestampType()),
        StructField("lsn", LongType()),
        StructField("slice", StringType()),
        StructField("kind", StringType()),
        StructField("key", StringType()),
        StructField("queue", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("messages", LongType()),
        StructField("size", LongType()),
        StructField("step", IntegerType()),
        StructField("request", IntegerType()),
        StructField("producer", BinaryType()),
        StructField("sequence", LongType()),
    ]
)
"""The schema of all columns. A reader may be given fewer of them, or names as BinaryType: then names are bytes."""
