"""Bounds of the client library. Each with its unit and its reason; contract limits are in `shoal_contract.limits`."""

from typing import Final

from shoal_contract.limits import (
    BODY_BYTES_MAX,
    CHUNK_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_OPERATIONS_MAX,
    REQUEST_BYTES_MAX,
)

# Requests to one slice

LINGER_S: Final = 0.001
LINGER_FRAMES_MIN: Final = 2
"""How long the first request of a frame waits for company while more frames than this are under way: they come back
soon and bring more. With fewer, waiting only costs latency."""

GATHER_BYTES_MAX: Final = 1 << 20
"""Requests gathered into one frame; a larger single request goes alone. Small enough to keep answers prompt."""

GATHER_OPERATIONS_MAX: Final = 1_000
"""Keys and queues gathered into one frame, and keys of one slice in one call: as many as a slice takes in a frame."""

CHUNK_GATHER_BYTES_MAX: Final = 256 << 10
"""Single messages merged into one chunk: what one consumer gets in one go."""

CHUNK_FRAMING_BYTES: Final = 16
"""Tags and lengths of one body in a chunk, at most."""

DECLARES_AT_ONCE_MAX: Final = 10_000
"""Queues of one declare call under way together: bounds its futures."""

FRAMES_IN_FLIGHT_MAX: Final = 32
"""Unanswered frames of a session: covers 100 ms of round trip at 300 frames/s, and bounds what is sent again."""

UNANSWERED_BYTES_MAX: Final = 32 << 20
"""Requests waiting or under way to one slice, with REQUEST_OVERHEAD_BYTES each. Above it callers wait."""

REQUEST_OVERHEAD_BYTES: Final = 300
"""Memory of one request besides its bytes: object, future, timer share (measured)."""

REROUTE_BYTES_MAX: Final = 32 << 20
"""Publishes that wait for a newer map, in all. Above it they fail with ResourceExhausted."""

# Time

DEADLINE_S: Final = 30.0
"""Default for every call: rides out a slice's restart or takeover."""

EXPIRE_EVERY_S: Final = 0.05
"""How exact deadlines are."""

CLOSE_S: Final = 5.0
"""How long leaving `async with` may wait for answers."""

SESSION_END_S: Final = 1.0
"""How long the stream of a session may take to end once it was cancelled; then it is left alone."""

BACKOFF_FIRST_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
"""Between attempts to reach a slice or redirector; jittered by half."""

MAP_SUSPECT_S: Final = 1.0
"""The map stream is not re-opened more often because of refusals."""

KEEPALIVE_S: Final = 30
KEEPALIVE_TIMEOUT_S: Final = 10
"""A silent peer is noticed within 40 s; servers must allow pings every 10 s."""

# Consuming

INBOX_BYTES_MAX: Final = 16 << 20
"""Deliveries that an inbox holds unread, over all slices, before it stops reading; also asked of each slice."""

INBOX_EXCESS_BYTES: Final = 64 << 20
"""How far an inbox may exceed its buffer while a call of it waits for an answer: the answer comes behind deliveries on
the same stream. Several times what is on its way on a connection; beyond, the call ends at its deadline."""

DELIVERY_OVERHEAD_BYTES: Final = 300
"""Memory of one delivery besides bodies and handles."""

ACK_LINGER_S: Final = 0.005
"""Acks wait for company: far below the 100 ms that a crash may lose anyway."""

ACK_HANDLES_MAX: Final = 10_000
ACK_BYTES_MAX: Final = 64 << 10
"""Handles (or queues), and bytes, in one frame of acks: what a slice takes without counting first."""

ACK_FRAMES_MAX: Final = 8
"""Unanswered frames of acks of a session; what is acked meanwhile merges, bounded by what was delivered."""

ACK_AGAIN_S: Final = 0.2
"""Acks that a slice has no room for (a full disk) are sent again after this."""

ACK_DOUBT_S: Final = 1.0
"""After a lost stream: how long `flush` waits for acked messages to come again, to be acked again. A slice that is well
gives them at once."""

WINDOW_LOOK_S: Final = 1.0
"""How often an inbox that nothing comes to looks whether its window is full, until it has said so once."""

MESSAGES_PER_TURN_MAX: Final = 500
"""Messages handed out before other tasks get a turn: about 1 ms."""

ATTACH_QUEUES_MAX: Final = 1_000
"""Queues in one Attach or Detach: what a slice takes in one."""

ATTACH_AGAIN_S: Final = 1.0
"""Attaches that a slice has no room for are asked for again after this."""

ATTACH_OTHERS_S: Final = 1.0
"""How long attaching waits for slices other than the queues' homes, where they do not answer; they follow by
themselves."""

CONSUME_QUEUES_MAX: Final = 1_000_000
"""Queues of one inbox: a handle and two dictionary entries each."""

SEEN_RANGES_MAX: Final = 64
"""Remembered ranges of one key and queue; above it the lowest is forgotten (and a repeat of it delivered)."""

SEEN_ENTRIES_MAX: Final = 250_000
"""Remembered (key, queue) pairs of an inbox's part, about 100 bytes each; the longest unused key goes first."""

FORGOTTEN_HANDLES_MAX: Final = 10_000
"""Handles whose queue's life ended, until what is remembered of them is looked for in all keys."""

# Queues on several slices

KNOWN_QUEUES_MAX: Final = 100_000
"""Queues whose options are remembered."""

KNOWN_QUEUE_AGE_S: Final = 10.0
"""How long they are trusted: someone else may drop the queue."""

HOME_QUESTION_QUEUES_MAX: Final = 1_000
"""Queues in one question to a home: what a slice takes in one Describe."""

PULL_PATIENCE_S: Final = 1.0
"""How long a pull waits for one slice before it asks the next, or is content with what others gave."""

PULL_LATE_BYTES_MAX: Final = 16 << 20
"""Messages that pulls took too late for their callers, kept for the next pull of their queue. Above it the oldest stay
with nobody until the connection ends."""

PULL_BYTES_MAX: Final = 2 << 20
"""Bodies in one answer to a pull: fits a frame beside keys and framing."""

LEASE_LOOK_S: Final = 4.0
"""How long a pull waits for slices to say what they have, before it goes on without those that are silent."""

LEASE_REGROUP_S: Final = 1.0
"""Acks that a slice does not take in this time are grouped anew, by the map of then."""

LEASE_BACKLOGS_MAX: Final = 1_000
"""Queues whose backlogs are asked for together: what a slice takes in one Describe."""

LIST_ITEMS_DEFAULT: Final = 100
"""Items of a page where the caller names no number: a screen or two."""

assert GATHER_OPERATIONS_MAX <= FRAME_OPERATIONS_MAX
assert max(GATHER_BYTES_MAX, CHUNK_BYTES_MAX) + (64 << 10) <= REQUEST_BYTES_MAX
assert CHUNK_GATHER_BYTES_MAX + BODY_BYTES_MAX <= CHUNK_BYTES_MAX
assert CHUNK_BYTES_MAX + REQUEST_OVERHEAD_BYTES <= UNANSWERED_BYTES_MAX
assert PULL_BYTES_MAX * 2 <= FRAME_BYTES_MAX
assert ATTACH_QUEUES_MAX * 270 <= REQUEST_BYTES_MAX
assert ACK_HANDLES_MAX * 5 < ACK_BYTES_MAX
assert SESSION_END_S < CLOSE_S
