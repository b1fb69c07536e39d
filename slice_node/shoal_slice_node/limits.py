"""Bounds of a slice node. Each with its unit and its reason. The contract's bounds are in shoal_contract.limits."""

from typing import Final

from shoal_contract.limits import CHUNK_BYTES_MAX, FRAME_BYTES_MAX, FRAME_OPERATIONS_MAX, NAME_BYTES_MAX

BUCKET_ENTRIES_MEAN: Final = 48
"""Bindings per row of a queue, on average, once it has more than one: 24 bytes each keeps a row within one page."""

BUCKET_ENTRIES_LOW: Final = 16
"""Below this mean a queue gives back its last row."""

BINDINGS_PER_QUEUE_MAX: Final = 100_000
"""Keys of one queue: a login of a tenth of a second."""

PURGE_BINDINGS_MAX: Final = 5_000
"""Bindings looked at by one part of a purge: about 20 ms of the broker. Who asked goes on with the next part."""

REFUSALS_BYTES_MAX: Final = FRAME_BYTES_MAX // 4
"""Texts of refusals in one outcome; further ones have a code only. The largest outcome then fits one answer."""

ANSWERS_KEPT_MAX: Final = 512
"""Answers remembered per producer until it says they arrived; above the client's frames in flight."""

PRODUCER_IDLE_MS: Final = 24 * 3600 * 1000
"""A producer silent for so long is forgotten: an outage that a client may wait out and still resend exactly once."""

DONE_RANGES_MAX: Final = 128
"""Done ranges per binding: 16 bytes each, so that a detail row stays within one page. At the bound nothing more is
sent for the binding until the oldest is acked."""

RECLAIM_ROWS_PER_TURN: Final = 256
"""Reclaim rows handled per journal record: about 5 ms of the broker."""

RECLAIM_NOTED_MAX: Final = 200_000
"""Rows of `reclaim` kept in mind, 50 bytes each; with more, the table is walked."""

LOOK_MEMBERS_PER_TURN: Final = 500
"""Cursors read per turn while a key's lowest is sought: about 2 ms of the broker."""

LOOK_MEMBERS_PER_STEP: Final = 100
"""Of these for one key, before the next key has its turn."""

LOOKS_UNDER_WAY_MAX: Final = 16
"""Keys whose lowest cursor is sought at a time, in turns."""

LOWEST_NOTED_MEMBERS_MIN: Final = 16
"""Of keys with fewer bindings it is not noted who stood lowest: reading all of them again costs as little."""

LOWEST_NOTED_MAX: Final = 50_000
"""Keys of which it is noted who stood lowest, 200 bytes each; with more, the oldest look is forgotten."""

TRIM_DELAY_MS: Final = 500
"""How long a key's consumed rows may wait for a trim when too few of its bindings have moved to pay for one."""

WINDOW_MESSAGES_DEFAULT: Final = 1000
"""Unacked messages per attached queue, if the client names no other."""

WINDOW_BYTES_DEFAULT: Final = 1 << 20
"""Unacked bytes per attached queue, if the client names no other."""

SESSION_BYTES_DEFAULT: Final = 2 << 20
"""Bytes of deliveries under way to one session (not yet taken by the transport): it lags above this."""

SESSION_BYTES_MAX: Final = 64 << 20
"""The most that a client may ask for."""

RESPONSE_BYTES_MAX: Final = FRAME_BYTES_MAX - (256 << 10)
"""Where a response to a session is cut; the rest goes into the next."""

PULL_MESSAGES_MAX: Final = 10_000
"""Messages taken by one pull."""

PARCEL_BYTES_MAX: Final = NAME_BYTES_MAX + 65
"""A delivery besides its chunk and its handles: the key's name and numbers."""

PULL_BYTES_MAX: Final = FRAME_BYTES_MAX // 4
"""Bytes taken by one pull: fits one answer beside a largest chunk."""

PULL_LEASE_MS_DEFAULT: Final = 30_000
"""After so long a message taken by a unary pull and not acked is given out again."""

QUEUES_PER_ATTACH_MAX: Final = 10_000
"""Queues in one Attach."""

DESCRIBE_NAMES_MAX: Final = 1000
"""Queues and keys in one Describe."""

DESCRIBE_BINDINGS_MAX: Final = 10_000
"""Bindings listed in one Describe."""

HTTP_REQUESTS_MAX: Final = 100
"""HTTP requests being answered at a time: a few probe and scrape. More are refused with 429."""

HTTP_CONNECTIONS_MAX: Final = 200
"""HTTP connections. One more ends the one that waits longest."""

HTTP_BODY_BYTES_MAX: Final = 64 << 10
"""A body, which no request here needs."""

HTTP_HEAD_BYTES_MAX: Final = 16 << 10
"""Request line and headers."""

HTTP_IDLE_S: Final = 120
"""An idle HTTP connection is closed: longer than scrapes are apart."""

FIGURES_KEPT_S: Final = 0.2
"""Figures younger than this are given again: asking often costs nothing."""

LIST_ITEMS_DEFAULT: Final = 100
"""Items of a page where the caller names no number."""

LIST_TURN_MS: Final = 2
"""How long the loop may gather a page before everything else gets its turn: its steps take about 1 ms."""

LISTS_AT_ONCE_MAX: Final = 4
"""Lists gathered at a time; others wait. A list of keys keeps a few names of each partition."""

LISTS_WAITING_MAX: Final = 1000
"""Lists that wait for that; more are refused."""

DELIVERED_MARKS_MAX: Final = 100_000
"""Bindings whose highest delivered offset is remembered after their queue was detached, to mark redeliveries."""

ACK_FLUSH_MS: Final = 70
"""Acks gather for so long before they are journaled; with a tick and a sync it stays below MODEL.md's 100 ms."""

ACKS_PER_RECORD_MAX: Final = 4000
"""Acked ranges in one journal record: about 10 ms of the broker."""

PUMP_TURN_BYTES: Final = 256 << 10
"""Read from the log for one lagging queue before others get their turn."""

PUMP_TURN_ROWS: Final = 256
"""The same, in rows."""

# Storage.

PIECE_ROWS_MAX: Final = 5000
"""Rows of a frozen delta sent, or freed, at one go: about 2 ms of the broker's loop."""

PIECE_BYTES_MAX: Final = 1 << 20
"""The same for log rows, which may be long."""

IMPORT_CHUNKS_IN_FLIGHT: Final = 32
"""Chunks of one import read and not yet answered: several group commits, and fewer than the answers kept."""

IMPORT_STALL_FACTOR: Final = 5
"""At so many times the maximum of a delta, while the checkpointer is busy, imports wait; all others at 8 times."""

EXPORT_PAGE_MEMBERSHIPS: Final = 2_000
"""In one page of an export: about 200 KB, and 3 ms of the process that reads it."""

SNAPSHOT_READERS_MAX: Final = 4
"""Exports and verifications of one slice at a time: each is a process, and holds on to the pages of its snapshot."""

SNAPSHOT_WAITERS_MAX: Final = 100
"""Further ones that wait for their turn: every executor of a cluster may ask at once."""

SNAPSHOT_END_S_MAX: Final = 5.0
"""How long such a process may take to notice that nobody listens; then it is killed."""

SNAPSHOT_NICENESS: Final = 5
"""Of such a process: broker and checkpointer go first."""

STORE_BYTES_MAX: Final = 256 << 30
"""LMDB's map: address space, not disk. A store that outgrows it answers ResourceExhausted."""

STORE_MEMORY_SHARE: Final = 2
"""A store below one such share of the machine's memory is read with its neighbours, and warmed after a start."""

LOG_PART_BYTES_MAX: Final = 4000
"""A log row is split above this: a value of one LMDB overflow page (4096 less its header, and some room) needs no
search for pages in a row."""

CHECKPOINTER_RESIDENT_BYTES_MAX: Final = 96 << 20
"""A checkpointer that is at rest and larger than this starts itself anew."""

CHECKPOINTER_ANSWER_S_MAX: Final = 300
"""A checkpointer that has not committed by then counts as dead."""

LOCK_WAIT_S_MAX: Final = 30
"""How long a start waits for the checkpointer of a killed predecessor to finish its commit and let go of the folder."""

SEGMENT_BYTES: Final = 64 << 20
"""A journal segment: preallocated, so that an fdatasync writes no metadata."""

APPEND_BYTES_MAX: Final = 32 << 20
"""One append to the journal: fits a segment, above one record's bound."""

ZERO_FILL_BYTES: Final = 256 << 10
"""A segment is zeroed ahead in steps of so many bytes, each synced: it never queues much before an append's sync."""

assert ANSWERS_KEPT_MAX * 8 < 4096 + 1
assert DONE_RANGES_MAX * 16 + 64 < 4096
assert FRAME_OPERATIONS_MAX <= BINDINGS_PER_QUEUE_MAX
assert PULL_BYTES_MAX + CHUNK_BYTES_MAX + PARCEL_BYTES_MAX < RESPONSE_BYTES_MAX
assert CHECKPOINTER_ANSWER_S_MAX > LOCK_WAIT_S_MAX
assert APPEND_BYTES_MAX < SEGMENT_BYTES

BATCH_BYTES_MAX: Final = 1 << 20
"""Of one group commit: a few milliseconds of disk, so that the next batch need not wait long."""

BATCH_OPERATIONS_MAX: Final = 8_000
"""Operations in one group commit: applying them takes about 50 ms, in slices."""

PENDING_BYTES_MAX: Final = 16 << 20
"""Frames read from sessions and not yet applied; above this sessions are not read."""

ANSWERS_PENDING_MAX: Final = 1024
"""Frames of one session whose answers it has not taken; above this it is not read."""

LARGE_ANSWER_WEIGHT: Final = 128
"""A pull or a describe counts as so many: an answer of up to 4 MiB each, so a session holds about 32 MiB of them."""

LOOP_SLICE_MS: Final = 4
"""How long the loop may apply or read logs before everything else gets its turn."""

DELTA_ROWS_MAX: Final = 120_000
"""Rows changed before a checkpoint begins: the journal tail to replay after a crash, and about 60 MB."""

DELTA_BYTES_MAX: Final = 64 << 20
"""The same in memory."""

DELTA_AGE_MS: Final = 60_000
"""Changes older than this begin a checkpoint, however few."""

TAIL_OPERATIONS_MAX: Final = 400_000
"""Operations journaled above a checkpoint before the next begins: about two seconds of replay."""

TAIL_BYTES_MAX: Final = 256 << 20
"""The same in bytes of records."""

DELTA_STALL_FACTOR: Final = 8
"""At so many times the maximum, while the checkpointer is still busy, applying waits: memory is bounded."""

TICK_MS: Final = 20
"""How often maintenance looks for work: acks to journal, keys to trim, rows to reclaim, leases to end."""

IDLE_MS: Final = 3_000
"""After so long without a change the checkpoint's pages leave the resident memory."""

PRODUCERS_PER_TURN: Final = 100
"""Producer rows looked at per second for idle ones."""

SESSIONS_MAX: Final = 50_000
"""Open sessions and unary calls at a time: file descriptors, and about 50 KB each."""

CHECKPOINT_RETRY_MS: Final = 1_000
"""Between attempts when the checkpointer died or its disk was full."""

ARCHIVE_RETRY_MS: Final = 5_000
"""Between attempts when the archive's volume is full or gone: the journal grows meanwhile, serving goes on."""

ARCHIVE_COPY_BYTES: Final = 1 << 20
"""Copied to the archive at one go, where a segment cannot be linked: the loop waits for no more than that."""

assert ACK_FLUSH_MS >= TICK_MS
assert BATCH_BYTES_MAX + FRAME_BYTES_MAX < APPEND_BYTES_MAX
assert BATCH_BYTES_MAX < FRAME_BYTES_MAX < PENDING_BYTES_MAX
assert BATCH_OPERATIONS_MAX <= FRAME_OPERATIONS_MAX
assert IMPORT_CHUNKS_IN_FLIGHT < ANSWERS_KEPT_MAX
assert IMPORT_STALL_FACTOR < DELTA_STALL_FACTOR

WINDOW_MESSAGES_MAX: Final = 100_000
"""The most unacked messages per queue that a client may ask for: bounds done ranges, and what a session end returns."""

WINDOW_BYTES_MAX: Final = 64 << 20
"""The same in bytes."""

LEASE_S: Final = 10
"""A node silent for so long is gone: long enough for a stall, short enough for a takeover."""

CLAIM_RETRY_MS: Final = 1_000
"""Between attempts to lead the slice while another node's lease runs or etcd is away."""

STOP_S: Final = 2.0
"""How long sessions get to end by themselves when the node stops."""

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Allocations before the cyclic collector looks at each generation: few cycles are made, and a look at all stalls."""

CHECKPOINT_STOP_S: Final = 60
"""How long a clean stop waits for its checkpoint before it leaves the rest to the journal."""

PROBLEMS_MAX: Final = 1_000
"""Problems that an offline check lists for one pass: one cause makes many, and a report is read by a person."""
