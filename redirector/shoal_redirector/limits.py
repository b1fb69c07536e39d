"""Bounds of the redirector. Each with its unit and its reason."""

from typing import Final

from shoal_contract.errors import OutOfRange
from shoal_contract.http.limits import HttpLimits
from shoal_contract.limits import LOCATE_KEYS_MAX

LOCATES_MAX: Final = 4
"""Locate calls whose keys are in memory at a time: 10,000 of the longest are 2.6 MB, twice. One takes up to 7 ms."""

LOCATES_WAITING_MAX: Final = 200
"""Locate calls at a time, with those that wait to be read: 64 KiB of each may have arrived."""

STEPS_KEPT: Final = 64
"""Encoded answers to watchers, for all that need the same: 5 KB each."""

AGE_STEP_MS: Final = 100
"""The age of a map is told to watchers in such steps, so that they may share an answer."""

MEMORY_MIB_DEFAULT: Final = 256
"""Memory that a redirector may take, as the chart limits it."""

OTHER_BYTES: Final = 136 << 20
"""Of it for all but watchers: program and map 50 MiB, Locate calls at their bounds 65, HTTP 16, and a reserve."""

WATCHER_BYTES: Final = 40 << 10
"""A watcher with a connection of its own: 38.6 KB measured, 22.8 KB on a connection that others share."""

CALLS_BESIDE_WATCHERS: Final = LOCATES_WAITING_MAX + 300
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

REWATCH_S: Final = 2.0
"""Before the cluster is watched again after a failure that waiting alone does not mend: a damaged record, no rights."""

HTTP: Final = HttpLimits(
    HTTP_CONNECTIONS_MAX, HTTP_REQUESTS_MAX, HTTP_HEAD_BYTES_MAX, HTTP_BODY_BYTES_MAX, HTTP_IDLE_S, STOP_S
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


assert LOCATES_MAX < LOCATES_WAITING_MAX
assert HTTP_KEYS_MAX <= LOCATE_KEYS_MAX
