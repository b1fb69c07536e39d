"""Bounds of the HTTP gateway. Each with its unit and its reason."""

from typing import Final

from shoal_contract.http.limits import HttpLimits
from shoal_contract.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_MESSAGES_MAX,
    FRAME_OPERATIONS_MAX,
    LIST_ITEMS_MAX,
    NAME_BYTES_MAX,
    PULL_LEASE_MS_MAX,
)

# Requests

BODY_BYTES_MAX: Final = 4 << 20
"""One request's body: a largest chunk in base64 with its JSON, and still nothing that a few hundred of fill memory."""

REQUESTS_MAX: Final = 1_000
"""Requests being answered at once, long polls included; above it callers are asked to slow down."""

CONNECTIONS_MAX: Final = 4_000
"""Open connections, most of them kept alive and idle."""

HEAD_BYTES_MAX: Final = 16 << 10
"""Request line and headers: a path with two names of 255 percent-encoded bytes takes 1.6 KiB."""

IDLE_S: Final = 60
"""A connection without a request is closed after so long."""

STOP_S: Final = 5
"""How long requests under way may take once the process is asked to stop."""

HTTP: Final = HttpLimits(CONNECTIONS_MAX, REQUESTS_MAX, HEAD_BYTES_MAX, BODY_BYTES_MAX, IDLE_S, STOP_S)
"""The same as the HTTP server takes them."""

METRICS_HTTP: Final = HttpLimits(200, 100, HEAD_BYTES_MAX, 64 << 10, 2 * IDLE_S, STOP_S)
"""The port of `--metrics`, as a slice node's: a few probe and scrape. Scrapes are up to a minute apart."""

# The token

TOKEN_BYTES_MIN: Final = 16
"""Characters of a token: 16 random letters and digits are 95 bits, beyond guessing."""

TOKENS_MAX: Final = 2
"""Tokens valid at a time: one, and while it is changed another."""

TOKEN_FILE_BYTES_MAX: Final = 64 << 10
"""So much of a token file is read: it is some other file if it is longer."""

TOKEN_LOOK_S: Final = 1.0
"""Between two looks whether the token file has changed."""

REFUSAL_S: Final = 1.0
REFUSALS_HELD_MAX: Final = 200
"""A wrong token is answered after so long, for so many requests at a time: a guess costs its connection a second."""

# Parts of requests

NAME_CHARACTERS_MAX: Final = 3 * NAME_BYTES_MAX
"""A percent-encoded name: three characters a byte."""

QUEUES_PER_CALL_MAX: Final = 1_000
"""Queues declared by one call: about 50 ms of a slice."""

KEYS_PER_CALL_MAX: Final = 1_000
"""Keys bound or unbound by one call: what a slice takes in one frame, so that those of one slice are all or none."""

MESSAGES_PER_CALL_MAX: Final = CHUNK_MESSAGES_MAX
"""Messages published by one call: one chunk."""

KEYS_PER_PUBLISH_MAX: Final = 1_000
"""Messages to different keys in one call: each is a request with a receipt of its own."""

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
"""A request waits for so long for its slice: rides out a restart, ends before usual proxies give up."""

# Pull

PULL_MESSAGES_DEFAULT: Final = 10
PULL_MESSAGES_MAX: Final = 1_000
"""Messages in one answer."""

PULL_BYTES_MAX: Final = 2 << 20
"""Bodies in one answer, about: it is held in memory three times, as bodies, JSON and bytes to send."""

PULL_BYTES_CROWDED: Final = 256 << 10
"""The same where more ask than PULLS_MAX: then all get something, soon."""

PULLS_MAX: Final = 8
PEEKS_MAX: Final = 2
"""Pulls and peeks that ask slices at a time; one takes a few milliseconds, and 30 to make 2 MiB of JSON, during which
nothing else is answered. A peek brings up to 1 MiB from each slice."""

TAKE_PATIENCE_S: Final = 1.0
"""A pull or peek that has no answer after so long gives its place to another, and waits on."""

ROOM_LOOK_S: Final = 0.05
"""Between two looks whether readers have taken enough for another answer; only where they had not."""

PULL_WAIT_S_MAX: Final = 55.0
"""A long poll: below the 60 s after which usual proxies end a silent request."""

LEASE_MS_DEFAULT: Final = 30_000
LEASE_MS_MAX: Final = PULL_LEASE_MS_MAX
"""How long pulled messages are kept for their ack: 30 s as the slice's own default, an hour at most."""

WAITING_PULLS_MAX: Final = 800
"""Long polls at once; each costs its share of one question to every slice."""

WAITING_PEEKS_MAX: Final = 50
"""Peeks at once: they are for people."""

LOOK_EVERY_S_MIN: Final = 0.03
LOOK_EVERY_S_MAX: Final = 1.0
LOOK_SHARE: Final = 0.1
"""Backlogs of all waiting queues are asked for together, with pauses such that asking takes a tenth of the time."""

RETRY_S: Final = 1.0
"""A queue whose backlog is all given out is pulled again so often: a lease may have ended."""

# Push

STREAMS_MAX: Final = 500
"""Event streams at once. Each may hold its window in memory."""

STREAMS_PER_QUEUE_MAX: Final = 8
"""Streams that compete for one queue: each needs a connection of its own to every slice, shared with other queues."""

WINDOW_MESSAGES: Final = 500
WINDOW_BYTES: Final = 256 << 10
"""What one stream may have unacked on each slice: a slow reader holds no more here, the rest stays on disk."""

HELD_BYTES_MAX: Final = 64 << 20
"""Messages that all streams together have not written yet. Above it the stream that holds most is ended."""

EVENT_BATCH_BYTES: Final = 64 << 10
"""Events written at once, about: what a socket takes without waiting."""

HEARTBEAT_S: Final = 15.0
"""A silent stream says so: below the idle limits of proxies."""

AUTO_ACK_HOLD_S: Final = 0.5
"""With ack=auto a message is acked when the stream has stood for so long since it was written."""

STALL_S: Final = 60.0
"""A reader that takes nothing for so long is gone; its messages go to others."""

LAST_WORDS_S: Final = 1.0
"""A stream that is ended tells its reader why, if that takes it so soon."""

RECONNECT_MS: Final = 1_000
"""What event streams tell browsers to wait before they connect again."""

# The cluster at a glance

SAMPLE_EVERY_S: Final = 2.0
"""How often every slice is asked for its figures: one small call each."""

SAMPLES_MAX: Final = 151
"""Samples kept: five minutes of rates."""

SAMPLE_DEADLINE_S: Final = 4.0
"""A slice that does not answer in this time counts as silent."""

assert BODY_BYTES_MAX > CHUNK_BYTES_MAX * 4 / 3
assert HEAD_BYTES_MAX > LOCATE_KEYS_MAX * 100
assert PAGE_DEFAULT <= PAGE_MAX
assert KEYS_PER_CALL_MAX <= FRAME_OPERATIONS_MAX
assert LEASE_MS_DEFAULT <= LEASE_MS_MAX
assert PULL_MESSAGES_DEFAULT <= PULL_MESSAGES_MAX
assert WAITING_PULLS_MAX < REQUESTS_MAX
# So among as many connections as may be there is one that waits for its peer, and makes place for a newcomer.
assert REQUESTS_MAX + STREAMS_MAX + REFUSALS_HELD_MAX < CONNECTIONS_MAX
assert PULL_BYTES_CROWDED < PULL_BYTES_MAX
assert AUTO_ACK_HOLD_S < HEARTBEAT_S < STALL_S
