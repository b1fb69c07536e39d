"""Keeps the core's bounds, each with its unit and its reason. The contract's bounds are in shoal_contract.limits.

Long because all bounds of the core are in one place.
"""

from typing import Final

from shoal_contract.limits import (
    CHUNK_MESSAGES_MAX,
    FRAME_BYTES_MAX,
    FRAME_OPERATIONS_MAX,
    KEY_UNACKED_MAX,
    NAME_BYTES_MAX,
)

# Rows.

BUCKET_ENTRIES_MEAN: Final = 48
"""Mean number of bindings per row of a queue that has more than one row: at 24 bytes each, a row stays within a page.
"""

BUCKET_ENTRIES_LOW: Final = 16
"""If the mean number of bindings per row is below this, a queue gives up its last row."""

BUCKET_ENTRIES_MAX: Final = 512
"""A row of a queue takes so many bindings (but see RoomInBuckets). Ids of keys are spread over rows by
a checksum which everyone can compute, so who makes millions of keys can choose those of one row. Without that rows have
up to some 130, in a queue of any size. A row of 512 takes 0.1 ms to read and write."""

KEY_NUMBERS_TRIED_MAX: Final = 512
"""Numbers that are tried for a new key until one has room in its queue's row. So many lie in over 200 rows, and fewer
have so many bindings as they may, even where a queue has BINDINGS_PER_QUEUE_MAX."""

BUCKET_LAYOUT_ENTRIES_MAX: Final = 128
"""Bindings of a row up to which its layout is kept for the next row of this size: 12 KB for 128, and 2 MiB for all
sizes. A larger one is made anew each time, in less time than it takes to use it."""

BINDINGS_PER_QUEUE_MAX: Final = 100_000
"""Keys that one queue may be bound to: a login then takes a tenth of a second."""

ANSWERS_KEPT_MAX: Final = 512
"""Answers remembered per producer until it says that they arrived: more than the client has frames in flight."""

DONE_RANGES_MAX: Final = KEY_UNACKED_MAX
"""Done ranges per binding, 16 bytes each in its detail row. Messages that are out count too, so that acking every
second message makes no more ranges. At the bound only the lowest message is given. Clients know the bound: they say
why nothing comes. It is at least as many as a chunk may have messages."""

AWAY_RANGES_MAX: Final = DONE_RANGES_MAX // 2
"""If its backlog of a key has as many done ranges, a queue cannot bind the key again: the rest is left for acks."""

COUNTED_RANGES_MAX: Final = 4 * DONE_RANGES_MAX
"""Stretches of a binding's messages with a count of deliveries, 20 bytes each in its detail row. Only what was given
and is not done has a count, and DONE_RANGES_MAX bounds that; beyond, the highest counts are forgotten."""

OPTIONS_KEPT_MAX: Final = 1_000
"""Different options of queues whose decoded values are kept: most queues have one of few."""

REFUSALS_BYTES_MAX: Final = 64 << 10
"""Bytes of refusals with texts in one outcome; further refusals have code and figures only. Forming so many texts takes
a few ms, and the largest outcome fits one answer."""

DONE_RANGES_PER_COST: Final = 16
"""Done ranges of a binding that cost about as much, when they are read and written again, as one ack, as one more key
in a step of a record, or as one more binding in a purge: a row of 2,000 takes 0.2 ms, and has a step of its own."""

DONE_RANGES_COPIED_PER_COST: Final = 256
"""Done ranges of a row that cost as much as one ack where the row is only read or copied, and a few of its ranges are
looked at: a row of 4,096 takes 20 us to read, and some 50 to take an ack in."""

RANGES_PRICE_MAX: Final = 16_384
"""What the done ranges of all bindings that a change binds or unbinds may add to its price, in operations; what is
beyond is not looked up. So much takes over 100 ms at the price of others' operations, and really some 20."""

NEW_RANGES_UNPRICED_MAX: Final = 100 * DONE_RANGES_PER_COST
"""Done ranges that were perhaps made since a change of binds and unbinds was priced, at which it is priced again when
it is written: 100 operations. A price takes two look-ups for each queue."""

NEW_RANGE_BYTES: Final = 2
"""The fewest bytes that a record has for each done range that it makes: two short numbers in the chunk of an import. An
ack has more."""

# Letters.

DEAD_LETTER_HOPS_MAX: Final = 2
"""Dead-letter keys that one message may come to, one after the other. If n queues of each key cannot do it, n copies of
it become n times n at the second key, and so on. The check for circles looks at two keys, too: where the message was
published first, and where it is."""

LETTERS_PER_LINE: Final = 8
"""Letters (dead letters, farewells) that are under way to one key of another slice at a time, while it takes them: half
of what the courier sends at a time."""

LETTER_AGAIN_MS: Final = 1_000
LETTER_AGAIN_MS_MAX: Final = 32_000
"""How long a line of letters (dead letters, farewells) pauses after one could not be brought, and at most: each pause
is twice as long as the one before. Each try costs the other slice a record."""

DEAD_LETTERS_LOOKED_AT: Final = 1_000
"""Dead letters of messages that are gone, passed in one step: about 1 ms."""

DEAD_LETTERS_OF_A_STRETCH: Final = 32
"""Dead letters of messages in a row that are sent before others for the same key: they are of one chunk, most often,
which is decoded once."""

DEAD_LETTER_BYTES_OPENED: Final = 256 << 10
"""Bytes of chunks that are decoded to find the next letter, in one step: about 1 ms. The last one may exceed it."""

FAREWELLS_OF_SLICE_BYTES_MAX: Final = 4 << 30
"""Bytes that the farewells of a slice take, with their keys: they stay on its disk as long as their queues."""

FAREWELLS_BYTES_PER_RECORD: Final = 4 << 20
"""Bytes of farewells that one FAREWELL or EXPIRE record publishes: as a DUE record. The last one may exceed it. Their
number is that of LEFT_PER_RECORD_MAX."""

FAREWELL_LETTERS_WAITING_MAX: Final = 10_000
"""Letters of farewells to other slices that are noted in memory, about 300 bytes each; the others wait on disk. Of a
key that takes none only one is noted."""

FAREWELL_LINES_FORGOTTEN_MAX: Final = 64
FAREWELL_LINES_FORGOTTEN_MS: Final = 100
"""If FAREWELL_LETTERS_WAITING_MAX keys take none, so many of them are forgotten in each so many ms, until the next
round, so that others are tried. All letters of a slice that is away are tried so, a million in half an hour, for a
percent of the time."""

FAREWELL_LETTER_REFUSED_MS: Final = 3_600_000
"""If a key at its capacity refuses all farewells of another slice for so long, each that it refuses from then on ends.
"""

FAREWELL_LETTERS_PER_REST_MS: Final = 10
"""Letters that a round looked at, for each millisecond of rest before the next round: it looks at 50 in a millisecond.
"""

FAREWELL_LETTERS_PER_STEP: Final = 64
"""Letters of farewells that are looked at in one step for one that may be sent; no more once they have
FAREWELL_LETTER_BYTES_OPENED: 1 ms."""

FAREWELL_LETTER_BYTES_OPENED: Final = 256 << 10
"""Bytes of letters that are looked at in such a step. The last one may exceed it."""

FAREWELL_LETTERS_PER_RECORD_MAX: Final = 500
"""Letters of farewells that one FAREWELL record takes away, once they are where they belong: under 2 ms."""

# Times of queues left.

LEFT_PER_RECORD_MAX: Final = 500
"""Transient queues that one EXPIRE record drops, and their bindings up to DROP_BINDINGS_MAX; or queues whose farewell
one FAREWELL record publishes: about 5 ms."""

LEFT_TIMES_MAX: Final = 200_000
"""Transient queues, and as many queues with a farewell, that a leader keeps a time for, each about 250 bytes. Queues
beyond them share slots, and are found by walks over the tables: they end a little later."""

LEFT_SLOTS: Final = 1 << 20
"""Times that queues share if there are more of them: 8 MiB. Queues are numbered one after the other, so with a million
of them hardly two share one; where two do, both end after the one that was left last."""

LEFT_WALKED_PER_TURN: Final = 200
"""Rows of transient queues, or of farewells, that a walk looks at in one turn: 10,000 a second, 0.4 ms each turn."""

LEFT_TIMED_PER_TURN: Final = 500
"""Queues that are given a time in one turn, and ends that are looked at: 25,000 a second, 1 ms each turn. A queue that
was left and waits for its time ends later by as much."""

LEFT_WALK_REST_MS: Final = 10_000
"""The rest between two walks over the queues that have no time of their own."""

LEFT_STALE_MAX: Final = 1_000
"""Times that are over because a farewell was set anew, and stand in line until the next rebuild."""

# Due and history.

DELAY_MS_MAX: Final = 366 * 86_400_000
"""How far ahead a publish may be delayed: a year. A later time is most likely one in another unit."""

DELAYED_CHUNKS_MAX: Final = 1_000_000
DELAYED_BYTES_MAX: Final = 4 << 30
"""Delayed publishes of a slice, and the bytes of their chunks, with headers: they stay on its disk until their time,
whatever consumers do."""

DELAYED_SHARE_OF_KEY: Final = 4
"""One key has up to a quarter of either, so that it does not close `not_before` to all others."""

DUE_PER_RECORD_MAX: Final = 500
DUE_BYTES_PER_RECORD: Final = 4 << 20
"""What one DUE record does at most: about 5 ms, in steps. The bytes are those of whole chunks; the last one may exceed
them."""

DUE_BYTES_PER_STEP: Final = 256 << 10
"""Bytes of chunks after which a step ends: under 1 ms, or one large chunk."""

DUE_EARLY_NOTED_MAX: Final = 10_000
"""Rows noted in memory that came in before those that were looked at already; with more, the table is scanned anew."""

DUE_AGAIN_MS: Final = 60_000
DUE_AGAIN_MS_MAX: Final = 3_600_000
"""After this time a delayed publish is looked at again whose key is another slice's when it is due, or is full; after
each further look after twice that time, at most an hour. A million of them cost half a minute each time."""

EXPIRED_ROWS_PER_STEP: Final = 512
EXPIRED_ROWS_PER_RECORD: Final = 4_096
"""Log rows whose headers a DUE record looks at for what has expired, of one key and of all of its keys, which have
equal parts: about 2 ms, and 16 ms in steps. One record each 20 ms gives up 25,000 chunks of one key a second."""

EXPIRED_ROWS_PER_OPERATION: Final = 16
"""Log rows that count there as one operation more."""

EXPIRED_ROWS_AT_CAPACITY: Final = 32
"""Log rows that a publish to a full key looks at for what has expired: 0.1 ms."""

HISTORY_ROWS_PER_LOOK: Final = 32
"""Log rows whose headers are looked at for what is too old for a key's history: 0.2 ms."""

HISTORY_MESSAGES_PER_TRIM: Final = 10_000
"""Messages that one trim removes from a history by age, or one chunk more: 1 ms. The rest follows, some 40 times a
second."""

HISTORIES_PER_TURN: Final = 40
HISTORIES_REST_MS: Final = 1_000
"""Keys with a history by age that are looked at in one turn, 2,000 a second, and the rest after all of them."""

# Steps of records, and background work.

PURGE_BINDINGS_MAX: Final = 1_000
"""Bindings looked at by all purges of one record: about 4 ms of the broker. The caller goes on with the next part.
DONE_RANGES_PER_COST done ranges of a binding count as one binding more."""

CHANGE_ACKS_COST_MAX: Final = 4_096
"""What the ranges of all bindings that a change acks may cost, DONE_RANGES_PER_COST of them one operation: 16 bindings
with the most done ranges, about 40 ms of the broker, in steps. Acks of further bindings are refused, as each would read
and write thousands of ranges; a binding that stands in one step often is read and written once."""

CHANGE_ACKS_PRICE_MAX: Final = 1_000
"""What this may add to the price of a change. The price assumes the most ranges for each binding, and few bindings have
them; a change with really so many takes longer than was counted."""

ACKED_IN_CHANGE_PER_STEP: Final = 64
"""Acks of one binding that a change applies in one step: under 1 ms."""

BIND_BACKS_NOTED_MAX: Final = 16_384
"""Binds below their key's head that are noted for acks under way, 350 bytes each. They fill many batches, while acks
wait for two or three batches. Acks taken before a forgotten bind are taken again."""

BIND_BACKS_FORGOTTEN_MAX: Final = 1_000
"""Noted binds that one ACKS record forgets at most: about 1 ms."""

ADVANCED_NOTED_MAX: Final = 50_000
"""Keys with cursors that advanced, noted to be scanned for trims, up to 340 bytes each (measured: 255 to 333): 17 MB.
Others are passed over, also in a replayed tail: a walk over the keys finds them, once a checkpoint has them."""

ADVANCED_NOTED_MANY: Final = 10_000
"""While more keys are noted, each turn of the search for lowest cursors takes twice as much: 12,500 small keys a
second, some 4 ms of each 20."""

FULL_NOTED_MAX: Final = 10_000
"""Keys that had no room for a publish, noted beyond ADVANCED_NOTED_MAX: they wait behind no others. A further one is
noted when something is published again."""

FULL_LOOKED_AT_MAX: Final = 32
"""Keys that had no room for publishes of one record and are looked at at once, for what may be trimmed of them: each
about 10 us. Else those that are really full, and are published to again and again, would have all of these places."""

FULL_LOOKED_AT_MEMBERS_MAX: Final = 8
"""The most bindings of a key that is looked at so."""

FULL_LOOKED_AT_STEPS_MAX: Final = 4
"""Pages of such a key's members that are looked at so: two, but where it had many members before."""

LINED_MAX: Final = 2_500
"""Keys of one size that wait in line for this search, where they have 8 bindings and more: in ten lines half of
ADVANCED_NOTED_MAX. The walk finds the others. So they hold up no keys of few bindings, however many there are."""

RECLAIM_NOTED_MAX: Final = 200_000
"""Rows of `reclaim` noted in memory, 50 bytes each; with more, the table is walked."""

SCAN_MEMBERS_PER_TURN: Final = 500
"""Cursors read in one turn of the search for lowest cursors, or twice as many: about 2 ms of the broker."""

SCAN_MEMBERS_PER_STEP: Final = 100
"""Cursors read for one key before the next key has its turn."""

CURSOR_SCANS_MAX: Final = 16
"""Keys of one size that are searched for their lowest cursor at the same time, in turns."""

SCAN_SIZES: Final = 6
"""Sizes of keys, by their bindings, that take turns in this search: the largest is that of 32,768 and more."""

SCAN_SIZES_BITS: Final = 3
"""A key of one size has up to 8 times the bindings of the next smaller size."""

SCANS_LINED_PER_TURN: Final = 200
"""Keys that are lined up for this search in one turn, or twice as many, of those that were full, of those with many
advances and of those that have waited: each costs about 3 us. More than a turn can search."""

LOWEST_NOTED_MEMBERS_MIN: Final = 16
"""Keys with fewer bindings get no note of the lowest one: reading all of their bindings again costs as little."""

LOWEST_NOTED_MAX: Final = 50_000
"""Keys with a note of the binding with the lowest cursor, 200 bytes each; with more, the oldest note is forgotten."""

TRIM_DELAY_MS: Final = 500
"""How long a key's consumed rows may wait for a trim when too few of its cursors have advanced to pay for one."""

AGE_BIND_COST: Final = 4
"""Operations that the first bind by age of a key in a change costs; others cost 1. It looks at the headers of up to
some 25 log rows of a large key, 0.2 ms."""

APPLIED_PER_STEP: Final = 16
"""Keys or queues of a record that are applied in one step: under 1 ms. Between steps, work outside of the core goes on.
"""

IMPORTED_PER_STEP: Final = 64
"""Keys of one queue that a chunk of an import binds in one step: under 1 ms. With APPLIED_PER_STEP, large queues would
take twice as long, as each step writes its buckets."""

DROP_BINDINGS_MAX: Final = 1_000
"""Bindings ended at once by the drops of one record, about 4 ms; the rest is reclaimed in the background."""

EMPTY_BINDINGS_MAX: Final = 1_000
"""Bindings looked at for a backlog by the drops of one record that are to be of empty queues: about 3 ms. A queue with
more cannot be dropped so."""

DROPPED_WITH_BINDINGS_MAX: Final = 100
"""A step that drops more queues leaves all their bindings to the background: so a storm of drops is answered soon."""

PRICED_QUEUES_MAX: Final = 250
"""Queues that a change may purge, or drop, for its price to be looked up: under 1 ms. A change with more is assumed to
use up the budget of a record."""

RECLAIM_COST_PER_TURN: Final = 500
"""Cost of one RECLAIM record at most, in bindings: about 2 ms, once a tick. So a storm of drops is reclaimed in the
background: 25,000 bindings a second."""

RECLAIMED_PER_STEP: Final = 200
"""Cost of what a RECLAIM record does in one step, in bindings: under 1 ms. A step ends one bucket more at most."""

RECLAIM_QUEUE_COST: Final = 2 * BUCKET_ENTRIES_MEAN
RECLAIM_KEY_COST: Final = 2
"""Cost of reclaiming one row, in bindings: a bucket of bindings and as many details; a key."""

FAIR_QUANTUM: Final = 100
"""Operations that a source gets in its turn, if several sources wait: a largest frame waits for ten rounds."""

FAIR_BYTES_PER_OPERATION: Final = 1_024
"""Bytes of a large item that count there as one operation: a disk takes about as long for them as the broker for one.
"""

KEYS_WALKED_PER_TURN: Final = 200
"""Keys looked at in one turn of the walk over all keys: 10,000 a second, 0.3 to 0.7 ms each turn."""

PRODUCERS_PER_TURN: Final = 40
"""Producers looked at in one turn: 2,000 a second, 0.2 ms each turn."""

PRODUCER_COST_MAX: Final = 1_000
"""About how many answers one RECLAIM record deletes for idle producers: the last producer may exceed it."""

PRODUCER_SAMPLE_MS: Final = 600_000
"""How exactly a producer's silence is measured: 150 samples a day."""

LEASES_PER_TURN: Final = 1_000
"""Leases that are over and are lined up to be ended in one tick: about 2 ms. They are ended in turns, of each session
in turn."""

LISTED_PER_COST: Final = 50
"""Parcels that wait for a session and are listed, for what one costs that is taken back."""

UNSENT_PER_COST: Final = 3
"""Parcels or ranges that were not sent, and are listed for nacks, for what one ack costs."""

LOOKED_AT_PER_COST: Final = 10
"""Streams, or stretches of one, that are looked at to find what is to be taken back, for what one costs that is."""

UNSENT_LISTS_MAX: Final = 1_000
"""Bindings of which one frame of nacks remembers what was not sent."""

LEASE_COST: Final = 10
"""What the end of a lease costs, in stretches."""

WITHDRAWN_PER_STEP: Final = 100
"""Parcels for a session that does not read that are taken back in one step: about 0.5 ms."""

DESCRIBE_BINDINGS_MAX: Final = 200_000
"""Bindings of all queues named by one Describe: about a second of work, in turns. A largest queue can be described."""

DESCRIBE_LISTED_MAX: Final = 10_000
"""Bindings listed in one Describe: the answer fits a frame."""

DESCRIBE_RANGES_PER_BINDING: Final = 8
"""Done ranges of a binding that count there as one binding more, at 1 to 3 us each. Rounded down, so that a largest
queue can be described even if its bindings have a few done ranges each."""

READ_ROWS_PER_STEP: Final = 100
"""Bindings, keys or done ranges read in one step of a Describe: about 1 ms."""

DESCRIBED_RANGES_PER_COST: Final = 8
"""Done ranges that cost as much as a row in a Describe, besides the rows in which they begin and end: about 10 us."""

CONSUMERS_PER_COST: Final = 128
"""Sessions that consume a queue whose unacked messages are added at the cost of one row in a Describe: about 10 us."""

WALKED_IDS_MAX: Final = 128
"""Bindings of a bucket that a walk keeps the ids of from step to step: 5 KB. Most buckets have some 50."""

WALKED_RANGES_PER_COST: Final = 64
"""Done ranges that cost as much as a row, where a walk over bindings decodes them: about 10 us."""

WALKED_RANGES_PER_STEP: Final = 4_096
"""Done ranges decoded in one step of a list of bindings: about 0.7 ms."""

SIZED_PER_COST: Final = 16
SIZED_BYTES_PER_COST: Final = 8 << 10
"""Messages, and bytes, of a chunk that count there as one row when the sizes of its messages are summed."""

LOG_ROWS_PASSED_MAX: Final = 4
"""Log rows skipped on the way to a later offset before its row is sought: skipped rows are read in vain."""

LOG_BYTES_PASSED_MAX: Final = 16 << 10
"""After a larger row, the wanted row is sought: reading a row of this size in vain takes 20 us, more than a look-up."""

LOG_BYTES_PER_COST: Final = 32 << 10
"""Bytes of a log row that count as one small row more: a largest row takes about 0.4 ms to read."""

CUT_SHARE: Final = 4
"""If a part has fewer than one in so many of its chunk's messages, it is sent without the rest: all parts of a chunk
together take at most so many times what the chunk takes."""

CUT_CHUNK_BYTES_MIN: Final = 1 << 10
"""A smaller chunk is not cut: the rest of a delivery takes about as much."""

CUT_MESSAGES_PER_COST: Final = 256
"""Messages of a chunk that is decoded to be cut that count as one small log row; its bytes count as read once more."""

QUEUES_PER_ATTACH_MAX: Final = 1_000
"""Queues in one Attach: about 10 ms of work, in turns, besides making the streams of each."""

DETACH_HANDLES_MAX: Final = 10_000
"""Handles in one Detach: about 10 ms of work, in turns."""

ACKS_PER_FRAME_MAX: Final = 2_000
ACKED_CONSUMERS_PER_FRAME_MAX: Final = 12_000
"""Acks in one frame, and the handles and queues that they name: about 20 ms of work, in turns."""

ACK_BYTES_PER_FRAME_MAX: Final = 256 << 10
"""Bytes of the acks in one frame: names cost more than handles. Four times what the client sends."""

FRAME_KEPT_BYTES: Final = 2_048
ACK_KEPT_BYTES: Final = 640
OPERATION_KEPT_BYTES: Final = 400
ATTACHED_NAME_KEPT_BYTES: Final = 140
DESCRIBED_NAME_KEPT_BYTES: Final = 64
HANDLE_KEPT_BYTES: Final = 12
"""Memory of a parsed frame that waits for its turn, besides its bytes: of each frame, ack or nack, operation of a
change, name to attach or describe, and handle (measured). A frame of 2,000 small acks takes 45 times its bytes, one of
1,000 small publishes 33 times."""

FRAME_ITEM_BYTES_MIN: Final = 6
"""The least bytes of an ack or an operation in a frame."""

NACKS_NUMBER_MAX: Final = 1 << 62
"""The highest number of nacks: those behind it in a frame fit 64 bits, too."""

ACKED_PER_STEP: Final = 500
"""Handles acked in one step: under 1 ms."""

STRETCHES_PER_PIECE: Final = 64
"""Stretches of a binding that are settled at a time, of an ack or nack: so many that are out, done ranges and stretches
that rest. With more, a step would last as long as one binding has stretches: 2,048 that are acked take 5 ms."""

STRETCHES_LOOKED_AT_PER_COST: Final = 4
"""Done ranges, and stretches that rest, that an ack of a lost stream passes over for the cost of one ack."""

BINDING_READ_COST: Final = 5
"""What reading one binding from the tables costs, in acks: a row of its queue, and often another one."""

DESCRIBE_NAMES_MAX: Final = 1_000
"""Queues and keys in one Describe."""

EXPORTED_RANGE_BYTES_MAX: Final = 20
"""Bytes that a done range takes in a page of an export, at most: two offsets."""

EXPORTED_MEMBERSHIP_BYTES_MAX: Final = 40
"""Bytes that a membership takes there, at most, besides its key and its done ranges: three offsets, a number and what
comes with each field; and a queue, besides its name."""

# Commits and the node's own records.

PRODUCER_IDLE_MS: Final = 24 * 3600 * 1000
"""A producer silent for so long is forgotten. A client may wait out a shorter outage and still resend exactly once."""

ACK_FLUSH_MS: Final = 70
"""How long acks gather before they are journaled; with a tick and a sync this stays below the 100 ms that
docs/concepts.md promises."""

ACK_COST_PER_RECORD: Final = 250
"""Acked ranges in one journal record, plus what their done ranges cost: under 5 ms of the broker."""

ACK_COST_PER_FLUSH: Final = 2_000
"""What one flush takes: acked ranges, their bindings, and what their done ranges cost. That is one batch, some 10 ms of
the broker. Sessions have turns, and the rest follows at once. The last queue may exceed it."""

ACK_FEEDS_NAMED_MAX: Final = 64
"""Different queues of a frame of acks that are kept until it is answered. A frame with more, or with more names in one
ack, waits for all acks that came before."""

ACK_RECORDS_PER_TURN: Final = 32
"""ACKS records under way at a time: further acks of the flush follow as these are applied."""

BATCH_BYTES_MAX: Final = 1 << 20
"""Bytes in one group commit: a few milliseconds of disk, so that the next batch need not wait long."""

BATCH_OPERATIONS_MAX: Final = 2_000
"""Operations in one group commit: applying them takes about 10 ms, in slices, and other requests wait for no more than
two commits."""

APPLIED_WHOLE_MAX: Final = 64
"""A record of fewer operations is applied in one step: 3 ms at most."""

# Dispatch: what its work costs, and what it keeps in memory.

INLINE_STREAMS_MAX: Final = 400
"""Streams made, or looked at, at once when a queue is attached or detached: about 1 ms; more are done in turns."""

AT_ONCE_MAX: Final = 1_000
"""What is done at once of sessions that end, and queues that are attached, detached or forgotten, until the pump has
its next turn: streams reached, and STREAMS_PER_HANDLE for each queue. About 4 ms; the rest has turns. The last one may
exceed it by INLINE_STREAMS_MAX."""

STREAMS_PER_HANDLE: Final = 8
"""Streams made, or parcels that were not sent listed, for what it costs to attach or detach one queue."""

ATTACHED_AT_ONCE_MAX: Final = 50
"""Sessions that one record attaches at once, where it creates queues that they wait for, or drops those that they
consume: about 1 ms; others in turns."""

ATTACHED_PER_STEP: Final = 25
"""Queues attached or detached in one step: about 1 ms."""

LOAD_DETAILS_PER_STEP: Final = 256
"""Detail rows read in one step of loading, or walking, a queue's bindings: about 0.5 ms."""

GIVEN_AT_ONCE_MAX: Final = 2_000
"""Streams that the chunks of one record reach at once: about 2 ms. Beyond, keys take turns."""

CONSUMED_COUNTED_MAX: Final = 50
"""Queues of a key, or queues in memory that are not consumed, that are looked at to say how many queues a publish met
that are consumed: 3 us."""

OWNERS_REMEMBERED_MAX: Final = 16
"""Clients of one exclusive queue that lost their connection, and are remembered until they come back: 16 bytes each.
Beyond, the one that came first is forgotten, and is new when it comes."""

EXCLUSIVES_REMEMBERED_MAX: Final = 10_000
"""Exclusive queues whose last consumers are remembered: at most 1 KiB each. Of others, each new consumer is the
newest."""

WANTED_MS: Final = 5_000
WANTED_MAX: Final = 10_000
"""How long a queue counts as used after a pull found that its drop was being written, and of how many queues this is
noted, 200 bytes each: a client that pulls again gets its messages, whatever drops are asked for meanwhile."""

ENDED_HANDLE_BYTES: Final = 700
"""Memory of a handle that ended and of which the client is not told yet, with the longest name of its queue. As much as
an attachment: while a session loses queues to others, its part of the share of attached queues does not grow."""

RESET_BYTES: Final = 100
"""Memory of a detached handle that a session is still to be told of, as its queue was dropped (measured: 60 to 100)."""

ENDED_UNREAD_MAX: Final = 1_000
"""Handles of a session that ended and of which it is not told yet. Beyond, its attaches are refused until it has read.
"""

ENDED_LOST_MAX: Final = 10_000
"""Such handles of a session that loses queues to others: beyond, it ends. A client that reads is told of 1,000 with
each response, while others take 1,000 in 40 ms at best."""

ENDED_TOLD_MAX: Final = 1_000
"""Handles of a session of which it was told that they ended, remembered until it detaches or uses them: 100 bytes each.
"""

OUT_OF_LINE_LOOKS_MAX: Final = 16
"""Sessions of one queue that are asked at one look whether they have room for a live chunk, or for what may come out of
turn. If none of them has any, the queue loses a live chunk."""

GROWTHS_WAITING_BYTES_MAX: Final = 16 << 20
"""Memory of the chunks that wait for such turns. Beyond, streams that are behind read the log; live chunks are lost."""

GROWTH_BYTES: Final = 330
"""Memory of a chunk that waits, besides its own bytes (measured: 310 with an 18-byte key)."""

LIVE_WAITING_BYTES_MAX: Final = 1 << 20
"""Memory of the chunks of one key that wait, at which its further live chunks are lost: what is live is worth nothing
late. About 3,000 small ones, or one large one."""

LONG_WORK_STEPS: Final = (4, 32, 256)
"""Steps after which a piece of work stands in the second line of turns, the third, and the last. A step takes about a
millisecond at most; attaching a thousand queues takes forty."""

QUICK_STEPS_MAX: Final = 16
MIDDLING_STEPS_MAX: Final = 128
"""Steps that a look at bindings may have in the room of quick reads, some 5 ms, and in that of middling ones, 20 to 60
ms. What is not done then gives its room back, and begins anew as a middling read, or as a long one."""

QUICK_BINDINGS_MAX: Final = 4 * READ_ROWS_PER_STEP
MIDDLING_BINDINGS_MAX: Final = QUICK_STEPS_MAX * READ_ROWS_PER_STEP
"""A pull is no quick read if its queue has more bindings than the first, and nobody else consumes it: they must be
loaded first. It is a long one if it has more than the second. A look at such a queue is taken for one likewise where
others wait for room: it may find something soon, or not."""

PULL_ROWS_PER_STEP: Final = 200
"""Parts of chunks taken in one step of a pull: about 1 ms. It ends with what it has after QUICK_STEPS_MAX steps, or
after the first one if others wait."""

SIZED_QUEUES_MAX: Final = 16
SIZED_DETAILS_MAX: Final = 32
"""Queues of a describe whose size is looked up to tell whether it takes long, and their detail rows: 0.1 ms."""

PUMP_TURN_HANDLES: Final = 500
"""Streams reached, or taken back from, in one turn: under 1 ms."""

RELEASED_AT_ONCE_MAX: Final = 500
"""Stretches that the acks, purges and unbinds of one record release at once: under 1 ms; more are released in turns."""

PUMP_TURN_BINDINGS: Final = 200
"""Bindings loaded, feeds served again or handles detached in one turn: under 1 ms."""

PUMP_TURN_LOOKS: Final = 5_000
"""Streams looked at in one turn: about 2 ms."""

LOOKS_PER_LARGE_NEXT: Final = 4
"""So many looks a stream takes that is left for a turn for large chunks, as it is known that such a one is next."""

LOOKS_PER_COST: Final = 5
"""So many looks at what is out cost as much as taking one stretch back."""

CONSUMERS_PER_QUEUE_MAX: Final = 10_000
"""Sessions that compete for one queue."""

ATTACHED_PER_SESSION_MAX: Final = 200_000
"""Queues that one session consumes: with 5 bytes for each a delivery to all of them fits one response."""

OWED_PER_SESSION_MAX: Final = 50_000
"""Stretches of unacked offsets of one session, about 120 bytes each: above it the session lags."""

OWED_BY_PULLS_MAX: Final = 500_000
"""Such stretches of all unary pulls together, which share a session: 60 MB, or what half of the share of owed
deliveries has room for. Further pulls get PULL_FLOOR messages of queues of which nothing is out, and are refused
else."""

PULL_FLOOR: Final = 10
"""Messages of a queue of which nothing is out that a pull gets, whatever its session owes: a worker that lets many
leases run keeps no other from its jobs. As each such queue counts as attached, they take no more than OWED_BY_PULLS_MAX
do."""

LEAVING_LOOKS_MAX: Final = 50
"""Consumers of a queue that are looked at, for each chunk, to find whether sessions that ended have something out of
it; more only where even more is out, which would be looked at instead."""

LEAVING_LOOKS_PER_STEP: Final = 10_000
"""Looks at consumers and at what is out for the chunks of one record, or of one turn: 1 ms. The pump takes turns with
the queues beyond."""

LISTED_AT_ONCE_MAX: Final = 2_000
"""Parcels of a session that ended which are listed at once, where another one waits for what it had."""

SMALL_PULLS_PART: Final = 16
"""Pulls of queues that are in memory, or have up to INLINE_STREAMS_MAX bindings, find room in 1/16 of the share of
attached queues more: a few that pull from large queues, under long leases, keep no worker with a small one from its
jobs."""

DETACHED_NOTED_MAX: Final = 10_000
"""Attachments that left a session while parcels waited that may be theirs: some 7 MB. With more, some of these parcels
are looked through each time that a handle is used again."""

DETACHED_LOOKS_PER_STEP: Final = 2_000
"""Handles of parcels that are looked at in one step, where some of the session's handles were detached: 2 us each."""

DETACHED_FORGOTTEN_PER_STEP: Final = 500
"""Handles of a session that are forgotten in one step, once no parcel that waits may name them: under 1 ms."""

LEASES_BEGUN_PER_TICK: Final = 4_000
"""Leases whose time begins with one tick: those that were opened since the last one, and as many of those that were
sent; about 6 ms."""

LEASES_ENDED_KEPT: Final = 1_000
"""Leases with all their messages acked that are kept until the next rebuild of the clock."""

RETRIES_PER_RECORD_MAX: Final = 200
RETRIES_COST_PER_RECORD: Final = 400
"""Stretches of messages that one RETRY record takes, and these plus the ranges of their bindings, by
DONE_RANGES_PER_COST: about 4 ms, in steps. Its first binding may exceed it."""

RETRIES_PER_TURN: Final = 50
"""Stretches of one binding in its turn, where others wait: so that a thousand bindings of a session wait for a few
seconds at most, and none is read and written for each of its stretches."""

DEAD_PER_RECORD_MAX: Final = 50
DEAD_BYTES_PER_RECORD_MAX: Final = 1 << 20
"""Messages that one RETRY record copies to dead-letter keys, and their bytes: as much as a group commit. One message
may exceed it. So many bytes of chunks are decoded for it at most, too, and one chunk more."""

DEAD_PER_TURN: Final = 10
"""Messages that one queue may have copied in its turn: so that a thousand queues of a session wait for a few seconds at
most."""

RETRY_LOOKS_MAX: Final = 1_000
"""Stretches that are looked at for one RETRY record, about 2 ms: of some nothing is to be done, and others become
letters."""

DEAD_COST: Final = 4
"""What copying a message costs, in operations."""

RESTING_OVER_KEPT: Final = 1_000
"""Stretches with an end before their delay was over (a purge, an unbind) that are kept until the next rebuild."""

RESTING_ENDED_PER_TURN: Final = 500
"""Delays ended in one tick: about 1 ms."""

RESTING_LOOKED_AT_PER_TURN: Final = 2_000
"""Delays that one tick looks at to leave out those that are over: about 1 ms."""

LAGGING_AT_ONCE_MAX: Final = 32
"""Streams of one queue that lag, and that a turn or a pull lists at once, to look at them one after the other. To find
the first ones takes up to 0.2 ms for each list, in a queue with 200,000 bindings."""

FEED_BYTES: Final = 1_100
ATTACHMENT_BYTES: Final = 700
STREAM_BYTES: Final = 450
COUNTED_NAME_BYTES: Final = 36
"""Memory of a consumed queue, of a session's part in it, and of one of its bindings, with names of up to so many bytes
(measured). What a queue's or key's name has more counts besides."""

RANGE_BYTES: Final = 90
"""Memory of a done range of such a binding, or of a stretch of it that is to be given again (measured: 72 and 130)."""

RANGES_PART: Final = 2
"""Ranges may have half of the share of attached queues, whatever queues, bindings and sessions take of it: what others
attach, or try to, ends no session below that."""

OVERDRAWN_RANGES_PART: Final = 16
"""Above their half ranges may overdraw the share by 1/16 before sessions end: as much as small pulls may, which alone
end none."""

REFUSED_ROOM_PART: Final = 16
"""Where something small finds no room for a queue, a consumer, a binding or a watch, ranges above their half make room,
until 1/16 of the share is free. What needs more is no reason: it would find no room then, either."""

PULLED_RANGES_PART: Final = 2
"""Ranges of queues that sessions only pull from may have half of the share, where each queue has more than
HEAVY_RANGES; and so may those for which no session can end: long leases and delays would keep others from attaching
theirs."""

HEAVY_RANGES: Final = 700
"""A queue with more ranges in memory, 63 KB, counts among those of PULLED_RANGES_PART. One with fewer may always be
pulled from if it has room: a worker with a small queue does not wait for others' leases."""

RELIEF_LOOKS_PER_STEP: Final = 1_000
"""Queues with ranges, and their consumers, that are looked at in one step, to find the sessions with the most ranges:
about 1 ms."""

OWED_OVER: Final = 4
"""Acks that leave gaps may take a session above its bound. It ends, while the share of what is owed is full, only if it
owes so many times its bound, and so many times what it owed when it came to that bound."""

OWED_BYTES: Final = 120
LEASE_BYTES: Final = 200
"""Memory of one stretch of unacked offsets; and of a lease with some of them, and its place in the clock (measured)."""

RESTING_MAX: Final = 200_000
RESTING_BYTES: Final = 370
"""Stretches of messages on one slice that came back and are not to be given yet, and the memory of each (measured:
280, and 370 while it waits for a record). They count in the share of what is owed. With more of them nacks are refused
that would make more."""

RESTING_FLOOR: Final = 1_000
"""Stretches that may rest even when the share is small: 370 KB."""

RESTS_PER_QUEUE_FLOOR: Final = 8
"""Such stretches that each queue may have, whatever rests: the memory of one more feed and stream."""

OWED_FLOOR: Final = 100
"""Stretches of unacked offsets that a session may have even when their share is full."""

PARCEL_OVERHEAD_BYTES: Final = 600
HANDLE_BYTES: Final = 8
"""Memory of a delivery that waits, besides its chunk and its key, and of each queue in it."""

DELIVERIES_FLOOR_BYTES: Final = 16 << 10
"""Bytes that a session may hold where much of the share of deliveries is used; once it is full, when the session has
its turn (room_line.py). The last chunk may exceed it."""

NEWCOMERS_PARTS: Final = 4
"""The share of deliveries divided by this is only for connections to which nothing large is under way: at least one of
the largest chunks on the smallest node."""

LARGE_DELIVERY_BYTES: Final = 32 << 10
"""The most memory of a delivery that is small in any case: twice DELIVERIES_FLOOR_BYTES."""

SMALL_OF_LEFT_PARTS: Final = 8
"""So is a larger one, if it takes at most a part of what is left for small ones: divided by this. So what is left is
always enough for those that are smaller than others."""

SMALL_BEYOND_PARTS: Final = 4
"""Small deliveries may exceed the share of deliveries by a part: divided by this. A large chunk may have exceeded it
before, so less would leave them nothing on the smallest node."""

SMALL_HOLDERS_MAX: Final = 32
"""Sessions of a connection to which small deliveries may be under way while the share of deliveries is nearly full:
each has up to DELIVERIES_FLOOR_BYTES and one delivery, 1.5 MB in all."""

OUT_OF_TURN_PARTS: Final = 8
"""What is given out of turn (dispatch/out_of_turn.py) may exceed the share of deliveries by a part: divided by this."""

OUT_OF_TURN_OF_LEFT_PARTS: Final = 64
"""A session that holds nothing may be given at most a part of what is left for this: divided by this. On the smallest
node 24 KB first, and a message of 100 bytes until 2,000 connections hold one that they do not read, or some 230 that
hold messages of all sizes."""

FREED_REFUSED_MAX: Final = 4
"""Looks at connections that found no room out of turn, as one lets go of something: what the first of them waits for
may be too large, or gone."""

FREED_REFUSED_EVERY_MS: Final = 1_000
FREED_REFUSED_EACH_TIME: Final = 256
"""How often those are looked at that had found no room before one let go of something, and how many looks each time:
9 ms, in steps."""

FREED_STREAMS_MAX: Final = 8
"""Keys of a queue that are looked at in one turn for what may come out of turn: that of one may be too large, and small
for another."""

NEWEST_LOOKED_AT_MAX: Final = 32
"""Keys of a queue that are looked at for what may come out of turn, besides those that have something new: 1 ms at
most."""

LEFT_OUT_KEPT_MAX: Final = 1_000
"""Keys of a queue that are kept as nobody was found who has room for what is next, some 100 bytes each: beyond, all who
consume it are asked before others are looked at."""

TURNS_PER_TURN_OF_ALL: Final = 16
"""Where sessions wait for room for deliveries, small ones come first, and connections to which nothing large is under
way; but one of so many turns goes to large ones, and to the next connection of all, so that each has its turn."""

PULL_MESSAGES_MAX: Final = 10_000
"""Messages taken by one pull."""

PARCEL_NUMBERS_BYTES_MAX: Final = 65
HANDLE_WIRE_BYTES_MAX: Final = 5
"""Bytes that a delivery's numbers, and each of its handles, take in a response."""

PARCEL_BYTES_MAX: Final = NAME_BYTES_MAX + PARCEL_NUMBERS_BYTES_MAX
"""Bytes of a delivery besides its chunk and its handles: the key's name and numbers."""

PULL_BYTES_MAX: Final = FRAME_BYTES_MAX // 4
"""Bytes taken by one pull: they fit one answer beside a largest chunk."""

PULL_GAPS_BYTES_MAX: Final = 384 << 10
"""Bytes of gaps in the answer of one pull, some 1,200 of them, beside what is taken. It ends there: the next pull tells
the others. The last passed stretch may exceed it, by GAPS_AT_ONCE_MAX gaps."""

DELIVERED_MARKS_MAX: Final = 100_000
"""Bindings with a highest delivered offset remembered after their queue was detached, to mark redeliveries."""

PUMP_TURN_BYTES: Final = 256 << 10
"""Bytes read from the log for one lagging queue before others get their turn."""

RECENT_CHUNKS_BYTES_MAX: Final = 4 << 20
"""Memory of the chunks that are kept after they were read from a log, for the next queues that lag behind the same key:
some 7,000 small ones."""

RECENT_CHUNK_BYTES: Final = 560
"""Memory of each of them besides its bytes (measured: 510 to 560)."""

OPENED_CHUNKS_BYTES_MAX: Final = 12 << 20
"""Memory of the chunks that stay decoded after parts were cut from them, as they exceed a window. It is more than any
chunk takes."""

OPENED_ROW_TIMES: Final = 3
OPENED_MESSAGE_BYTES: Final = 32
OPENED_CHUNK_BYTES: Final = 1_000
"""Memory of each of them: so many times its log row (the row, its chunk, its bodies), and so much for each of its
messages and for itself (measured: of 1,000 empty messages 20 times the row)."""

EXPIRED_PER_GAP_MAX: Final = 16
"""Chunks that have expired and are passed over as one gap: about 0.2 ms. The next ones are the next gap."""

GAPS_AT_ONCE_MAX: Final = 16
"""Gaps that a consumer is told of at once, for one binding; the last one has the rest, with what was delivered before.
"""

PUMP_TURN_ROWS: Final = 256
"""Log rows read for one lagging queue before others get their turn."""

CHECKSUM_STEP_ROWS: Final = 500
"""Rows summed up at a time for the checksums of tables: about half a millisecond, with reading them."""

CHECKSUM_STEP_BYTES: Final = 256 << 10
"""Bytes of values summed up at a time: about half a millisecond."""

PIECE_ROWS_MAX: Final = 5000
"""Rows of a frozen delta sent, or freed, at one go: about 2 ms of the broker's loop."""

PIECE_BYTES_MAX: Final = 1 << 20
"""Bytes of rows sent, or freed, at one go: rows of some tables may be long."""

LOG_HEAD_BYTES_MIN: Final = 64
"""Bytes of a log row that a look at its header alone reads at least: any header fits."""

ROW_KEY_BYTES_MAX: Final = 511
"""Bytes of a row's key: LMDB's bound, which the tables in memory hold too."""

RUN_KEYS_MAX: Final = 32_768
"""Keys in a merged run of a delta's order: merging two halves of it takes about 1 ms."""

GONE_RUN_MIN: Final = 16
"""Deleted rows that follow each other in a table until a scan that passed them remembers it: 30 us. What it remembers
takes a tenth of their memory."""

SORTED_ANEW_MAX: Final = 256
"""Keys of one prefix, or ops on one group, that a delta sorts anew for each scan; more are kept in order."""

RECENT_KEYS_MAX: Final = 4_096
"""Keys noted in a delta's order and not sorted yet: sorting them takes about 1 ms."""

DEAD_KEYS_MIN: Final = 256
"""Vanished keys that follow each other in a delta's order until a look-up that passed them takes them out: 20 us, and
up to 0.2 ms to take them out."""

PAGE_MEMBERS_MIN: Final = 256
"""Members asked of the base at once, at least: a small page over many removed members takes one look-up, not many."""

LIST_CHANGED_PER_STEP_MAX: Final = 1_000
LIST_NAMES_PER_STEP_MAX: Final = 200
LIST_MEMBERS_PER_STEP_MAX: Final = 256
LIST_RANGES_COST_PER_STEP_MAX: Final = 192
LIST_BINDINGS_PER_STEP_MAX: Final = 64
"""Items that one step of a list looks at, by how much each costs (a binding may take reads of a log; a partition costs
1, and 1 for each of its names). Then messages get their turn. A step takes about 1 ms."""

# Memory.

MEMORY_BASE_BYTES: Final = 120 << 20
"""Memory of a node that holds nothing, with its caches and the interpreter's spare room."""

MEMORY_BYTES_MIN: Final = 320 << 20
"""The least budget of a node's process: every share then fits its largest single piece."""

assert BUCKET_ENTRIES_MAX + FRAME_OPERATIONS_MAX + 1 < 1 << 16  # The row counts them in an u16.
assert BUCKET_ENTRIES_MAX >= 10 * BUCKET_ENTRIES_MEAN
assert ANSWERS_KEPT_MAX * 8 < 4096 + 1
assert DONE_RANGES_MAX >= CHUNK_MESSAGES_MAX
assert LEFT_WALKED_PER_TURN <= LEFT_PER_RECORD_MAX
assert FRAME_OPERATIONS_MAX <= BINDINGS_PER_QUEUE_MAX
assert BATCH_OPERATIONS_MAX >= FRAME_OPERATIONS_MAX
assert BIND_BACKS_NOTED_MAX >= 8 * FRAME_OPERATIONS_MAX
assert 2 * HISTORY_MESSAGES_PER_TRIM.bit_length() <= HISTORY_ROWS_PER_LOOK
assert RECLAIM_QUEUE_COST < RECLAIM_COST_PER_TURN
assert ENDED_HANDLE_BYTES <= ATTACHMENT_BYTES
assert OVERDRAWN_RANGES_PART <= SMALL_PULLS_PART
assert 10 * LINED_MAX <= ADVANCED_NOTED_MAX // 2
