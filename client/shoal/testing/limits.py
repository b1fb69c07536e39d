"""Defines the bounds of what tests use, with unit and reason."""

from typing import Final

PARTITIONS: Final = 64
"""The partitions of a fake cluster: enough to move some, few enough to list them."""

DEADLINE_S: Final = 10.0
"""The default deadline of a call in tests, in seconds: where an answer is lacking, a test should not wait for long."""

LOCAL_DEADLINE_S: Final = 30.0
"""The default deadline of a call to a real cluster, in seconds: longer than a slice's restart takes."""

NAMES_TRIED_MAX: Final = 10_000
"""The names tried for one that belongs to a given slice: of three slices, each has a third of them."""

START_S: Final = 120.0
"""How long a local cluster may take to start, in seconds: six processes, on a machine that does other things too."""

STOP_S: Final = 60.0
"""How long a local cluster may take to stop, in seconds, before it is killed: slices write their checkpoints."""

LINES_KEPT_MAX: Final = 200
"""The last lines of a local cluster's output, which are told if it does not start."""

DESCRIBE_BINDINGS_MAX: Final = 200_000
"""The bindings of all queues of one Describe, as at a real slice."""

HOPS_MAX: Final = 2
"""Dead-letter keys that one message may come to, as at a real slice."""

FAKE_EPOCH: Final = 1
"""The epoch of each fake slice's leader."""
