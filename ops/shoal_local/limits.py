"""Defines the bounds of a local cluster, each with its unit and its reason."""

from typing import Final

START_S: Final = 30.0
"""How long a local etcd may take to answer after its start, in seconds. If another server takes longer, this is
reported."""

READY_S: Final = 600.0
"""How long a local server may take to be ready, in seconds, before it is killed and started again. A slice may have a
long journal to recover, on a busy machine."""

STOP_S: Final = 10.0
"""How long a local process may take to end after SIGTERM, in seconds, before it is killed."""

LAST_WORDS_BYTES: Final = 64 << 10
"""The bytes read from the end of a log to find why a process ended: a traceback and the lines before it."""

LINE_BYTES_MAX: Final = 1 << 20
"""The bytes of a line in a local server's log, such as a traceback with a largest frame in it. A longer line is left
out."""

LAST_LINES_S: Final = 1.0
"""How long to wait for the last lines of a local server that has ended, in seconds: a child of its own may hold its
streams."""

RESTART_S_MIN: Final = 0.25
RESTART_S_MAX: Final = 10.0
"""The pause before a crashed local server is started again, in seconds; it doubles with each crash in a row, from the
first value to the second."""

STEADY_S: Final = 30.0
"""How long a local server must run, in seconds, so that its next crash does not count as one in a row."""

PORT_MAX: Final = 65_535
"""The highest port of TCP."""

SLICES_MAX: Final = 64
"""The number of slices of a local cluster: a process of 100 MB each."""

PORTS: Final = range(17_000, 32_000)
"""The ports where slice nodes of local clusters listen: below the ports that Linux gives to outgoing connections, which
could take a node's port while it is down."""

HEALTH_EVERY_S: Final = 5.0
"""The pause between two questions to a local server whether it answers, in seconds: they must cost next to nothing."""

HEALTH_WITHIN_S: Final = 5.0
"""How long a local server may take to answer that question, in seconds."""

SILENT_S: Final = 10.0
"""How long a local server may be silent before this is reported, in seconds. It is not ended: on a busy machine a sound
one can be this slow, and a slice that hangs for longer than its lease loses its lead by itself."""

FORMER_S: Final = 15.0
FORMER_LOOK_S: Final = 0.1
"""How long servers that a killed starter left behind may take to free their ports, in seconds, before others are
chosen; and the pause between two looks. They end as after SIGTERM: STOP_S, on a busy machine more."""

PORT_ATTEMPTS_MAX: Final = 1_000
"""The number of ports tried until one is free."""

START_ATTEMPTS_MAX: Final = 3
"""How often an etcd without a port of its own is started: another process can take the chosen free port before etcd has
it."""

assert START_S < READY_S
assert FORMER_S > STOP_S
assert HEALTH_WITHIN_S <= SILENT_S
