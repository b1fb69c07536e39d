"""Bounds of the HTTP gateway. Each with its unit and its reason."""

from typing import Final

from shoal.limits import LONG_QUESTION_BINDINGS
from shoal_contract.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_MESSAGES_MAX,
    FRAME_OPERATIONS_MAX,
    KEY_UNACKED_MAX,
    LIST_ITEMS_MAX,
    NAME_BYTES_MAX,
    PULL_LEASE_MS_MAX,
)
from shoal_runtime.http.limits import HttpLimits

# Requests

BODY_BYTES_MAX: Final = 4 << 20
"""The bytes of one request's body: the largest chunk fits, in base64 with its JSON, and a few hundred such bodies do
not fill the memory."""

BODY_VALUES_MAX: Final = 60_000
"""The values in one request's body, counted before it is parsed: 10,000 acks and 10,000 ranges fit. Parsing and
checking so many takes 40 ms of a thread."""

SMALL_WORK_VALUES: Final = 100
"""A body of no more values than this, with a value for each KiB, is parsed and checked at once, in the loop: 1 to 2 ms,
and what it asks for may take as long. What is larger is done in a thread, and in turns."""

LARGE_WORK_MAX: Final = 2
"""Large bodies whose turn it is: one is worked on, and the next is ready when it is done."""

WAITING_LARGE_WORK_MAX: Final = 200
"""Large bodies that wait for their turn: 4 s, at 20 ms for each."""

STEP_VALUES: Final = 50
"""Steps of a transaction, messages to different keys, or their outcomes, that are taken in one step of the loop: 20 to
40 us each."""

ACKS_PER_STEP: Final = 1_000
"""Acks and nacks that are handed to the client library in one step of the loop: 4 us each."""

SWITCH_S: Final = 0.001
"""How long the thread of large bodies keeps Python's global lock while the loop waits for it. A request takes some ten
turns of the loop; with Python's default of 5 ms each of them would take as long beside a large body."""

REQUESTS_MAX: Final = 1_000
"""Requests being answered at once, long polls included. Above this, callers are asked to slow down."""

CONNECTIONS_MAX: Final = 4_000
"""Open connections, most of them kept alive and idle."""

HEAD_BYTES_MAX: Final = 16 << 10
"""The bytes of request line and headers: a path with two names of 255 percent-encoded bytes takes 1.6 KiB."""

IDLE_S: Final = 60
"""The seconds after which a connection without a request is closed."""

STOP_S: Final = 5
"""The seconds that requests under way may still take once the process is asked to stop."""

HTTP: Final = HttpLimits(CONNECTIONS_MAX, REQUESTS_MAX, HEAD_BYTES_MAX, BODY_BYTES_MAX, IDLE_S, STOP_S)
"""The same bounds, in the form that the HTTP server takes."""

METRICS_HTTP: Final = HttpLimits(200, 100, HEAD_BYTES_MAX, 64 << 10, 2 * IDLE_S, STOP_S)
"""The bounds of the port of `--metrics`, the same as for a slice node's: a few clients probe and scrape. Scrapes are up
to a minute apart."""

# The token

TOKEN_BYTES_MIN: Final = 16
"""The fewest characters of a token: 16 random letters and digits are 95 bits, beyond guessing."""

TOKENS_MAX: Final = 2
"""Tokens valid at a time: one, or two while the token is changed."""

TOKEN_FILE_BYTES_MAX: Final = 64 << 10
"""The bytes that are read of a token file: a longer one is some other file."""

TOKEN_LOOK_S: Final = 1.0
"""The seconds between two checks whether the token file has changed."""

REFUSAL_S: Final = 1.0
REFUSALS_HELD_MAX: Final = 200
"""A wrong token is answered after REFUSAL_S seconds, for up to REFUSALS_HELD_MAX requests at a time: a guess costs its
connection a second."""

# Parts of requests

NAME_CHARACTERS_MAX: Final = 3 * NAME_BYTES_MAX
"""The characters of a percent-encoded name: three for each byte."""

QUEUES_PER_CALL_MAX: Final = 1_000
"""Queues declared by one call: about 50 ms of a slice's time."""

KEYS_PER_CALL_MAX: Final = 1_000
"""Keys bound or unbound by one call: as many as a slice takes in one frame, so that the keys of one slice change all or
none."""

MESSAGES_PER_CALL_MAX: Final = CHUNK_MESSAGES_MAX
"""Messages published by one call: one chunk."""

KEYS_PER_PUBLISH_MAX: Final = 1_000
"""Messages to different keys in one call: each is a request with a receipt of its own."""

TRANSACTION_STEPS_MAX: Final = FRAME_OPERATIONS_MAX
"""Steps of a transaction: as many as one frame takes; keys and queues of a step count, too, in the library."""

HEADERS_MAX: Final = 64
"""Headers of one message: enough for tracing and content types; not a second body."""

ACKS_PER_CALL_MAX: Final = 10_000
"""Acks in one call: as many as one pull takes."""

LOCATE_KEYS_MAX: Final = 100
"""Keys in one locate: they stand in the query, which is bounded by HEAD_BYTES_MAX."""

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = LIST_ITEMS_MAX
"""Names in one page: an answer below 1 MiB with names of 255 bytes."""

DEADLINE_S: Final = 10.0
"""The seconds that a request waits for its slice: enough for a restart, and less than the time after which usual
proxies give up."""

# Pull

PULL_MESSAGES_DEFAULT: Final = 10
PULL_MESSAGES_MAX: Final = 1_000
"""Messages in one answer."""

PULL_BODY_BYTES_MAX: Final = 4 << 10
"""The bytes of a pull's own body, which stays in memory for as long as the pull waits: three numbers."""

PULL_BYTES_MAX: Final = 2 << 20
"""The bytes of bodies in one answer, about. An answer is held in memory three times: as bodies, JSON and bytes to
send."""

PULL_BYTES_CROWDED: Final = 256 << 10
"""The same bound where pulls wait for a place, of the same queue or of others: then all get something, soon."""

PULLS_MAX: Final = 8
PEEKS_MAX: Final = 2
"""Pulls and peeks that ask slices at a time, one fewer of the same queue. One takes a few milliseconds, and 30 ms to
make 2 MiB of JSON, during which nothing else is answered. A peek brings up to 1 MiB from each slice."""

TAKE_PATIENCE_S: Final = 1.0
"""The seconds after which a pull or peek without an answer gives its place to another, and goes on waiting."""

ROOM_LOOK_S: Final = 0.05
"""The seconds between two checks whether callers have read enough for another answer. Checked only where they had
not."""

PULL_WAIT_S_MAX: Final = 55.0
"""The seconds of a long poll: below the 60 s after which usual proxies end a silent request."""

LEASE_MS_DEFAULT: Final = 30_000
LEASE_MS_MAX: Final = PULL_LEASE_MS_MAX
"""The milliseconds for which pulled messages are kept for their ack: 30 s as the slice's own default, an hour at
most."""

WAITING_PULLS_MAX: Final = 800
"""Pulls at once, those that wait included: the rest of REQUESTS_MAX is for other requests. Each costs its share of one
question to every slice."""

WAITING_PEEKS_MAX: Final = 50
"""Peeks that wait at once: they are for people."""

LISTS_MAX: Final = 4
WAITING_LISTS_MAX: Final = 200
"""Pages of names that are made at a time, and those that wait for it. A page of 1,000 bindings is up to 2 MB."""

LISTED_IN_STEP: Final = 50
"""Names of a page that are shown in one step of the loop: 2 ms at most, where names are 255 bytes that are not
UTF-8."""

LOOK_EVERY_S_MIN: Final = 0.03
LOOK_EVERY_S_MAX: Final = 1.0
LOOK_SHARE: Final = 0.1
"""Backlogs of waiting queues are asked for together. The pause behind a look is nine times as long as the look, but at
least LOOK_EVERY_S_MIN and at most LOOK_EVERY_S_MAX: so a look takes a tenth of the time, and one of over 0.11 s takes
more. The shares below bound that: they make the pause longer than LOOK_EVERY_S_MAX where it must be."""

LOOK_BINDINGS_SMALL: Final = LONG_QUESTION_BINDINGS
LOOK_BINDINGS_MEDIUM: Final = 10_000
"""Queues of up to so many bindings are asked for together, and apart from larger ones: a slice takes about 5 us for a
binding, so large queues would hold up the pulls of all others. The library asks for slow ones over a connection of
their own."""

LOOK_QUEUES_MEDIUM: Final = 10
LOOK_QUEUES_LARGE: Final = 1
"""Queues of these sizes that are asked for at a time, in turn: half of what one question to a slice may cost. Unknown
ones are asked for together, as small ones: most are small, and a slice refuses to count too many bindings at a time."""

LOOK_SHARE_MAX: Final = 0.4
LOOK_SHARE_MAX_LARGER: Final = 0.2
"""The most of the time in which small queues are asked for, and medium, large and unknown ones each, however long looks
take. Together these are all of the time: on average a slice has at most one such question of a gateway."""

CALLER_LEFT_STATUS: Final = 499
"""The status of a look whose caller closed the connection before its answer: only figures see it."""

RETRY_S: Final = 1.0
"""The seconds after which a queue is pulled again while its whole backlog is given out: a lease may have ended."""

# Push

STREAMS_MAX: Final = 500
"""Event streams at once. Each may hold its window in memory."""

WATCHES_MAX: Final = 200
"""Watches at once. Each has a connection of its own to a slice, or to every slice."""

STREAMS_PER_QUEUE_MAX: Final = 8
"""Streams that compete for one queue: each needs a connection of its own to every slice, shared with other queues."""

WINDOW_MESSAGES: Final = 500
WINDOW_BYTES: Final = 256 << 10
"""What one stream may have unacked on each slice. A slow reader holds no more than this here; the rest stays on
disk."""

HELD_BYTES_MAX: Final = 64 << 20
"""The bytes of messages that all streams together have not written yet. Above this, the stream that holds most is
ended."""

EVENT_BATCH_BYTES: Final = 64 << 10
"""The bytes of events written at once, about: what a socket takes without waiting."""

HEARTBEAT_S: Final = 15.0
"""The seconds after which a stream without messages writes a comment: below the idle limits of proxies."""

AUTO_ACK_HOLD_S: Final = 0.5
"""The seconds after which a message written with ack=auto is acked, if the stream is still open then."""

STALL_S: Final = 60.0
"""The seconds after which a reader that takes nothing counts as gone; its messages go to others."""

LAST_WORDS_S: Final = 1.0
"""The seconds in which a reader may still take the reason why its stream was ended."""

RECONNECT_MS: Final = 1_000
"""The milliseconds that event streams tell browsers to wait before they connect again."""

# The cluster at a glance

SAMPLE_EVERY_S: Final = 2.0
"""The seconds between two samples of every slice's figures: one small call each."""

SAMPLES_MAX: Final = 151
"""Samples kept: five minutes of rates."""

SAMPLE_DEADLINE_S: Final = 4.0
"""The seconds after which a slice that does not answer counts as silent."""

assert BODY_BYTES_MAX > CHUNK_BYTES_MAX * 4 / 3
assert HEAD_BYTES_MAX > LOCATE_KEYS_MAX * 100
assert PAGE_DEFAULT <= PAGE_MAX
assert SMALL_WORK_VALUES < BODY_VALUES_MAX
assert KEYS_PER_CALL_MAX <= FRAME_OPERATIONS_MAX
assert LEASE_MS_DEFAULT <= LEASE_MS_MAX
assert PULL_MESSAGES_DEFAULT <= PULL_MESSAGES_MAX
assert WAITING_PULLS_MAX < REQUESTS_MAX
# What readers of one gateway hold of a queue is less than a slice gives of one key: others get the rest.
assert STREAMS_PER_QUEUE_MAX * WINDOW_MESSAGES < KEY_UNACKED_MAX
# So, even with as many connections as may be open, one of them waits for its peer and can be closed for a new one.
assert REQUESTS_MAX + STREAMS_MAX + WATCHES_MAX + REFUSALS_HELD_MAX < CONNECTIONS_MAX
assert PULL_BYTES_CROWDED < PULL_BYTES_MAX
assert AUTO_ACK_HOLD_S < HEARTBEAT_S < STALL_S
assert LOOK_SHARE <= LOOK_SHARE_MAX_LARGER <= LOOK_SHARE_MAX and LOOK_SHARE_MAX + 3 * LOOK_SHARE_MAX_LARGER <= 1

DIGITS_MAX: Final = 640
"""The digits of a number in JSON: the fewest that Python lets one set. 960 numbers of 4,299 digits took 0.2 s."""

COUNTED_AT_ONCE_BYTES: Final = 256 << 10
"""The values of larger bodies are counted in the thread: of 4 MB that took 20 to 90 ms."""
