"""Bounds of the redirector. Each with its unit and its reason."""

from typing import Final

from shoal_contract.errors import OutOfRange
from shoal_contract.http.limits import BESIDE_GRPC_PAUSE_S, HttpLimits
from shoal_contract.limits import CALLS_PER_CONNECTION_MAX, LOCATE_KEYS_MAX, NAME_BYTES_MAX
from shoal_contract.places import PlacesLimits

REQUEST_BYTES_MAX: Final = LOCATE_KEYS_MAX * (NAME_BYTES_MAX + 4)
"""One request: as many of the longest keys as a Locate may have."""

LOCATES_MAX: Final = 12
LOCATES_EACH_MAX: Final = 3
"""Locate calls that are read at a time, in all and of one connection: up to 2.6 MB each. Answering takes up to 7 ms."""

LOCATE_READ_S: Final = 2.0
LOCATE_READ_CROWDED_S: Final = 0.1
"""A Locate whose request does not come in this time gives its place to another; sooner where others wait. Up to
UNREAD_BYTES come with the call; the rest a round trip later, and requests of most keys need 200 Mbit/s then."""

LOCATES_WAITING_MAX: Final = 200
LOCATES_WAITING_EACH_MAX: Final = 100
"""Locate calls that wait to be read, in all and of one connection: UNREAD_BYTES of each may have arrived."""

LOCATES: Final = PlacesLimits(LOCATES_MAX, LOCATES_EACH_MAX, LOCATES_WAITING_MAX, LOCATES_WAITING_EACH_MAX)
"""The same as they are given."""

WATCHERS_EACH_MAX: Final = 10
"""Streams that watch the map on one connection. A client needs one; those behind a proxy may share a connection."""

UNREAD_BYTES: Final = 1 << 10
"""What the transport takes of a request that nobody reads: a watcher's, or a Locate's before its turn. A few keys
fit."""

REFUSED_S: Final = 0.2
"""How long one that is turned away may take to read that. Then it is hung up on: others need its call's place."""

STEPS_KEPT: Final = 64
"""Encoded answers to watchers, for all that need the same: 5 KB each."""

AGE_STEP_MS: Final = 100
"""The age of a map is told to watchers in such steps, so that they may share an answer."""

MEMORY_MIB_DEFAULT: Final = 256
"""Memory that a redirector may take, as the chart limits it."""

OTHER_BYTES: Final = 136 << 20
"""Of it for all but watchers: program and map 50 MiB, Locates 52, other calls 12, HTTP 16, and a reserve."""

WATCHER_BYTES: Final = 42 << 10
"""A watcher with a connection of its own: 40.0 KB measured, and UNREAD_BYTES."""

CALLS_BESIDE_WATCHERS: Final = LOCATES_WAITING_MAX + LOCATES_MAX + 300
"""gRPC calls that get in beside all watchers: Locates, and those that are told that there is no room."""

HTTP_REQUESTS_MAX: Final = 200
"""HTTP requests being answered at a time: each takes under a millisecond. More are refused with 429."""

HTTP_CONNECTIONS_MAX: Final = 250
"""HTTP connections, most of them idle. One more ends the one that waits longest. Half a head each: 16 MiB."""

HTTP_BODY_BYTES_MAX: Final = 64 << 10
"""A body, which no request here needs."""

HTTP_KEYS_MAX: Final = 1_000
"""Keys in one GET: its URL is bounded too."""

HTTP_HEAD_BYTES_MAX: Final = 64 << 10
"""Request line and headers. Some 200 longest keys, or 1,000 of ordinary length."""

HTTP_IDLE_S: Final = 30
"""An idle HTTP connection is closed."""

STOP_S: Final = 1.0
"""What runs at SIGTERM may take so long; watchers are then cut off, and go to another redirector."""

MEMORY_FULL: Final = 0.75
MEMORY_HIGH: Final = 0.8
"""Parts of --memory-mib. Above the second connections end that sent much which nobody reads, until the process holds
the first; no new ones come meanwhile."""

REWATCH_S: Final = 2.0
"""Before the cluster is watched again after a failure that waiting alone does not mend: a damaged record, no rights."""

HTTP: Final = HttpLimits(
    HTTP_CONNECTIONS_MAX,
    HTTP_REQUESTS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_BODY_BYTES_MAX,
    HTTP_IDLE_S,
    STOP_S,
    BESIDE_GRPC_PAUSE_S,
)
"""The same as the HTTP server takes them."""


def watchers_max(memory_mib: int) -> int:
    """How many streams may watch the map, about one for each client. Raises OutOfRange if memory is for none."""
    found = ((memory_mib << 20) - OTHER_BYTES) // WATCHER_BYTES
    if found < 1:
        least = (OTHER_BYTES >> 20) + 1
        problem = f"--memory-mib {memory_mib} is too little: a redirector needs at least {least}"
        raise OutOfRange(problem, subject="--memory-mib", limit=least, value=memory_mib)
    return found


assert WATCHERS_EACH_MAX < CALLS_PER_CONNECTION_MAX, "beside them there is room for a Locate"
assert LOCATE_READ_CROWDED_S < LOCATE_READ_S
assert HTTP_KEYS_MAX <= LOCATE_KEYS_MAX
