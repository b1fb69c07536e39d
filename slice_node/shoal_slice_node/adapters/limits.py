"""Bounds of the node around its core: sessions, loop, disk, processes, HTTP. Each with its unit and its reason."""

from typing import Final

from shoal_contract.limits import CHUNK_BYTES_MAX, FRAME_BYTES_MAX, REQUEST_BYTES_MAX
from shoal_contract.places import PlacesLimits
from shoal_slice_node.core.limits import (
    ACK_FLUSH_MS,
    ANSWERS_KEPT_MAX,
    BATCH_BYTES_MAX,
    PARCEL_BYTES_MAX,
    PULL_BYTES_MAX,
)
from shoal_slice_node.storage.limits import APPEND_BYTES_MAX

SESSION_BYTES_DEFAULT: Final = 2 << 20
"""Bytes of deliveries under way to one session (not yet taken by the transport): it lags above this."""

SESSION_BYTES_MAX: Final = 64 << 20
"""The most that a client may ask for."""

RESPONSE_BYTES_MAX: Final = FRAME_BYTES_MAX - (256 << 10)
"""Where a response to a session is cut; the rest goes into the next."""

RESETS_PER_RESPONSE_MAX: Final = 40_000
"""Handles that begin anew, told in one response: 5 bytes each fit into what is left of a frame."""

PULL_LEASE_MS_DEFAULT: Final = 30_000
"""After so long a message taken by a unary pull and not acked is given out again."""

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

LISTS: Final = PlacesLimits(places_max=4, places_each_max=2, waiting_max=1000, waiting_each_max=200)
"""Lists gathered at a time, in all and of one connection; others wait, more are refused. A list of keys keeps a few
names of each partition."""

IMPORT_CHUNKS_IN_FLIGHT: Final = 32
"""Chunks of one import read and not yet answered: several group commits, and fewer than the answers kept."""

IMPORT_STALL_FACTOR: Final = 5
"""At so many times the maximum of a delta, while the checkpointer is busy, imports wait; all others at 8 times."""

IMPORTS: Final = PlacesLimits(places_max=8, places_each_max=2, waiting_max=100, waiting_each_max=25)
"""Imports of one slice at a time: of each the transport holds a largest request, which is in no account. A load has one
at a time to each slice, on a connection of its own, and another while one that broke is not noticed. Further ones wait,
unread."""

IMPORT_STALL_S: Final = 600.0
"""How long the client of an import may send nothing, or not read its answers. One that resumes may first read all
chunks that are there already."""

IMPORT_STALL_CROWDED_S: Final = 5.0
"""The same while others wait for its place: a largest request at 4 Mbit/s, or a worker's long rest for its disk and
garbage."""

IMPORT_TURN_S: Final = 60.0
"""How long an import may have its place while others wait. Who resumes it goes on where it was."""

EXPORTS: Final = PlacesLimits(places_max=2, places_each_max=1, waiting_max=100, waiting_each_max=25)
VERIFICATIONS: Final = EXPORTS
"""Exports, and verifications, of one slice at a time: each is a process, and holds on to the pages of its snapshot.
Further ones wait for their turn: every executor of a cluster may ask at once, each on a connection of its own."""

VERIFY_TURN_S: Final = 600.0
"""How long a verification may have its place while others wait: one of a hundred million memberships takes less."""

SNAPSHOT_STALL_S: Final = 60.0
"""How long the client of an export or a verification may read or send nothing: it holds one of few places meanwhile."""

SNAPSHOT_STALL_CROWDED_S: Final = 5.0
"""The same while others wait for its place: a page at 320 kbit/s, or a worker's long rest for its disk and garbage."""

SNAPSHOT_MESSAGE_S: Final = 0.25
"""What a client may take for each page or chunk, on average, while others wait, besides SNAPSHOT_STALL_CROWDED_S: at 6
Mbit/s for a page. A million memberships take two minutes then, at most."""

OPERATION_US: Final = 5
"""What applying one operation takes, about: a slice that it would make too long ends before it."""

STEPS_WATCHED_S: Final = 60
"""The longest step of the event loop is that of so long, at most."""

PENDING_BYTES_DEFAULT: Final = 48 << 20
"""Frames and unary requests read and not yet applied, in all, where no memory plan says it."""

UNPARSED_FACTOR: Final = 4
"""Large frames that were read wait for room there before they are parsed: so many times as much. The session of one
more ends, since a client may open any number of them."""

SOURCE_PENDING_BYTES_MIN: Final = 64 << 10
"""What every source may have pending, however much others have: its next frame is read below this."""

ANSWERS_PENDING_MAX: Final = 1024
"""Frames of one session whose answers it has not taken; above this it is not read."""

DELIVERIES_PER_WRITE_BYTES: Final = 256 << 10
"""Deliveries handed to the transport at one go: what a session that stops reading leaves there, besides its window. A
larger single chunk goes alone."""

UNARY: Final = PlacesLimits(
    places_max=16, places_each_max=4, waiting_max=2_000, waiting_each_max=256, line_s=1.0, served_times=5
)
"""Unary calls that are read at a time, in all and of one connection: a request is up to 2.25 MiB, twice while it is
taken from the transport. Further ones wait, unread: about 20 KB each. Of one connection ten times what a busy client of
this interface has: for more there are sessions."""

UNARY_LARGE_BYTES: Final = 64 << 10
"""Requests above that size are parsed one after the other, each in a turn of the loop."""

UNREAD_BYTES: Final = 72 << 10
"""What the transport takes of a stream that is not read, beyond the message that is asked for: a frame of 64 KiB of
bodies. With less such frames come with a round trip each (a sixth fewer at 64 KiB, a third at 8). gRPC's own estimate
lets it grow to megabytes, for each of thousands of calls that wait; in all they are some 11,000, and cost 16 KB
besides. Where that is too much their connections end (shoal_contract.unread)."""

UNARY_READ_S: Final = 10.0
"""How long a unary call may take to send its request once it is asked for: 4 MiB at 4 Mbit/s."""

UNARY_READ_CROWDED_S: Final = 0.1
"""The same while others wait for its place: requests come with their call, but for those of more than 64 KiB."""

UNARY_WRITE_S: Final = 30.0
"""How long the client of a unary call may take to read its answer."""

UNARY_WRITE_CROWDED_S: Final = 0.5
"""The same while others wait for what it holds."""

UNARY_ABORT_S: Final = 0.5
"""What is left of it then, until it is hung up on: what it holds is counted until it is gone."""

UNARY_WORKED_EACH_MAX: Final = 32
"""Unary calls of one connection that are read and not answered yet."""

UNARY_IN_MEMORY_TIMES: Final = 3
"""How often a request is in memory while it is worked on: as a message, as a record, in the journal's batch."""

UNARY_WORK_BYTES: Final = 16 << 10
UNARY_WORKING_BYTES_HIGH: Final = 8 << 20
UNARY_WORKING_BYTES_MAX: Final = 64 << 20
"""Requests that are worked on, in all, each counted so much more. Above the first a connection has one at a time; above
the second no further one is read."""

UNARY_UNREAD_BYTES_MAX: Final = 8 << 20
"""Answers of unary calls that are not read yet, in all; above it their clients have less time."""

UNARY_FIELDS_MAX: Final = 21_000
"""Fields of a unary request: a chunk's, and a few."""

SESSION_OPEN_S: Final = 10.0
"""How long a session may take to send its Open: a stream costs 14 KB also while it says nothing."""

SESSION_OPEN_CROWDED_S: Final = 1.0
"""The same while others wait to be opened. An Open comes with its stream; but a process that opens a thousand sessions
at once writes it much later, and comes back at once if it is turned away."""

SESSIONS_OPENING: Final = PlacesLimits(
    places_max=64, places_each_max=2, waiting_max=3_000, waiting_each_max=150, line_s=3.0
)
"""Streams whose first frame is read at a time, since the transport may hold a largest request of each; others wait."""

LARGE_ANSWER_BYTES: Final = PULL_BYTES_MAX + CHUNK_BYTES_MAX + (512 << 10)
"""The largest answer to a pull or a describe: what is reserved for it until it is known."""

DESCRIBED_BYTES_MAX: Final = 512
"""What is told of one queue or key, without its bindings: a name and numbers."""

BYTES_PER_WEIGHT: Final = 4096
"""A frame that is kept until it is answered weighs one answer more for so many bytes: 4 MiB of them a session."""

OPERATIONS_PER_WEIGHT: Final = 40
"""A change weighs one answer more for so many operations: refused, each may be answered with some 100 bytes."""

ANSWERS_HELD_FLOOR_BYTES: Final = 64 << 10
"""Bytes of answers that a session may leave unread even when their share is full: it is read below this."""

LARGE_ANSWER_WEIGHT: Final = 128
"""A pull or a describe counts as so many: an answer of up to 4 MiB each, so a session holds about 32 MiB of them."""

LOOP_SLICE_MS: Final = 4
"""How long the loop may apply or read logs before everything else gets its turn."""

PUMP_SLICE_MS: Final = 0.5
"""How long the pump works on what can wait, before everything else gets its turn. A frame takes two or three turns of
the loop to be read: where the pump never rests, a session has so many times this for each."""

MEMORY_SLACK_BYTES: Final = 64 << 20
"""Above what is held though nobody is left to be ended, before sessions are ended again."""

MEMORY_LOOK_MS: Final = 100
"""How often the process looks how much it holds: 0.1 ms each time. In between, clients of one network send 100 MB."""

MEMORY_HIGH: Final = 1.25
MEMORY_TOP: Final = 1.5
"""Above its budget a process ends sessions that consume nothing and were silent for STALLED_SESSION_MS. Above so many
times the budget it takes no new ones, and a shorter silence ends them, then consumers, too. Its machine should have
twice the budget (docs/administration.md)."""

SILENT_SESSION_MS: Final = 1_000
"""From a session that is in the middle of a request nothing came for so long."""

SESSIONS_ENDED_PER_LOOK: Final = 32
"""Ended in one look while the process holds more than its budget, and one more for each request that is too much."""

STALLED_SESSION_MS: Final = 10_000
"""A session whose client has taken nothing for so long is the first to end when deliveries fill their share."""

STALLED_CROWDED_MS: Final = 500
"""The same for answers while others wait for their room: a largest one at 16 Mbit/s."""

STALLED_SMALL_MS: Final = 2_000
"""The same for sessions that hold less than ANSWERS_HELD_FLOOR_BYTES each, where too many of them do so together."""

ANSWERS_SMALL_PARTS: Final = 4
"""Such sessions may hold one of so many parts of the answers' share while others wait: what is left of the smallest
share fits two of the largest answers."""

STALLED_SMALL_PER_LOOK: Final = 100
"""Of them, ended in one look: up to 60 MB a second, and never a loop full of sessions that end."""

STEP_WATCH_MS: Final = 1_000
"""How often the node looks whether a session stands still, and whether a binding was forgotten."""

SERVED_STREAMS_PER_LOOK: Final = 500
"""Bindings looked at then: under 2 ms."""

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

DELTA_TROUBLE_FACTOR: Final = 4
"""At so many times the maximum, while checkpoints fail, changes are refused: applying has not begun to wait yet."""

ARCHIVE_EVERY_S_DEFAULT: Final = 0
"""A journal segment is closed for the archive when it is full; 0: not by its age."""

TICK_MS: Final = 20
"""How often maintenance looks for work: acks to journal, keys to trim, rows to reclaim, leases to end."""

SESSIONS_MAX: Final = 50_000
"""Open sessions and unary calls at a time: file descriptors, and about 50 KB each."""

OPERATORS_CONNECTIONS_MAX: Final = 500
"""Connections of operators' programs, where they have a server of their own: a cluster's executors, and a few more."""

OPEN_FILES_RESERVE: Final = 1_500
"""Open files kept for other things than clients' connections: operators', HTTP's, journal, store, its processes. A node
that cannot open its next journal segment stops."""

CHECKPOINT_RETRY_MS: Final = 1_000
"""Between attempts when the checkpointer died or its disk was full."""

ARCHIVE_RETRY_MS: Final = 5_000
"""Between attempts when the archive's volume is full or gone: the journal grows meanwhile, serving goes on."""

LEASE_S: Final = 10
"""A node silent for so long is gone: long enough for a stall, short enough for a takeover."""

CLAIM_RETRY_MS: Final = 1_000
"""Between attempts to lead the slice while another node's lease runs or etcd is away."""

STOP_S: Final = 2.0
"""How long sessions get to end by themselves when the node stops."""

GC_THRESHOLDS: Final = (10_000, 20, 500)
"""Allocations before the cyclic collector looks at each generation: few cycles are made, and a look at all stalls."""

SWITCH_S: Final = 0.0005
"""How long the loop keeps Python's lock while another thread waits for it: the journal's takes it several times for
each sync, and everybody's answer waits for that. Python's own 5 ms made it 10 to 30 ms while the loop was busy."""

CHECKPOINT_STOP_S: Final = 60
"""How long a clean stop waits for its checkpoint before it leaves the rest to the journal."""

assert ACK_FLUSH_MS >= TICK_MS
assert BATCH_BYTES_MAX + REQUEST_BYTES_MAX < APPEND_BYTES_MAX
assert BATCH_BYTES_MAX < REQUEST_BYTES_MAX < PENDING_BYTES_DEFAULT
assert IMPORT_CHUNKS_IN_FLIGHT < ANSWERS_KEPT_MAX
assert IMPORT_STALL_CROWDED_S < IMPORT_STALL_S
assert IMPORT_STALL_FACTOR < DELTA_STALL_FACTOR
assert UNARY_READ_CROWDED_S < UNARY_READ_S
assert OPERATORS_CONNECTIONS_MAX + HTTP_CONNECTIONS_MAX <= OPEN_FILES_RESERVE // 2
assert RESPONSE_BYTES_MAX + 5 * RESETS_PER_RESPONSE_MAX < FRAME_BYTES_MAX
assert PULL_BYTES_MAX + CHUNK_BYTES_MAX + PARCEL_BYTES_MAX < RESPONSE_BYTES_MAX
