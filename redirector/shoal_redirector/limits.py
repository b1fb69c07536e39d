"""Defines the bounds of the redirector, each with its unit and its reason."""

from typing import Final

from shoal_contract.errors import OutOfRange
from shoal_contract.limits import LOCATE_KEYS_MAX, NAME_BYTES_MAX
from shoal_runtime.http.limits import BESIDE_GRPC_PAUSE_S, HttpLimits
from shoal_runtime.limits import CALL_HELD_BYTES, CALL_WAITING_BYTES, CALLS_PER_CONNECTION_MAX
from shoal_runtime.places import PlacesLimits

REQUEST_BYTES_MAX: Final = LOCATE_KEYS_MAX * (NAME_BYTES_MAX + 4)
"""The bytes of one request: as many of the longest keys as a Locate may have."""

LOCATES_MAX: Final = 12
LOCATES_EACH_MAX: Final = 3
"""The number of Locate calls read at a time, in all and for one connection: up to 2.6 MB each. An answer takes up to
7 ms."""

LOCATE_READ_S: Final = 2.0
LOCATE_READ_CROWDED_S: Final = 0.1
"""How long a Locate may wait for its request, in seconds; the second value while other calls wait. Then it gives its
place to another. Up to UNREAD_BYTES come with the call, and the rest a round trip later; requests with the most keys
need 200 Mbit/s then."""

LOCATES_WAITING_MAX: Final = 200
LOCATES_WAITING_EACH_MAX: Final = 100
"""The number of Locate calls that wait to be read, in all and for one connection: UNREAD_BYTES of each may have
arrived."""

LOCATES: Final = PlacesLimits(LOCATES_MAX, LOCATES_EACH_MAX, LOCATES_WAITING_MAX, LOCATES_WAITING_EACH_MAX)
"""The bounds of Locate calls together, as `Places` takes them."""

WATCHERS_EACH_MAX: Final = 10
"""The number of streams that watch the map on one connection. A client needs one; clients behind a proxy may share a
connection."""

UNREAD_BYTES: Final = 1 << 10
"""The bytes that the transport takes of a request that no handler reads: a watcher's, or a Locate's before its turn. A
few keys fit."""

REFUSED_S: Final = 0.2
"""How long a refused client may take to read the error, in seconds. Then its connection is ended: others need its
call's place."""

STEPS_KEPT: Final = 64
"""The number of encoded answers kept, each for all watchers that need the same: 5 KB each."""

AGE_STEP_MS: Final = 100
"""The step, in milliseconds, in which watchers are told a map's age, so that they may share an answer."""

MEMORY_MIB_DEFAULT: Final = 256
"""The memory that a redirector may take, in MiB, as the chart limits it."""

OTHER_BYTES: Final = 172 << 20
"""The memory for all but watchers, in bytes: program and map 50 MiB, Locates 52, CALLS_BESIDE_WATCHERS 11, calls in
gRPC's line 43, HTTP 16."""

MAPPED_BLOCK_BYTES: Final = 64 << 10
"""Blocks of memory of this size and more are mapped on their own: gRPC's buffers of a connection on which a large
request came then take 95 KB, and 370 KB otherwise (measured). Messages of 1 MB take three times as long, which matters
little here."""

WATCHER_BYTES: Final = 46 << 10
"""The memory of a watcher with a connection of its own, in bytes: 45.6 KB measured (3 of it for gRPC's idle limit), and
UNREAD_BYTES."""

CALLS_BESIDE_WATCHERS: Final = LOCATES_WAITING_MAX + LOCATES_MAX + 100
"""The number of gRPC calls accepted beside all watchers: Locates, and calls that are told that there is no room."""

CALLS_WAITING_MAX: Final = 1_000
"""The number of new calls in gRPC's own line, of all connections: about a second's. Above this gRPC drops new calls
(CANCELLED), whose clients ask again. Of 2,400 watchers that began at once 594 were dropped, and 1,438 with 200 here;
with 2,000 an attacker's calls take 20 MiB more."""

HTTP_REQUESTS_MAX: Final = 200
"""The number of HTTP requests answered at a time: each takes under a millisecond. More are refused with 429."""

HTTP_CONNECTIONS_MAX: Final = 250
"""The number of HTTP connections, most of them idle. One more ends the connection that waits longest. With half a head
each: 16 MiB."""

HTTP_BODY_BYTES_MAX: Final = 64 << 10
"""The bytes of a request's body, which no request here needs."""

HTTP_KEYS_MAX: Final = 1_000
"""The number of keys in one GET: its URL is bounded too."""

HTTP_HEAD_BYTES_MAX: Final = 64 << 10
"""The bytes of request line and headers: some 200 longest keys, or 1,000 of ordinary length."""

HTTP_IDLE_S: Final = 30
"""How long an HTTP connection may be idle before it is closed, in seconds."""

STOP_S: Final = 1.0
"""How long calls that run at SIGTERM may take, in seconds; then watchers are cut off, and go to another redirector."""

MEMORY_FULL: Final = 0.75
MEMORY_HIGH: Final = 0.8
"""Two parts of --memory-mib. Above MEMORY_HIGH, connections that sent much data that no handler reads are ended, until
the process holds MEMORY_FULL; no new ones come meanwhile."""

GREW_BYTES_MAX: Final = 64 << 20
"""Where the memory grew within seconds by more than this, besides what new watchers take, new connections end on which
more came than a watcher sends. Locates take 52 MiB (56 measured, of 100 clients at once; with
16 MiB here, 58 of 90 such calls ended)."""

REWATCH_S: Final = 2.0
"""How long to wait before watching the cluster again, in seconds, after a failure that waiting alone does not mend: a
damaged record, no rights."""

HTTP: Final = HttpLimits(
    HTTP_CONNECTIONS_MAX,
    HTTP_REQUESTS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_BODY_BYTES_MAX,
    HTTP_IDLE_S,
    STOP_S,
    BESIDE_GRPC_PAUSE_S,
)
"""The bounds of HTTP together, as the HTTP server takes them."""


def watchers_max(memory_mib: int) -> int:
    """Returns how many streams may watch the map, about one for each client. Raises OutOfRange if there is memory for
    none."""
    found = ((memory_mib << 20) - OTHER_BYTES) // WATCHER_BYTES
    if found < 1:
        least = (OTHER_BYTES >> 20) + 1
        problem = f"--memory-mib {memory_mib} is too little: a redirector needs at least {least}"
        raise OutOfRange(problem, subject="--memory-mib", limit=least, value=memory_mib)
    return found


assert CALLS_WAITING_MAX * CALL_WAITING_BYTES <= 43 << 20, "as OTHER_BYTES has it"
assert CALLS_BESIDE_WATCHERS * CALL_HELD_BYTES <= 11 << 20, "as OTHER_BYTES has it"
assert WATCHERS_EACH_MAX < CALLS_PER_CONNECTION_MAX, "beside them there is room for a Locate"
assert LOCATE_READ_CROWDED_S < LOCATE_READ_S
assert HTTP_KEYS_MAX <= LOCATE_KEYS_MAX
