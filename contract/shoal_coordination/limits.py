"""Defines the bounds of coordination, each with its unit and its reason."""

from typing import Final

NAME_CHARACTERS_MAX: Final = 63
"""The characters of a cluster's, slice's or node's name: a DNS label, so that each can also be a Kubernetes name."""

ENDPOINTS_MAX: Final = 16
"""The number of endpoints in one client: etcd advises at most 7 members."""

MESSAGE_BYTES_MAX: Final = 16 << 20
"""The bytes of one answer of etcd: a full re-read of 10,000 slices and nodes with room to spare."""

CONNECT_S: Final = 5.0
"""How long a call looks for an endpoint that answers, over all of them, in seconds."""

ENDPOINT_CONNECT_S: Final = 1.0
"""How long one endpoint may take to connect before the next is tried, in seconds: a few round trips between
continents."""

CALL_S: Final = 5.0
"""How long one call may take, in seconds: etcd's own request timeout is about 7 s, its election timeout about 1 s."""

READ_ATTEMPTS_MAX: Final = 3
"""How often a read is sent, within CALL_S. A write is sent once: the caller must check whether it happened."""

CLAIM_ATTEMPTS_MAX: Final = 8
"""The compare-and-swap rounds of one claim: each lost round means that another node won one."""

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 2.0
"""The pause between two attempts to reach etcd, in seconds; it doubles from the first value to the second. A watch and
a lease go on for as long as they are wanted, so only their rate is bounded."""

HEARTBEAT_S: Final = 2.0
"""How often a watch asks etcd for a sign of life, in seconds."""

SILENCE_S_MAX: Final = 6.0
"""How long a watch may hear nothing before it connects anew, in seconds: three heartbeats."""

LEASE_TTL_S_MIN: Final = 2
"""The shortest time to live of a lease, in seconds: below it etcd's own election timeout could end a healthy lease."""

LEASE_BEATS: Final = 3
"""The number of keepalives in one time to live: two may be lost."""

LEASE_PAUSE_S_MAX: Final = 0.5
"""The longest pause between two rounds over all endpoints for a lease that is not renewed, in seconds: even the
shortest lease finds in time an etcd that is back."""

LEASE_END_S: Final = 2.0
"""How long to wait for the end of a lease's thread, in seconds: its call is cancelled, so it ends at once."""

KEEPALIVE_S: Final = 10.0
"""The time between two pings of an idle connection, in seconds; etcd closes connections that ping more often than every
5 s."""

CREATE_WAIT_S: Final = 120.0
"""How long `python -m shoal_coordination create` waits, in seconds, for an etcd that may be starting: pulling its
image, say."""

assert ENDPOINT_CONNECT_S < CONNECT_S
assert PAUSE_S_MIN < PAUSE_S_MAX < SILENCE_S_MAX
assert HEARTBEAT_S * 2 < SILENCE_S_MAX
assert LEASE_PAUSE_S_MAX < LEASE_TTL_S_MIN / LEASE_BEATS
assert KEEPALIVE_S > 5
