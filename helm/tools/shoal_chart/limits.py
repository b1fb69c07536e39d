"""Defines the bounds of running rendered manifests, each with its unit and its reason."""

from typing import Final

PORTS: Final = range(17_000, 32_000)
"""The ports of this machine for containers' ports: below those that Linux gives to outgoing connections."""

PORT_ATTEMPTS_MAX: Final = 1_000
"""The most ports that are tried until one is free."""

READY_S: Final = 120.0
"""The seconds in which all pods must have passed their startup and readiness probes: the work takes seconds, the rest
is for a busy machine."""

STOP_S: Final = 30.0
"""The seconds after SIGTERM until a process is killed; terminationGracePeriodSeconds where that is less."""

RESTART_S_MIN: Final = 0.2
RESTART_S_MAX: Final = 2.0
"""The seconds before a container that ended is started again; they double from the first to the second. Kubernetes
waits far longer."""

PROBE_PAUSE_S: Final = 0.1
"""The seconds between two probes of one container; periodSeconds would make a start slow for nothing."""

PROBE_S: Final = 30.0
"""The seconds for one probe's answer; timeoutSeconds would fail on a machine that does much else."""

RESOLVE_S: Final = 600.0
"""The seconds that pip may take to resolve: it needs seconds, but has to download PySpark's source of 450 MB."""

DONE_S_MAX: Final = 360.0
"""The seconds in which a job that is run by itself must end: Spark takes 20 s on an idle machine, and minutes on a busy
one."""

assert RESTART_S_MIN < RESTART_S_MAX
