"""Bounds of files, journal and store. Each has its unit and its reason."""

from typing import Final

from shoal_contract.limits import PAYLOAD_BYTES_MAX

STORE_BYTES_MAX: Final = 256 << 30
"""Bytes of LMDB's map: address space, not disk. A store that outgrows it answers ResourceExhausted."""

STORE_READERS_MAX: Final = 126
"""Read transactions at a time, which is LMDB's default: the main process has 16, one a table, and each snapshot
process too."""

STORE_GROWTH_BYTES: Final = 1 << 20
"""Bytes by which the store's file must be able to grow after a failed write, or the disk is full. LMDB writes up to 64
pages at once (256 KiB), so a short write leaves less than that; a file system may want some more for itself."""

STORE_RESERVE_BYTES: Final = 4 << 20
"""Bytes that the store's file has beyond what is written, where the disk has room for them: on a full disk a checkpoint
of drops, purges and acks finds its pages there, 1,000 of them, and the journal is released."""

STORE_MEMORY_SHARE: Final = 2
"""A store smaller than the machine's memory divided by this is read with read-ahead, and warmed after a start."""

LOG_PART_BYTES_MAX: Final = 4000
"""Bytes above which a log row is split. A value that fits one LMDB overflow page (4096 less its header, and some room)
needs no search for consecutive free pages."""

LOCK_WAIT_S_MAX: Final = 30
"""How long a start waits for the checkpointer of a killed main process to finish its commit and release the folder."""

LOCK_RETRY_S: Final = 0.02
"""The time between two attempts to lock the folder."""

SEGMENT_BYTES: Final = 64 << 20
"""Bytes of a journal segment, which is preallocated so that an fdatasync writes no metadata."""

SEGMENT_RESERVE_SHARE: Final = 16
"""The last bytes of a segment, this share of it (4 MiB), are left to what frees room while there is no next segment:
drops, purges, unbinds, acks, and those of the node's own records that free room. 4 MiB hold 100,000 bindings that
are given up."""

APPEND_BYTES_MAX: Final = 32 << 20
"""Bytes of one append to the journal. It fits a segment, and is more than the bound of one record."""

RAW_BYTES_MAX: Final = 1 << 20
"""Bytes of a range of records for a follower, unless its first record alone has more. Reading and checking them takes 2
ms with records of 60 KB, 7 ms with 3 KB, 28 ms with 200 bytes, and appends wait for it."""

RAW_PLACES_MAX: Final = 16
"""Ends of ranges that the journal remembers: one for each follower, and for some that ask again."""

ZERO_FILL_BYTES: Final = 256 << 10
"""A new segment is zeroed in steps of this many bytes, each synced, so that an append's sync never waits for much."""

ARCHIVE_COPY_BYTES: Final = 1 << 20
"""Bytes copied to the archive at a time, where a segment cannot be linked: the loop waits for no more than that."""

ARCHIVE_LOOK_BYTES: Final = 4 << 10
"""Bytes that a look compares at the beginning of a segment and of the archive's copy, and reads of the segment where
that copy ends: one page each. The first has the segment's head, whose nonce no other segment has."""

ARCHIVES_KNOWN_MAX: Final = 12
"""Archives of which a node knows what they got last: more than anybody changes between. They fit one sector."""

LOST_RECORDS_SHOWN: Final = 100
"""Records that a cut of the journal would give up and that are shown one by one; the others are counted by kind."""

PROBLEMS_MAX: Final = 1_000
"""Problems that an offline check lists for one pass. One cause makes many problems, and people read the report."""

assert 2 * APPEND_BYTES_MAX <= SEGMENT_BYTES, "any batch fits a segment that has a head and a few marks"
assert max(RAW_BYTES_MAX, PAYLOAD_BYTES_MAX) + 4096 < APPEND_BYTES_MAX, "any range can be appended, with its mark"
