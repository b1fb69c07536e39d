"""Defines the bounds of the client library, with unit and reason; contract limits are in `shoal_contract.limits`."""

from typing import Final

from shoal_contract.limits import (
    BODY_BYTES_MAX,
    CHUNK_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_OPERATIONS_MAX,
    KEY_UNACKED_MAX,
    REQUEST_BYTES_MAX,
    WINDOW_MESSAGES_DEFAULT,
)

# Requests to one slice

LINGER_S: Final = 0.001
LINGER_FRAMES_MIN: Final = 2
"""How long the first request of a frame waits for others to join it, in seconds, while more frames than
LINGER_FRAMES_MIN are under way: their answers come soon and bring more requests. With fewer frames, waiting only costs
latency."""

GATHER_BYTES_MAX: Final = 1 << 20
"""The bytes of requests gathered into one frame; a larger request goes alone. Small enough to keep answers prompt."""

GATHER_OPERATIONS_MAX: Final = 1_000
"""The keys and queues gathered into one frame, and keys of one slice in one call: what a slice takes in a frame."""

TRANSACTION_BYTES_MAX: Final = 2 << 20
"""The bytes of a transaction, which goes in one frame: its bodies, headers and names."""

CHUNK_GATHER_BYTES_MAX: Final = 256 << 10
"""The bytes of single messages merged into one chunk, which a consumer gets at once."""

CHUNK_FRAMING_BYTES: Final = 16
"""The bytes of tags and lengths of one body in a chunk, at most."""

DECLARES_AT_ONCE_MAX: Final = 10_000
"""The number of queues of one declare call under way together: bounds its futures."""

PURGES_AT_ONCE_MAX: Final = 1_000
"""The number of queues of one call that are purged together: bounds tasks and futures."""

LEFTOVERS_AT_ONCE_MAX: Final = 1_000
"""The number of queues that are looked for on one slice together: what a slice takes in one Describe."""

PLACES_AT_ONCE_MAX: Final = 128
"""The number of places that a call asks together, or all calls' leftovers: a task each. A place is a slice and a home
of its queues. In a cluster of 64 slices, 126 places have to do with one slice: if it does not answer, others are asked
all the same. A place that pauses is not counted."""

PARTS_LEFT_MAX: Final = 100_000
PARTS_LEFT_ASK_S: Final = 30.0
PARTS_LEFT_AGAIN_S: Final = 1.0
PARTS_LEFT_AGAIN_S_MAX: Final = 60.0
"""The number of parts of dropped queues that slices are asked to end later, as they did not answer or refused; how long
an attempt for LEFTOVERS_AT_ONCE_MAX of them may take, in seconds. The pauses between the beginnings of a place's
rounds: at first, doubled each time when nothing of a round succeeded, and at most, in seconds. A slice that refuses is
in trouble: what many clients ask of it must become less."""

FRAMES_IN_FLIGHT_MAX: Final = 32
"""The number of a session's unanswered frames: covers 100 ms of round trip at 300 frames/s, and bounds what is sent
again."""

FRAMES_BEFORE_CHANGE_MAX: Final = 8
"""How many questions, acks or attaches are sent before a change that waits too. Without a bound a publish waited for as
long as 40 tasks kept pulling."""

UNANSWERED_BYTES_MAX: Final = 32 << 20
"""The bytes of requests waiting or under way to one slice, with REQUEST_OVERHEAD_BYTES each. Above it callers wait."""

REQUEST_OVERHEAD_BYTES: Final = 300
"""The memory of one request besides its bytes: object, future, timer share (measured)."""

REROUTE_BYTES_MAX: Final = 32 << 20
"""The bytes of all publishes that wait for a newer map. Above it they fail with ResourceExhausted."""

# Time

DEADLINE_S: Final = 30.0
"""The default deadline of every call, in seconds: longer than a slice's restart or takeover."""

EXPIRE_EVERY_S: Final = 0.05
"""How often deadlines are checked, in seconds, and so how exact they are."""

QUEUES_TOLD_MAX: Final = 10
"""The dropped queues that are named in the log at a time: a line each. Of the others it tells the number."""

TOLD_PER_TURN_MAX: Final = 100
"""The number of calls of `on_state` and `on_error` in one turn of the event loop: other work goes on between them."""

TOLD_WAITING_MAX: Final = 10_000
"""The number of states and errors that wait to be told, above which further ones are only counted in the log: ten turns
of an inbox whose thousand queues of a frame were dropped at once."""

SILENT_S: Final = 5.0
"""How long a slice may leave a call without an answer, in seconds, before the log says so: far below the deadline of a
call, so that its caller knows what it waits for, and long enough for a slice that starts anew."""

SILENT_ASK_S: Final = 1.0
"""How often it is looked for calls without an answer, in seconds; and how long they are before a slice is asked an
empty question, which it answers soon even where it is busy with what was asked before."""

LONG_WAIT_LOOKS: Final = 4
"""An inbox looks so often for what waits too long, while a message waits as long as it may."""

LONG_WAIT_LOOK_S: Final = 0.01
"""The least time between two such looks."""

GIVEN_BACK_PER_TURN: Final = 500
"""Deliveries that an inbox gives back before it lets other tasks run: about 5 ms."""

RETURNING_MAX: Final = 20_000
"""Keys, each counted for each queue, of which an inbox remembers what it gave back, so that nothing overtakes that. Of
more, what comes of the oldest may come out of order."""

RETURNING_RANGES_MAX: Final = 10_000
"""Ranges of one key and queue that an inbox gave back and follows. Of more, messages may come out of order."""

HANDED_OUT_RANGES_MAX: Final = KEY_UNACKED_MAX
"""Ranges of one key and queue that an inbox follows after it handed them out: a slice has no more out."""

CLOSE_S: Final = 5.0
"""How long leaving `async with` may wait for answers."""

SESSION_END_S: Final = 1.0
"""How long a session's stream may take to end after it was cancelled; then it is left alone."""

BACKOFF_FIRST_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
"""The first and the longest pause between attempts to reach a slice or redirector; jittered by half."""

READABLE_S: Final = 2.0
"""How long a session's stream lasts, in seconds, before it counts as one that works, where an earlier one brought what
could not be read: it may begin with what can."""

GAPS_LOGGED_PER_S: Final = 10
"""Lines about gaps of which no callback hears, in a second of a program's log. The next line counts the rest."""

MAP_PATIENCE_S: Final = 2.0
MAP_PATIENCE_S_MAX: Final = 32.0
"""How long a redirector may be silent before another one is asked for the map, in seconds: at first, doubled each time
when all were asked and none had a map, and at most."""

MAP_BEHIND_S: Final = 60.0
"""How long no redirector must have told a map as new as the one that is known before an older one is taken: that one
was not this cluster's, or the cluster was made anew."""

MAP_SUSPECT_S: Final = 1.0
"""How long a map stream must be open before a refusal re-opens it, in seconds."""

KEEPALIVE_S: Final = 30
KEEPALIVE_TIMEOUT_S: Final = 10
"""A silent peer is noticed within 40 s; servers must allow pings every 10 s."""

# Consuming

INBOX_BYTES_MAX: Final = 16 << 20
"""The bytes of deliveries that an inbox holds unread, over all slices, before it stops reading; also the window that it
asks of each slice."""

INBOX_EXCESS_BYTES: Final = 64 << 20
"""How many bytes an inbox may exceed its buffer by while one of its calls waits for an answer: the answer comes behind
deliveries on the same stream. Several times what a connection has on its way; above it, the call ends at its
deadline."""

DELIVERY_OVERHEAD_BYTES: Final = 300
"""The memory of one delivery besides bodies and handles."""

ACK_LINGER_S: Final = 0.005
"""How long an ack waits for others to go with it, in seconds: far below the 100 ms that a crash may lose anyway."""

ACK_HANDLES_MAX: Final = 10_000
ACK_BYTES_MAX: Final = 64 << 10
"""The handles (or queues), and the bytes, in one frame of acks: what a slice takes without counting first."""

ACK_FRAMES_MAX: Final = 8
"""The number of a session's unanswered frames of acks. Acks given meanwhile are merged, and bounded by what was
delivered."""

ACK_AGAIN_S: Final = 0.2
"""How long acks that a slice has no room for (a full disk) wait until they are sent again, in seconds."""

DOUBTS_ASK_FIRST_S: Final = 0.2
DOUBTS_ASK_MAX_S: Final = 1.0
"""The first and the longest pause of a `flush` between questions which acks of a lost stream the slice lacks, in
seconds. Meanwhile their messages come again, which a healthy slice gives at once, and are acked again."""

DOUBTS_ASKED_MAX: Final = 500
"""Ranges of acks of a lost stream that an inbox asks for at a time by itself, after the same first pause: a few ms. The
longest pause is that of late acks: another consumer may have nacked a message with a long delay."""

LATE_ACKS_WAIT_S: Final = 1.0
"""How long a `flush` waits for the messages of acks that came after the ack timeout to come here again, or to be acked
by the consumer that has them, in seconds: then it says that these acks had no effect. Where the window has room, they
come at once."""

LATE_ACKS_ASK_FIRST_S: Final = 0.2
LATE_ACKS_ASK_MAX_S: Final = 30.0
"""The first and the longest pause between questions what became of acks that came after the ack timeout, in seconds:
another consumer may work on the message for as long as it takes."""

LATE_ACKS_ASKED_MAX: Final = 500
"""Ranges of late acks that are asked for at a time, and of which no flush has told besides: a few ms. While some are
found to be acked, the next are asked for after the first pause."""

WINDOW_LOOK_S: Final = 1.0
"""How often an inbox without new messages checks whether its window is full, in seconds."""

WINDOW_FULL_S: Final = 5.0
"""How long a window must be full, with nothing taken from the inbox, until that is told, in seconds: long enough for
work on a message, short enough for a person that waits."""

WINDOW_TOLD_S: Final = 60.0
"""How long an inbox waits until it tells of a full window again, in seconds."""

PROCESS_RETRY_S: Final = 1.0
"""How long a message rests whose `process` block failed, in seconds, if the program says nothing: long enough that one
that always fails takes no processor time, short enough for a fault that passes."""

RECENT_DELIVERIES_MAX: Final = 1_000
"""The deliveries of a slice whose sizes an inbox remembers: about 0.2 MiB. A window by bytes is full before that many
came, unless messages are small or many queues take turns."""

DRAIN_LOOK_S: Final = 0.05
"""How often `drain` looks whether all messages are acked, in seconds."""

MESSAGES_PER_TURN_MAX: Final = 500
"""The number of messages handed out before other tasks get a turn: about 1 ms."""

TURN_S: Final = 0.005
"""How long an inbox may hand out messages before other tasks get a turn, in seconds: work of the program that does not
await counts."""

ATTACH_QUEUES_MAX: Final = 1_000
"""The number of queues in one Attach or Detach: what a slice takes in one."""

ATTACH_AGAIN_S: Final = 1.0
"""How long attaches that a slice has no room for wait until they are sent again, in seconds."""

EXCLUSIVE_AGAIN_S: Final = 0.5
"""How long an inbox waits before it attaches an exclusive queue again at a slice that gave it to another session, while
the queue's home gives it to this one, in seconds. Meanwhile the other session hears from the home."""

ATTACH_OTHERS_S: Final = 1.0
"""How long attaching waits for slices that are not the queues' homes, in seconds. A slice that does not answer is
attached later."""

CONSUME_QUEUES_MAX: Final = 1_000_000
"""The number of queues of one inbox: a handle and two dictionary entries each."""

SEEN_RANGES_EACH: Final = 64
SEEN_RANGES_ALL: Final = 100_000
SEEN_RANGES_MAX: Final = KEY_UNACKED_MAX // 2 + WINDOW_MESSAGES_DEFAULT
"""The remembered ranges of one key and queue: SEEN_RANGES_ALL shared out among those that are remembered now, at most
SEEN_RANGES_MAX (each second message of what a slice gives of a key, and acks under way), at least SEEN_RANGES_EACH. A
range takes about 130 bytes, so those above SEEN_RANGES_EACH take 50 MB at most for each slice. Above it the lowest is
forgotten, and a repeat of it is delivered."""

SEEN_ENTRIES_MAX: Final = 250_000
"""The remembered (key, queue) pairs of an inbox's part, for each slice. Measured: 260 bytes each where many queues have
one key, 570 (390 where repeats are handed out) where each has a key of its own: 65 to 143 MB at most. Above it the key
that was not used for longest is forgotten. If it has many queues, an eighth of the bound of them is: those that it had
for longest."""

FORGOTTEN_HANDLES_MAX: Final = 10_000
"""The number of remembered handles that left, or whose queue's life ended. Above it they are removed from all keys at
once, which takes 0.1 to 0.4 s where 250,000 keys are remembered, and 5 ms where it is one key."""

# Queues on several slices

KNOWN_QUEUES_MAX: Final = 100_000
"""The number of queues whose options are remembered."""

KNOWN_QUEUE_AGE_S: Final = 10.0
"""How long remembered options are trusted, in seconds: another client may drop the queue."""

HOME_QUESTION_QUEUES_MAX: Final = 1_000
"""The number of queues in one question to a home: what a slice takes in one Describe."""

DESCRIBE_QUEUES_MAX: Final = 1_000
"""The number of queues in one Describe: what a slice takes in one."""

DESCRIBE_SIZES_KEPT_S: Final = 60.0
"""How long it is remembered how many queues a slice describes together, in seconds. Then larger questions are tried
once more: a refusal costs a slice a look at the queues' rows."""

DESCRIBE_SIZES_MAX: Final = 20_000
"""The number of queues of one slice of which that is remembered: 100 bytes each. Above it all is forgotten."""

LOOKS_AT_ONCE_MAX: Final = 24
"""How many quick looks (describes, peeks), and how many slow ones, a slice is asked at a time: all have turns there. A
slice reads up to 32 unary calls of a connection."""

LOOK_QUICK_S: Final = 0.5
"""How long a look may take among the quick ones, in seconds; then it begins again among the slow ones. Many times what
a busy slice takes for a queue with few bindings, and little beside what is slow."""

LONG_QUESTION_BINDINGS: Final = 500
"""The bindings of a queue above which a look at it counts as slow, however long it took: a slice takes about 5 us for
each."""

SLOW_LOOKS_MAX: Final = 20_000
"""The queues that are remembered as slow to look at: up to 400 bytes each."""

QUEUE_SIZES_MAX: Final = 20_000
"""The number of queues whose bindings are remembered: up to 400 bytes each."""

DESCRIBE_TOLD_S: Final = 60.0
"""How long the log is not told again that a slice refuses to describe queues, in seconds."""

PULL_PATIENCE_S: Final = 1.0
"""How long a pull waits for one slice, in seconds, before it asks the next, or returns what the others gave."""

PULL_AGAIN_MAX: Final = 3
"""How often a pull asks a slice again after all that it brought was given back. Once is enough, as the question goes
behind the nack; but a slice that has no room for a delayed nack brings the same again and again."""

PULL_BYTES_MAX: Final = 2 << 20
"""The bytes of bodies in one answer to a pull: fits a frame beside keys and framing."""

LEASE_LOOK_S: Final = 4.0
"""How long a pull waits for slices to say what they have, in seconds, before it goes on without the silent ones."""

LEASE_REGROUP_S: Final = 1.0
"""How long acks wait for a slice to take them, in seconds, before they are grouped anew by the newest map."""

LEASE_LEFT_S: Final = 1.0
"""How long the answer to a pull under a lease is waited for after its caller has left, in seconds: what it brings is
given back. Then the call is ended, and the slice gives back what it has not sent."""

LEASE_LEFT_MAX: Final = 16
"""The number of such answers that are waited for: up to PULL_BYTES_MAX each. Above it the calls are ended at once."""

LEASE_BACK_S: Final = 4.0
"""How long a slice may take to take messages back that no program was given, in seconds; a close waits as long. What it
does not take back by then stays leased."""

LEASE_BACK_RANGES_MAX: Final = 20_000
"""The ranges of offsets that wait to be given back, or are under way: up to 1 KiB each, with key and queue. What is
above it stays leased."""

LEASE_BACK_NACKS_MAX: Final = 400
"""The ranges in one nack: with names of the greatest length 210 KiB, and a slice takes 256."""

LEASE_BACKLOGS_MAX: Final = 1_000
"""The number of queues whose backlogs are asked for together: what a slice takes in one Describe."""

WATCH_RESPONSES_MAX: Final = 4
"""The number of responses that a watch holds unread, of up to 80 KiB each. While it holds them it stops reading, and a
slice tells a watch that reads slowly less: the state, or counts."""

WATCHED_MEMBERS_MAX: Final = 10_000
"""The members of a key that one watch keeps, to tell what changed while its slice was away: about 250 bytes each. A
slice tells up to 1,000 by name, and counts of more; above this the watch ends with ResourceExhausted."""

COUNTED_KEYS_MAX: Final = 500_000
"""The keys whose counts one watch keeps, to tell what changed while a slice was away: about 250 bytes each. Above it
the watch ends with ResourceExhausted."""

COUNTED_KEYS_OF_ALL_MAX: Final = 1_000_000
"""The keys whose counts all watches of one client keep together: 250 MB. Above it the watch that came to know one more
ends with ResourceExhausted. A gateway's watches are those of one client."""

LIST_ITEMS_DEFAULT: Final = 100
"""The number of a page's items if the caller gives none: a screen or two."""

LIST_QUESTIONS_MAX: Final = 10
"""The number of questions to one slice for one page of bindings. A slice fills what it is asked for, or has no more;
one that does neither ends the page early, with its `next`."""

assert GATHER_OPERATIONS_MAX <= FRAME_OPERATIONS_MAX
assert LEFTOVERS_AT_ONCE_MAX <= GATHER_OPERATIONS_MAX
assert PARTS_LEFT_AGAIN_S < PARTS_LEFT_AGAIN_S_MAX
assert max(GATHER_BYTES_MAX, CHUNK_BYTES_MAX) + (64 << 10) <= REQUEST_BYTES_MAX
assert TRANSACTION_BYTES_MAX + (64 << 10) + 32 * GATHER_OPERATIONS_MAX <= REQUEST_BYTES_MAX
assert CHUNK_GATHER_BYTES_MAX + BODY_BYTES_MAX <= CHUNK_BYTES_MAX
assert CHUNK_BYTES_MAX + REQUEST_OVERHEAD_BYTES <= UNANSWERED_BYTES_MAX
assert PULL_BYTES_MAX * 2 <= FRAME_BYTES_MAX
assert ATTACH_QUEUES_MAX * 270 <= REQUEST_BYTES_MAX
assert ACK_HANDLES_MAX * 5 < ACK_BYTES_MAX
assert HOME_QUESTION_QUEUES_MAX <= DESCRIBE_QUEUES_MAX and LEASE_BACKLOGS_MAX <= DESCRIBE_QUEUES_MAX
assert LOOK_QUICK_S < PULL_PATIENCE_S < LEASE_LOOK_S
assert LOOK_QUICK_S < SILENT_ASK_S < SILENT_S
assert SESSION_END_S < CLOSE_S and BACKOFF_MAX_S < READABLE_S
assert WINDOW_LOOK_S <= WINDOW_FULL_S < WINDOW_TOLD_S
