"""Bounds of coordination. Each with its unit and its reason."""

from typing import Final

NAME_CHARACTERS_MAX: Final = 63
"""Names of clusters, slices and nodes: a DNS label, so that each can also be a Kubernetes name."""

ENDPOINTS_MAX: Final = 16
"""Endpoints in one client: etcd advises at most 7 members."""

MESSAGE_BYTES_MAX: Final = 16 << 20
"""One answer of etcd: a full re-read of 10,000 slices and nodes with room to spare."""

CONNECT_S: Final = 5.0
"""How long a call looks for an endpoint that answers, over all of them."""

ENDPOINT_CONNECT_S: Final = 1.0
"""How long one endpoint may take to connect before the next is tried: a few round trips between continents."""

CALL_S: Final = 5.0
"""One call: etcd's own request timeout is about 7 s, its election timeout about 1 s."""

READ_ATTEMPTS_MAX: Final = 3
"""A read is sent so often, within CALL_S. A write is sent once: the caller must look whether it happened."""

CLAIM_ATTEMPTS_MAX: Final = 8
"""Compare-and-swap rounds of one claim: each lost round means that another node won one."""

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 2.0
"""Between two attempts to reach etcd; doubles from the one to the other. A watch and a lease go on for as long as they
are wanted, so what is bounded is their rate."""

HEARTBEAT_S: Final = 2.0
"""A watch asks etcd for a sign of life so often."""

SILENCE_S_MAX: Final = 6.0
"""A watch that has heard nothing for so long connects anew: three heartbeats."""

LEASE_TTL_S_MIN: Final = 2
"""Below, etcd's own election timeout could end a healthy lease."""

LEASE_BEATS: Final = 3
"""Keepalives in one time to live: two may be lost."""

LEASE_PAUSE_S_MAX: Final = 0.5
"""Between two rounds over all endpoints for a lease that is not renewed: an etcd that is back is found in time even by
the shortest lease."""

LEASE_END_S: Final = 2.0
"""How long the end of a lease's thread is waited for: its call is cancelled, so it ends at once."""

KEEPALIVE_S: Final = 10.0
"""Between two pings of an idle connection; etcd closes connections that ping more often than every 5 s."""

CREATE_WAIT_S: Final = 120.0
"""How long `python -m shoal_coordination create` waits for an etcd that may be starting: pulling its image, say."""

LOCAL_START_S: Final = 30.0
"""A local etcd may take so long to answer after its start; another server that takes longer is said to."""

LOCAL_READY_S: Final = 600.0
"""A local server that is not ready by then is killed and started again. A slice may have a long journal to recover, on
a busy machine."""

LOCAL_STOP_S: Final = 10.0
"""A local process may take so long to end after SIGTERM before it is killed."""

LOCAL_LAST_WORDS_BYTES: Final = 64 << 10
"""What is read of the end of a log for the reason why a process ended: a traceback and the lines before it."""

LOCAL_LINE_BYTES_MAX: Final = 1 << 20
"""A longer line in a local server's log is left out: a traceback with a largest frame in it."""

LOCAL_LAST_LINES_S: Final = 1.0
"""How long the last lines of a local server that has ended are waited for: a child of its own may hold its streams."""

LOCAL_RESTART_S_MIN: Final = 0.25
LOCAL_RESTART_S_MAX: Final = 10.0
"""Before a local server that crashed is started again; doubles with each crash in a row."""

LOCAL_STEADY_S: Final = 30.0
"""A local server that ran for so long has not crashed in a row."""

LOCAL_SLICES_MAX: Final = 64
"""Slices of a local cluster: a process of 100 MB each."""

LOCAL_PORTS: Final = range(17_000, 32_000)
"""Where slice nodes of local clusters listen: below the ports that Linux gives to outgoing connections, which could
take a node's port while it is down."""

LOCAL_PORT_ATTEMPTS_MAX: Final = 1_000
"""Ports looked at until one is free."""

LOCAL_START_ATTEMPTS_MAX: Final = 3
"""A chosen free port can be taken by another process before etcd has it: only of an etcd without a port of its own."""

assert ENDPOINT_CONNECT_S < CONNECT_S
assert PAUSE_S_MIN < PAUSE_S_MAX < SILENCE_S_MAX
assert HEARTBEAT_S * 2 < SILENCE_S_MAX
assert LEASE_PAUSE_S_MAX < LEASE_TTL_S_MIN / LEASE_BEATS
assert LOCAL_START_S < LOCAL_READY_S
assert KEEPALIVE_S > 5
