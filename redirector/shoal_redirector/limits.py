"""Bounds of the redirector. Each with its unit and its reason."""

from typing import Final

from shoal_contract.http.limits import HttpLimits
from shoal_contract.limits import LOCATE_KEYS_MAX

CALLS_MAX: Final = 20_000
"""gRPC calls and streams at a time: a watcher with its connection costs 56 KB; more take more redirectors."""

HTTP_REQUESTS_MAX: Final = 200
"""HTTP requests being answered at a time: each takes under a millisecond. More are refused with 429."""

HTTP_CONNECTIONS_MAX: Final = 500
"""HTTP connections, most of them idle. One more ends the one that waits longest. Half a head each: 32 MiB."""

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

assert HTTP_KEYS_MAX <= LOCATE_KEYS_MAX
