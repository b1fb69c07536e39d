"""Bounds of files, journal and store. Each with its unit and its reason."""

from typing import Final

STORE_BYTES_MAX: Final = 256 << 30
"""LMDB's map: address space, not disk. A store that outgrows it answers ResourceExhausted."""

STORE_READERS_MAX: Final = 126
"""Read transactions at a time, LMDB's own default: 13 of the broker, as many of each snapshot process."""

STORE_MEMORY_SHARE: Final = 2
"""A store below one such share of the machine's memory is read with its neighbours, and warmed after a start."""

LOG_PART_BYTES_MAX: Final = 4000
"""A log row is split above this: a value of one LMDB overflow page (4096 less its header, and some room) needs no
search for pages in a row."""

LOCK_WAIT_S_MAX: Final = 30
"""How long a start waits for the checkpointer of a killed predecessor to finish its commit and let go of the folder."""

LOCK_RETRY_S: Final = 0.02
"""Between two looks whether it has."""

SEGMENT_BYTES: Final = 64 << 20
"""A journal segment: preallocated, so that an fdatasync writes no metadata."""

APPEND_BYTES_MAX: Final = 32 << 20
"""One append to the journal: fits a segment, above one record's bound."""

ZERO_FILL_BYTES: Final = 256 << 10
"""A segment is zeroed ahead in steps of so many bytes, each synced: it never queues much before an append's sync."""

ARCHIVE_COPY_BYTES: Final = 1 << 20
"""Copied to the archive at one go, where a segment cannot be linked: the loop waits for no more than that."""

PROBLEMS_MAX: Final = 1_000
"""Problems that an offline check lists for one pass: one cause makes many, and a report is read by a person."""

assert APPEND_BYTES_MAX < SEGMENT_BYTES
