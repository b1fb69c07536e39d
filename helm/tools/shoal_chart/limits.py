"""Bounds of running rendered manifests. Each with its unit and its reason."""

from typing import Final

PORTS: Final = range(17_000, 32_000)
"""Where containers' ports are put: below the ports that Linux gives to outgoing connections."""

PORT_ATTEMPTS_MAX: Final = 1_000
"""Ports looked at until one is free."""

READY_S: Final = 120.0
"""All pods must have passed their startup and readiness probes by then: seconds for the work, the rest for a busy
machine."""

STOP_S: Final = 30.0
"""After SIGTERM a process is killed; terminationGracePeriodSeconds where that is less."""

RESTART_S_MIN: Final = 0.2
RESTART_S_MAX: Final = 2.0
"""Before a container that ended is started again; doubles from the one to the other. Kubernetes waits far longer."""

PROBE_PAUSE_S: Final = 0.1
"""Between two probes of one container; periodSeconds would make a start slow for nothing."""

PROBE_S: Final = 30.0
"""One probe's answer; timeoutSeconds would fail on a machine that does much else."""

RESOLVE_S: Final = 600.0
"""pip's look at the index: seconds, but PySpark's source is 450 MB on its way."""

DONE_S_MAX: Final = 360.0
"""A job that is run by itself must end by then: Spark takes 20 s on an idle machine, and minutes on a busy one."""

assert RESTART_S_MIN < RESTART_S_MAX
