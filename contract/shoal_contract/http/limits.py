"""Bounds of HTTP that all servers share, each with its unit and its reason; and the form of those that differ."""

from dataclasses import dataclass
from typing import Final

HEAD_S: Final = 10.0
"""From the start of a connection, or the first byte of a next request, to the end of the head: milliseconds else."""

STEP_S: Final = 30.0
STEP_BYTES: Final = 16 << 10
"""A body must bring, and the reader of an answer take, so many bytes in each such time: 546 bytes a second. A silent
phone in a tunnel gets half a minute; a connection that pretends costs no more."""

SLOW_S: Final = 2.0
"""Where room is short, a body that has not brought STEP_BYTES for so long, or a reader that has not taken them, makes
place for another. A process that is busy sees what has come later than it came, so no less."""

REST_S: Final = 5.0
"""A request that was answered before its body was complete may send the rest for so long: a client that writes before
it reads still gets the answer. What comes is thrown away."""

ANSWERS_BYTES_MAX: Final = 64 << 20
"""Answers that their readers have not taken yet, over all connections. Above it readers that do not get on are cut
off, and what makes large answers should wait (`HttpServer.has_room`)."""

SEND_BUFFER_BYTES: Final = 128 << 10
"""The bytes of an answer that the kernel holds for its reader, which containers count as memory too; the kernel takes
twice as much. By itself it would go up to 4 MiB a connection."""

BODIES_BYTES_MAX: Final = 64 << 20
"""Bodies of requests under way, from their head to their answer. In memory each is there up to three times: as it came,
as message, on its way to the slice."""

OBJECT_BYTES: Final = 256
"""What an object of JSON counts beside its bytes: `{}` of two bytes becomes a dictionary, and perhaps a message."""

BODY_PIECE_BYTES: Final = 256 << 10
"""What a body without a length is taken to be until it has grown beyond: as much as one read may bring."""

METRICS_KEPT_S: Final = 0.2
"""What `/metrics` answers is given again for so long: rendering takes 3 ms, so many who ask take 1.5 % of the loop."""

BESIDE_GRPC_PAUSE_S: Final = 0.001
"""Between the reading of two requests beside gRPC: some 600 a second, or a third of the loop. gRPC calls take a few
turns of the loop each, and would else wait for a request in every one."""

EVENTS_PER_TURN: Final = 16
"""Pieces of a body that are read in one turn of the loop, 20 us each: a chunk of a body may be of one byte."""

CONNECTIONS_FACTOR: Final = 2
"""Where all connections are being answered, or wait for their turn, so many times as many as there may be are let in;
then the newest goes."""

LOG_LINES_PER_S: Final = 1.0
"""Lines about bad requests in a log, of each kind; the rest is counted, and the count is in the next line."""

OPEN_FILES_SHARE: Final = 0.5
"""Of the files that the process may open, so much for HTTP connections: the rest is for gRPC, journals and stores."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What differs by server; each server's limits.py has one."""

    connections_max: int
    """Open connections. One more ends the one among those that wait for their peer whose time is over first."""

    requests_max: int
    """Requests being answered at a time, health and event streams left out; more are refused with 429."""

    head_bytes_max: int
    """Request line and headers; more is refused with 431."""

    body_bytes_max: int
    """One body; more is refused with 413."""

    idle_s: int
    """A connection without a request is closed after so long."""

    stop_s: float
    """What runs when the process is asked to stop may take so long."""

    pause_s: float = 0.0
    """Between two turns in which a request is read, where gRPC is the loop's main work."""

    def __post_init__(self) -> None:
        assert self.requests_max < self.connections_max


assert STEP_BYTES / STEP_S > 500
assert SLOW_S < REST_S < HEAD_S < STEP_S
assert BODY_PIECE_BYTES < BODIES_BYTES_MAX
