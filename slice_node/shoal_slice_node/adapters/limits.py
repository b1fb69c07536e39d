"""Bounds of the node around its core: sessions, event loop, disk, processes, HTTP. Each has its unit and reason.

Long because all bounds of the adapters are in one place.
"""

from typing import Final

from shoal_contract.limits import CHUNK_BYTES_MAX, FRAME_BYTES_MAX, REQUEST_BYTES_MAX
from shoal_runtime.places import PlacesLimits
from shoal_slice_node.core.limits import (
    ACK_FLUSH_MS,
    ANSWERS_KEPT_MAX,
    BATCH_BYTES_MAX,
    GAPS_AT_ONCE_MAX,
    LETTERS_PER_LINE,
    PARCEL_BYTES_MAX,
    PULL_BYTES_MAX,
    PULL_GAPS_BYTES_MAX,
)
from shoal_slice_node.core.watching.limits import WATCHES_MAX
from shoal_slice_node.storage.limits import APPEND_BYTES_MAX

SESSION_BYTES_DEFAULT: Final = 2 << 20
"""Bytes of deliveries under way to one session (not yet taken by the transport). Above this the session lags."""

SESSION_BYTES_MAX: Final = 64 << 20
"""The largest window, in bytes of deliveries under way, that a client may request for a session."""

RESPONSE_BYTES_MAX: Final = FRAME_BYTES_MAX - (256 << 10)
"""A response to a session is cut at this size; the rest goes into the next one."""

RESETS_PER_RESPONSE_MAX: Final = 20_000
"""The number of reset handles in one response: 5 bytes each, which fit into the rest of a frame."""

NEW_PARTS_PER_RESPONSE_MAX: Final = 5_000
"""The number of handles in one response of whose new parts it tells: 20 bytes each."""

ENDED_PER_RESPONSE_MAX: Final = 20
"""The number of ended handles in one response; they fit into the rest of a frame, too."""

ENDED_BYTES_MAX: Final = 2_400
"""The largest of them, in bytes: its error names a queue twice, escaped."""

PULL_LEASE_MS_DEFAULT: Final = 30_000
"""A message that was taken by a unary pull and not acked is delivered again after this time."""

HTTP_REQUESTS_MAX: Final = 100
"""HTTP requests answered at a time: only a few probes and scrapes are expected. More are refused with 429."""

HTTP_CONNECTIONS_MAX: Final = 200
"""HTTP connections at a time. One more ends the connection that has waited longest."""

HTTP_BODY_BYTES_MAX: Final = 64 << 10
"""Bytes of a request's body; no request here needs one."""

HTTP_HEAD_BYTES_MAX: Final = 16 << 10
"""Bytes of a request's line and headers."""

STARTED_WAIT_S: Final = 10
"""A node that has waited for etcd for this time counts as started: to start it again would not bring etcd. A shorter
wait is a part of its start, as etcd is usually heard within a second: what watches over starts, as Kubernetes does,
goes on to watch over the recovery then."""

HTTP_IDLE_S: Final = 120
"""An idle HTTP connection is closed after this time, which is longer than the time between scrapes."""

FIGURES_KEPT_S: Final = 0.2
"""Figures younger than this are returned again, so frequent requests cost nothing."""

LIST_ITEMS_DEFAULT: Final = 100
"""The number of items in a page if the caller names none."""

LIST_TURN_MS: Final = 2
"""How long the loop may gather a page before all other work gets its turn. One step of it takes about 1 ms."""

LISTS: Final = PlacesLimits(places_max=4, places_each_max=2, waiting_max=1000, waiting_each_max=200)
"""Lists gathered at a time, in all and for one connection; others wait, more are refused. The reason: a list of keys
keeps a few names of each partition in memory."""

SNAPSHOTS: Final = PlacesLimits(places_max=4, places_each_max=2, waiting_max=WATCHES_MAX, waiting_each_max=64)
"""Pages of snapshots of counts gathered at a time, in all and for one connection; others wait. The reason is that of
lists."""

IMPORT_CHUNKS_IN_FLIGHT: Final = 32
"""Chunks of one import that are read and not yet answered: enough for several group commits, and fewer than the answers
that are kept."""

IMPORT_STALL_FACTOR: Final = 5
"""Imports wait while the checkpointer is busy and the delta has this many times its maximum. All other changes wait at
8 times."""

IMPORTS: Final = PlacesLimits(places_max=8, places_each_max=2, waiting_max=100, waiting_each_max=25)
"""Imports of one slice at a time. The transport may hold a request of the largest size for each, which is counted
nowhere. A bulk load has one import at a time to each slice, on a connection of its own, and a second one while a broken
one is not noticed yet. Further imports wait, unread."""

IMPORT_STALL_S: Final = 600.0
"""How long the client of an import may send nothing, or not read its answers. A client that resumes may first have to
read all its chunks that are imported already."""

IMPORT_STALL_CROWDED_S: Final = 5.0
"""Replaces IMPORT_STALL_S while others wait for the place: enough for a request of the largest size at 4 Mbit/s, or for
a worker's long pause (disk, garbage collection)."""

IMPORT_TURN_S: Final = 60.0
"""How long an import may have its place while others wait. When it is resumed it continues where it ended."""

EXPORTS: Final = PlacesLimits(places_max=2, places_each_max=1, waiting_max=100, waiting_each_max=25)
VERIFICATIONS: Final = EXPORTS
"""Exports, and verifications, of one slice at a time. Each is a process, and keeps the pages of its snapshot from being
reused. Further ones wait for their turn: every executor of a cluster may call at once, each on its own connection."""

VERIFY_TURN_S: Final = 600.0
"""How long a verification may have its place while others wait. A hundred million memberships take less."""

SNAPSHOT_STALL_S: Final = 60.0
"""How long the client of an export or a verification may read or send nothing. Meanwhile it keeps one of few places."""

SNAPSHOT_STALL_CROWDED_S: Final = 5.0
"""Replaces SNAPSHOT_STALL_S while others wait for the place: enough for a page at 320 kbit/s, or for a worker's long
pause (disk, garbage collection)."""

SNAPSHOT_MESSAGE_S: Final = 0.25
"""How long a client may take for each page or chunk on average, besides SNAPSHOT_STALL_CROWDED_S, while others wait.
For a page this is 6 Mbit/s. A million memberships then take two minutes at most."""

SNAPSHOT_SPARED_S: Final = 60.0
"""How long an export or a verification has at least, however much the store grows meanwhile: a store of ten million
memberships is read in less."""

SNAPSHOT_UNUSED_BYTES: Final = 2 << 30
"""How much of the store's file may be unused, or as much as its tables take if that is more, before an export or a
verification ends for which the file grows: pages that its snapshot reads are not used again. At most what the disk has
left."""

OPERATION_US: Final = 5
"""About how long one operation takes to apply. A slice of the loop's time ends before a record that would make it too
long."""

CLOCK_BEHIND_MS: Final = 10_000
"""How far the clock may be behind the newest record before that is told: clocks that are kept in time differ by
less."""

STEPS_WATCHED_S: Final = 60
"""The longest step of the event loop is measured over at most this time."""

PENDING_BYTES_DEFAULT: Final = 48 << 20
"""Bytes of frames and unary requests that are read and not yet applied, in all; used where no memory plan sets it."""

SMALL_FRAME_BYTES: Final = 2048
"""A frame of at most so many bytes may be small. Small frames have memory of their own beside that of all frames: 20
publishers of 1,000 messages a frame made the small frames of others wait for seconds."""

SMALL_FRAME_KEPT_BYTES: Final = 8 << 10
"""A frame is small only if it takes no more than this once it is parsed."""

SMALL_FRAMES_PART: Final = 8
"""A connection may use what is free of the small frames' memory, divided by this. Where memory is least, and no other
connection has small frames, this is enough for about two hundred publishes."""

SMALL_FRAMES_BYTES_MIN: Final = 16 << 10
"""Each connection may use at least so much, which is enough for about six publishes."""

UNPARSED_FACTOR: Final = 4
"""Large frames that were read wait for room before they are parsed. This many times that room may wait. If more waits,
a session ends, since a client may open any number of sessions."""

SINGLE_FRAME_PARTS: Final = 8
"""A connection with a single large frame that waits has little if the frame takes no more than what may wait, divided
by this. Where too much waits, and the connection with most of it has little, the frame that came last is refused."""

SOURCE_PENDING_BYTES_MIN: Final = 64 << 10
"""Bytes that every source may have pending, however much others have. Below this its next frame is read."""

ANSWERS_PENDING_MAX: Final = 1024
"""Frames of one session, by weight, whose answers it has not taken. Above this the session is not read."""

DELIVERY_COPIES: Final = 2
"""A delivery that is being written is there twice: as the bytes of the response, and as a copy in gRPC (measured: 1.95
times the chunks). So deliveries get half of their share, and each counts once."""

DELIVERIES_PER_WRITE_BYTES: Final = 256 << 10
"""Bytes of deliveries given to the transport at a time. A session that stops reading leaves this much there, besides
its window. A single chunk that is larger goes alone."""

WRITES_PER_TURN_BYTES: Final = 4 << 20
WRITE_COST_BYTES: Final = 64 << 10
"""How much all sessions write in one turn of the event loop (some 4 ms), and the bytes that a write counts as besides
its own, since an empty one takes about as long as these. When 1,000 sessions wrote 100 KB each in one turn, publishes
of others waited for seconds."""

WATCH_WRITE_COSTS: Final = 8
"""How many times its bytes what a watch is told counts as, when turns are bounded: it is serialized first."""

UNARY: Final = PlacesLimits(
    places_max=16, places_each_max=4, waiting_max=2_000, waiting_each_max=256, line_s=1.0, served_times=5
)
"""Unary calls that are read at a time, in all and of one connection. A request has up to 2.25 MiB, and is in memory
twice while it is taken from the transport. Further calls wait, unread, at about 20 KB each. One connection may have ten
times the calls of a busy client of this interface; sessions are for clients with more."""

UNARY_LARGE_BYTES: Final = 64 << 10
"""Requests larger than this are parsed one after the other, each in a turn of the loop of its own."""

UNREAD_BYTES: Final = 72 << 10
"""Bytes that the transport takes of a stream that is not read, beyond the message being read: enough for a frame of
64 KiB of bodies. With less, each such frame costs a round trip (a sixth fewer frames with 64 KiB, a third with 8).
gRPC's own estimate would let it grow to megabytes for each of thousands of waiting calls. In all there may be some
11,000 waiting calls, which cost 16 KB each besides. Where that is too much, their connections end
(shoal_runtime.unread)."""

UNARY_READ_S: Final = 10.0
"""How long a unary call may take to send its request once the node reads it: 4 MiB at 4 Mbit/s."""

UNARY_READ_CROWDED_S: Final = 0.1
"""Replaces UNARY_READ_S while others wait for the place: requests up to 64 KiB arrive together with their call."""

UNARY_WRITE_S: Final = 30.0
"""How long the client of a unary call may take to read its answer."""

UNARY_WRITE_CROWDED_S: Final = 0.5
"""Replaces UNARY_WRITE_S while others wait for what the call holds."""

UNARY_ABORT_S: Final = 0.5
"""How long the client of such a call then has to read the error before its connection is closed. What the call holds
counts until then."""

UNARY_WORKED_EACH_MAX: Final = 32
"""The number of unary calls of one connection that are read and not answered yet."""

UNARY_IN_MEMORY_TIMES: Final = 3
"""The number of copies of a request in memory while it is worked on: the message, the record, the journal's batch."""

UNARY_WORK_BYTES: Final = 16 << 10
UNARY_WORKING_BYTES_HIGH: Final = 8 << 20
UNARY_WORKING_BYTES_MAX: Final = 64 << 20
"""Bytes of requests that are worked on, in all; UNARY_WORK_BYTES are added for each request. Above
UNARY_WORKING_BYTES_HIGH a connection has one request at a time; above UNARY_WORKING_BYTES_MAX no further request is
read."""

UNARY_UNREAD_BYTES_MAX: Final = 8 << 20
"""Bytes of unary calls' answers that are not read yet, in all. Above this their clients have less time."""

UNARY_FIELDS_MAX: Final = 21_000
"""Fields of a unary request: enough for a chunk, and a few more."""

SESSION_OPEN_S: Final = 10.0
"""How long a session may take to send its Open. A stream costs 14 KB even while it sends nothing."""

SESSION_OPEN_CROWDED_S: Final = 1.0
"""Replaces SESSION_OPEN_S while others wait to be opened. An Open usually arrives with its stream. But a process that
opens a thousand sessions at once sends it much later, and would reconnect at once if it were refused."""

SESSIONS_OPENING: Final = PlacesLimits(
    places_max=64, places_each_max=2, waiting_max=3_000, waiting_each_max=150, line_s=3.0
)
"""Streams whose first frame is read at a time; others wait. The transport may hold a request of the largest size for
each."""

WATCH_WRITE_S: Final = 30.0
"""How long the client of a watch may take to read a response. While it does, the response keeps its room among
answers. A watch that ends goes on from its place, or begins with a snapshot."""

LARGE_ANSWER_BYTES: Final = PULL_BYTES_MAX + CHUNK_BYTES_MAX + (512 << 10)
"""Bytes of the largest answer to a pull or a describe. This is reserved until the answer's real size is known."""

PASSED_MAX: Final = 8
"""How many reads may begin in a row before the one that has waited longest, of any length: one of a connection that has
answers, or a longer one, would wait for ever where others always come. In the room for brief answers the same, counted
apart."""

ADMITTED_AT_ONCE_MAX: Final = 32
"""How many reads begin in one step as room is let go: those that are found to be long give their room back at once, and
looking at one may take 0.1 ms."""

LOOKS_FOR_ROOM_MAX: Final = 1_000
"""Sessions that look, ten times a second, whether there is room for their answers again: in all half a millisecond."""

QUICK_ANSWERS_MAX: Final = 4
"""How much of the room for large answers long reads leave to the others while they are worked on: a quarter, but one
answer's at least, and so many at most. Of this, middling reads take half, or one answer's; quick ones have the rest."""

SMALL_ANSWER_BYTES: Final = 16 << 10
SMALL_ANSWERS_BYTES: Final = 512 << 10
"""What is a small answer: some thirty queues or keys without their bindings; and how much of the answers' memory is for
these alone."""

BRIEF_ANSWER_BYTES: Final = 32 << 10
BRIEF_ANSWERS_BYTES: Final = 1 << 20
"""What is a brief answer, and how much of the answers' memory is for these alone: quick reads that find no room for a
large one try to do with so little. The rest of the smallest share has room for three large ones."""

DESCRIBED_BYTES_MAX: Final = 512
"""Bytes of the description of one queue or key without its bindings: a name and numbers."""

BYTES_PER_WEIGHT: Final = 4096
"""The number of bytes for which a frame that is kept until it is answered weighs one more. So a session has up to 4 MiB
of such frames."""

OPERATIONS_PER_WEIGHT: Final = 40
"""The number of operations for which a change weighs one more: each operation that is refused adds some 100 bytes to
the answer."""

ANSWER_BYTES: Final = 150
RESERVED_ANSWER_BYTES: Final = 500
"""Memory of an answer that waits, besides its bytes, and of one for which room was reserved (measured: 130 and 450)."""

ANSWER_HEAD_BYTES_MAX: Final = 8
"""What stands before an answer in a response, at most, in bytes: the tag of its field and its size."""

ANSWERS_HELD_FLOOR_BYTES: Final = 64 << 10
"""Bytes of answers that a session may leave unread even when the answers' share is full. Below this the session is
read."""

LARGE_ANSWER_WEIGHT: Final = 128
"""The weight of a pull, or of a describe whose answer may have 4 MiB. So a session holds about 32 MiB of them."""

DESCRIBE_WEIGHT: Final = 32
"""The least weight of a describe, however small its answer: it may walk over 200,000 bindings. So 32 of a session are
worked on at a time, not all that there is room for."""

ACCEPT_TURNS: Final = 4
"""Turns of the loop in which gRPC accepts a call, if one waits."""

READS_REST_MS: Final = 2.0
DISPATCH_REST_MS: Final = 0.5
"""How long the pump rests after each slice while calls come, if only reads wait for it, and if deliveries do: these go
on at half their pace at least."""

LOOP_SLICE_MS: Final = 4
"""How long the loop may apply records or read logs before all other work gets its turn."""

TURNS_BETWEEN_SLICES: Final = 8
"""Turns of the loop that all other work gets between two slices. gRPC takes a new call in two turns: with one turn a
busy node began 40 to 100 calls a second, and 500 cheap calls at a time made others wait 2.4 s (now 0.9)."""

PUMP_SLICE_MS: Final = 0.5
"""How long the pump works before all other work gets its turn; the pump's work can wait. A frame needs two or three
turns of the loop to be read, so under a busy pump each frame takes two or three times this."""

MEMORY_SLACK_BYTES: Final = 64 << 20
"""How much the memory may grow before sessions end again, once no session is left that could end and the memory is
still held."""

MEMORY_LOOK_MS: Final = 100
"""How often the process checks how much memory it holds, which takes 0.1 ms. In between, the clients on one network can
send 100 MB."""

MEMORY_HIGH: Final = 1.25
MEMORY_TOP: Final = 1.5
"""Above its memory budget a process ends sessions that consume nothing and were silent for STALLED_SESSION_MS. Above
MEMORY_HIGH times the budget it takes no new sessions, and a shorter silence ends them; if none is left, it ends
consumers that were silent for STALLED_SESSION_MS, above MEMORY_TOP times the budget after the shorter silence too. Its
machine should have twice the budget (docs/administration.md)."""

SILENT_SESSION_MS: Final = 1_000
"""The shorter silence (see MEMORY_HIGH): for this time no whole frame came from a session, as when it is in the middle
of a request."""

SESSIONS_ENDED_PER_LOOK: Final = 32
"""Sessions ended in one check while the process holds more than its budget, and one more for each largest request by
which it is over the budget."""

STALLED_SESSION_MS: Final = 10_000
"""When deliveries fill their share of memory, and nothing waits for room, sessions end whose clients have taken nothing
for this time."""

STALLED_DELIVERIES_MS: Final = 2_000
"""Replaces STALLED_SESSION_MS for deliveries while other sessions wait for room, except for connections that hold less
than an equal part: enough for the largest chunk at 8 Mbit/s."""

ABORT_CROWDED_S: Final = 1.0
"""Replaces ABORT_S for a session that ends then, and has not taken what is being written: its memory is needed."""

STALLED_CROWDED_MS: Final = 500
"""Replaces STALLED_SESSION_MS for answers while others wait for their room: enough for an answer of the largest size at
16 Mbit/s."""

STALLED_SMALL_MS: Final = 2_000
"""Replaces STALLED_SESSION_MS for sessions that hold less than ANSWERS_HELD_FLOOR_BYTES of answers each, but too much
together."""

ANSWERS_SMALL_PARTS: Final = 4
"""Such sessions together may hold the answers' share divided by this while others wait. The rest of the smallest share
has room for two of the largest answers."""

STALLED_SMALL_PER_LOOK: Final = 100
"""Such sessions ended in one check: this frees up to 60 MB a second, and never blocks the loop with ending sessions."""

WATCHMAN_LOOK_MS: Final = 1_000
"""How often the watchman looks for bindings that were forgotten. At memory, answers and deliveries it looks every
MEMORY_LOOK_MS."""

TOLD_PER_LOOK: Final = 10
"""Sessions ended in one check that the log names; of more it tells the number."""

SERVED_STREAMS_PER_LOOK: Final = 500
"""Bindings checked each time: takes under 2 ms."""

DELTA_ROWS_MAX: Final = 120_000
"""Rows changed before a checkpoint begins. Bounds the journal tail to replay after a crash; takes about 60 MB."""

DELTA_BYTES_MAX: Final = 64 << 20
"""Memory of changed rows, in bytes, before a checkpoint begins."""

DELTA_AGE_MS: Final = 60_000
"""Changes older than this begin a checkpoint, however few they are."""

TAIL_OPERATIONS_MAX: Final = 400_000
"""Operations journaled after a checkpoint before the next one begins: about two seconds of replay."""

TAIL_BYTES_MAX: Final = 256 << 20
"""Bytes of records journaled after a checkpoint before the next one begins."""

DELTA_STALL_FACTOR: Final = 8
"""Applying waits while the checkpointer is still busy and the delta has this many times its maximum: bounds memory."""

DELTA_FROZEN_FACTOR: Final = 1
"""A running node has this many times the delta's maximum frozen, since it is frozen as soon as it reaches that. Where
what is frozen is counted with the changes since, so much more may be there."""

DELTA_TROUBLE_FACTOR: Final = 4
"""Changes are refused while checkpoints fail and the delta has this many times its maximum besides what is frozen:
applying has not begun to wait then. A start may find as much in the journal, and freezes all of it: then they are
refused at once, so that restarts do not make it grow."""

DELTA_FREEING_FACTOR: Final = 6
"""The same for changes that free room: a drop's rows wait for a checkpoint, too."""

DELTA_FAILING_STALL_FACTOR: Final = 2 * DELTA_STALL_FACTOR
"""Replaces DELTA_STALL_FACTOR while checkpoints fail: changes are refused by then, and what the node itself does goes
on up to here, since nothing is answered while it waits."""

DELTA_START_FACTOR: Final = DELTA_STALL_FACTOR + DELTA_FAILING_STALL_FACTOR
"""A start whose checkpoint failed goes on until the delta beside what is frozen has this many times its maximum, and
ends then. A running node cannot leave more in its journal: a start freezes DELTA_STALL_FACTOR at most, and
DELTA_FAILING_STALL_FACTOR and a record may follow."""

FOLLOWED_RECORDS: Final = 1_000
"""Records that are read from the journal at a time, to be applied by a follower."""

FOLLOWED_BYTES: Final = 1 << 20
"""The same in bytes of payload; one record may exceed it. What is read waits in memory while checkpoints are behind."""

ARCHIVE_EVERY_S_DEFAULT: Final = 0
"""The age at which a journal segment is closed for the archive; 0: segments are closed only when they are full."""

TICK_MS: Final = 20
"""How often maintenance checks for work: acks to journal, keys to trim, rows to reclaim, leases to end."""

IDLE_TICK_MS: Final = 100
"""The same while nobody is connected and nothing was written for IDLE_MS. What falls due then may be so much later, and
walks that look for what is to be done, as for old histories, are a fifth as fast until somebody comes. Ticks
took most of what an idle node took of a processor: 3.3 % with TICK_MS, 1.9 % with this."""

COURIER_LETTERS: Final = 16
"""Letters (dead letters, farewells) on their way to other slices at a time, each of up to a chunk."""

COURIER_CALL_S: Final = 10.0
"""How long another slice may take to answer for one of these letters, in seconds. It is sent again then."""

COURIER_NUMBERS_MAX: Final = 10_000
"""Letters that were refused, with the number that each is sent with next, about 150 bytes each. The slice that refused
a letter tells the number of one that is forgotten."""

COURIER_TOLD_MAX: Final = 100
"""Keys of other slices of which the log says that they take no letters (dead letters, farewells); of further ones it
does not."""

SESSIONS_MAX: Final = 50_000
"""Open sessions and unary calls at a time. Each costs a file descriptor and about 50 KB."""

CONNECTIONS_FEW: Final = 4_096
"""A start that may take fewer connections than this says so: many systems allow a process 1,024 files. With more there
is nothing to do for most, and the metrics of the process show the limit."""

OPERATORS_CONNECTIONS_MAX: Final = 500
"""Connections of operators' programs, where they have a server of their own: a cluster's executors, and a few more."""

OPERATORS_WAITING_PARTS: Final = 4
"""Their new calls wait in a line of gRPC of its own, which is that of clients divided by this."""

OPEN_FILES_RESERVE: Final = 1_500
"""Open files reserved for everything but clients' connections: operators' and HTTP connections, journal, store, child
processes. A node that cannot open its next journal segment refuses changes."""

MELT_SHARE: Final = 8
"""A frozen delta that cannot be written is put together with later changes when that makes it smaller by an eighth."""

FOLDER_LOOK_MS: Final = 1_000
"""The pause between two looks whether the data folder is still there, in milliseconds."""

JOURNAL_ROOM_LOOK_MS: Final = 1_000
"""The time between looks for room for the next segment, after the journal's disk was full."""

CHECKPOINT_RETRY_MS: Final = 1_000
"""The time after a first attempt to checkpoint that failed; it doubles with each further one. Whether the disk has more
room is looked at as often."""

CHECKPOINT_RETRY_MS_MAX: Final = 30_000
"""The most time between attempts to checkpoint. A quota, or a store elsewhere, shows no more room than before."""

CHECKPOINT_SLOW_S: Final = 60.0
"""How long a checkpoint may take, in seconds, before it is told, and changes and imports no longer wait for it: the
checkpointer may hang. A quiet machine writes one in 1 to 2 s."""

ARCHIVE_TURN_SEGMENTS: Final = 16
"""Segments that go to the archive, or are looked for in it, until it is asked again what may be released: up to a GiB
of copies. A journal may have thousands of segments that the archive lacks."""

ARCHIVE_RETRY_MS: Final = 5_000
"""The time between attempts when the archive's volume is full or gone. Meanwhile the journal grows, serving goes on."""

LEASE_S: Final = 10
"""A node that is silent for this time counts as gone: long enough to survive a stall, short enough for a takeover."""

CLAIM_RETRY_MS: Final = 1_000
"""The time between attempts to lead the slice while another node's lease runs or etcd is not reachable."""

CALLS_END_S: Final = 60.0
"""How long the handlers of calls may take to end when a role ends. They wait for no client, at most for a child process
to end; 3,000 sessions took 1.2 s, so all of SESSIONS_MAX fit."""

STOP_S: Final = 2.0
"""How long sessions get to end by themselves when the node stops."""

FORMER_DROP_S: Final = 1.0
"""How long a node that led waits until nothing holds its leading role any more, before it tries to lead again."""

GC_THRESHOLDS: Final = (10_000, 4, 2_500)
"""Allocations before the cyclic garbage collector checks each generation: few cycles are made, and a check of all
objects stalls the loop. The second looks at up to 40,000 new objects at once: at 200,000 it took 60 ms."""

SWITCH_S: Final = 0.0005
"""How long the loop keeps Python's global lock while another thread waits for it. The journal's thread takes the lock
several times for each sync, and all answers wait for the sync. With Python's default of 5 ms a sync took 10 to 30 ms
while the loop was busy."""

CHECKPOINT_STOP_S: Final = 60
"""How long a clean stop waits for its checkpoint before it leaves the rest to the journal."""

assert ACK_FLUSH_MS >= TICK_MS
assert 2 * LETTERS_PER_LINE <= COURIER_LETTERS
assert BATCH_BYTES_MAX + REQUEST_BYTES_MAX < APPEND_BYTES_MAX
assert BATCH_BYTES_MAX < REQUEST_BYTES_MAX < PENDING_BYTES_DEFAULT
assert PULL_BYTES_MAX + CHUNK_BYTES_MAX + PULL_GAPS_BYTES_MAX + GAPS_AT_ONCE_MAX * PARCEL_BYTES_MAX < LARGE_ANSWER_BYTES
assert LARGE_ANSWER_BYTES < RESPONSE_BYTES_MAX
assert IMPORT_CHUNKS_IN_FLIGHT < ANSWERS_KEPT_MAX
assert IMPORT_STALL_CROWDED_S < IMPORT_STALL_S
assert IMPORT_STALL_FACTOR < DELTA_STALL_FACTOR
assert DELTA_FROZEN_FACTOR <= DELTA_TROUBLE_FACTOR < DELTA_FREEING_FACTOR < DELTA_STALL_FACTOR
assert DELTA_STALL_FACTOR < DELTA_FAILING_STALL_FACTOR < DELTA_START_FACTOR
assert SMALL_ANSWER_BYTES <= SMALL_ANSWERS_BYTES < LARGE_ANSWER_BYTES
assert SMALL_ANSWER_BYTES <= BRIEF_ANSWER_BYTES < min(BRIEF_ANSWERS_BYTES, ANSWERS_HELD_FLOOR_BYTES)
assert SMALL_FRAME_BYTES <= SMALL_FRAME_KEPT_BYTES <= SMALL_FRAMES_BYTES_MIN
assert WRITE_COST_BYTES < WRITES_PER_TURN_BYTES
assert UNARY_READ_CROWDED_S < UNARY_READ_S
assert STALLED_CROWDED_MS <= STALLED_DELIVERIES_MS <= STALLED_SESSION_MS
assert OPERATORS_CONNECTIONS_MAX + HTTP_CONNECTIONS_MAX <= OPEN_FILES_RESERVE // 2
assert 5 * RESETS_PER_RESPONSE_MAX + 20 * NEW_PARTS_PER_RESPONSE_MAX <= 200_000
assert RESPONSE_BYTES_MAX + 200_000 + ENDED_BYTES_MAX * ENDED_PER_RESPONSE_MAX < FRAME_BYTES_MAX
assert PULL_BYTES_MAX + CHUNK_BYTES_MAX + PARCEL_BYTES_MAX < RESPONSE_BYTES_MAX
