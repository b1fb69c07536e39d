"""Defines the HTTP bounds that all servers share, with unit and reason, and the form of the bounds that differ."""

from dataclasses import dataclass
from typing import Final

HEAD_S: Final = 10.0
"""The seconds from the start of a connection, or the first byte of a next request, to the end of the head. It normally
takes milliseconds."""

STEP_S: Final = 30.0
STEP_BYTES: Final = 16 << 10
"""A body must bring, and the reader of an answer must take, STEP_BYTES in each STEP_S: 546 bytes a second. A silent
phone in a tunnel gets half a minute; a connection that only pretends to work costs no more."""

SLOW_S: Final = 2.0
"""Where room is short, a body that has not brought STEP_BYTES for so many seconds, or a reader that has not taken them,
makes room for another. It is no less because a busy process sees data later than it came."""

REST_S: Final = 5.0
"""A request that was answered before its body was complete may send the rest for so many seconds: a client that writes
before it reads still gets the answer. The rest is thrown away."""

ANSWERS_BYTES_MAX: Final = 64 << 20
"""The bytes of answers that their readers have not taken yet, over all connections. Above this, readers that make no
progress are cut off, and code that makes large answers should wait (`HttpServer.has_room`)."""

TAIL_BYTES: Final = 64 << 10
"""An answer that takes more memory than this counts as unread until its last byte is taken. Smaller ones count only
while they are too large for the transport, which is at the same size."""

SEND_BUFFER_BYTES: Final = 128 << 10
"""The bytes of an answer that the kernel holds for its reader. Containers count them as memory too; the kernel takes
twice as much. Its own default goes up to 4 MiB a connection."""

BODIES_BYTES_MAX: Final = 64 << 20
"""The bytes of bodies of requests under way, from their head to their answer. Each may be in memory three times: as it
came, as a message, and on its way to the slice."""

SMALL_BODY_BYTES: Final = 64 << 10
SMALL_BODIES_PARTS: Final = 4
"""A body that announces no more than the first has a part of this room for itself: larger ones leave BODIES_BYTES_MAX
divided by the second number free for such."""

CROWDED_BODY_S: Final = 10.0
"""Where room is short, a body must come at such a pace that all that it announces is there after so many seconds, and
SLOW_S at its beginning. A body of 4 MiB needs 420 KB/s then, and one of 64 KiB 6.6 KB/s."""

OBJECT_BYTES: Final = 256
VALUE_BYTES: Final = 64
"""The bytes that a JSON object, and each comma, colon or beginning of a list, counts beside its text: the two bytes
`{}` become a dictionary, and perhaps a message; the three bytes `[],` a list and a place in another."""

BODY_PIECE_BYTES: Final = SMALL_BODY_BYTES
"""The size that a body without a length is assumed to have until it is larger."""

METRICS_KEPT_S: Final = 0.2
"""The answer of `/metrics` is given again for so many seconds: rendering takes 3 ms, so that many requests take 1.5 %
of the loop."""

BESIDE_GRPC_PAUSE_S: Final = 0.001
"""The seconds between the reading of two requests beside gRPC: some 600 requests a second, or a third of the loop. Each
gRPC call takes a few turns of the loop, and would otherwise wait for a request in every turn."""

EVENTS_PER_TURN: Final = 16
"""The number of pieces of a body that are read in one turn of the loop, 20 us each: a piece may have one byte."""

CONNECTIONS_FACTOR: Final = 2
"""Where all connections are being answered, or wait for their turn, up to so many times `connections_max` are let in;
beyond that the newest of those that were never answered ends, or else the newcomer."""

LOG_LINES_PER_S: Final = 1.0
"""The number of log lines a second about bad requests, of each kind. The others are counted, and the next line has the
count."""

OPEN_FILES_SHARE: Final = 0.5
"""The share of the files that the process may open that is for HTTP connections. The rest is for gRPC, journals and
stores."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Holds the bounds that differ by server; each server's limits.py has one."""

    connections_max: int
    """The number of open connections. One more ends another: of those that wait for their peer, the one whose time
    ends first."""

    requests_max: int
    """The number of requests being answered at a time, without health and event streams; more are refused with 429."""

    head_bytes_max: int
    """The bytes of request line and headers; more is refused with 431."""

    body_bytes_max: int
    """The bytes of one body; more is refused with 413."""

    idle_s: int
    """A connection without a request is closed after so many seconds."""

    stop_s: float
    """Requests that run when the process is asked to stop may take so many seconds."""

    pause_s: float = 0.0
    """The seconds between two turns in which a request is read, where gRPC is the loop's main work."""

    def __post_init__(self) -> None:
        assert self.requests_max < self.connections_max


assert STEP_BYTES / STEP_S > 500
assert SLOW_S < REST_S < HEAD_S < STEP_S
assert BODY_PIECE_BYTES < BODIES_BYTES_MAX
