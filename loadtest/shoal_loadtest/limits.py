"""Bounds and settings of the benchmarks. Each with its unit and its reason."""

from typing import Final

from shoal_contract.limits import FRAME_OPERATIONS_MAX

QUEUES_DEFAULT: Final = 1_000_000
QUEUES_QUICK: Final = 100_000
"""The population of the published figures, and the one that fits into a minute."""

QUEUES_MIN: Final = 2_000
QUEUES_MAX: Final = 100_000_000
"""With fewer, a queue would be in the largest group twice (population.py); with more, a run no longer fits a disk like
ours."""

MEMBERSHIPS_PER_QUEUE: Final = 9
"""The evaluation's 9.3 groups per resident: one login is nine binds."""

GROUP_SIZE_MEAN: Final = 4.8
GROUP_SIZE_DEVIATION: Final = 13.1
GROUP_SIZE_MAX: Final = 785
"""Group sizes as measured in the evaluation. With this mean and deviation, the largest of 132,000 lognormal sizes is
just this maximum, too."""

POPULATION_FORM: Final = 3
"""Rises with the form of a node's store: this version cannot open a population that an earlier version kept."""

POPULATE_QUEUES_PER_FRAME: Final = 100
"""Queues per frame: a declare and nine binds each, 1,000 operations."""

POPULATE_FRAMES_IN_FLIGHT: Final = 8
"""Frames in flight: enough to fill the next group commit while one is applied."""

CHURN_SESSIONS: Final = 4
CHURN_FRAMES_IN_FLIGHT: Final = 3
"""Sessions, and frames in flight per session. Twelve frames are some 40 ms of a slice's work: one batch is synced while
another is applied."""

CHURN_QUEUES_PER_FRAME: Final = 40
"""Queues per frame: half of them log out, half log in. These are 360 operations, as a gateway that gathers for a few
milliseconds would send."""

CHURN_AWAY_SHARE: Final = 0.1
"""The share of the queues that is logged out at any time. If a queue came back within one checkpoint, its rows would
cancel out in memory."""

CHURN_PREBUILT_OPS_PER_S: Final = 160_000
"""Frames are built before the clock starts, for this rate; for a faster slice the generator builds more as it goes."""

SECONDS_DEFAULT: Final = {
    "churn": 30.0,
    "publish": 5.0,
    "fanout": 5.0,
    "latency": 20.0,
    "idle": 8.0,
    "restart": 5.0,
    "neighbours": 60.0,
    "storm": 10.0,
}
SECONDS_QUICK: Final = {
    "churn": 5.0,
    "publish": 1.0,
    "fanout": 1.5,
    "latency": 3.0,
    "idle": 4.0,
    "restart": 1.0,
    "neighbours": 5.0,
    "storm": 3.0,
}
"""The seconds of steady load: dozens of checkpoints in churn; idle outlasts the pause after which the node lets go of
memory."""

SECONDS_MAX: Final = 3600.0
"""The longest run in seconds, so that every run ends."""

WARM_UP_SHARE: Final = 0.1
"""The share of the seconds before counting starts: by then the first checkpoint has begun."""

NODE_READY_S_MAX: Final = 120.0
NODE_STOP_S_MAX: Final = 300.0
"""The seconds for a start, which replays a journal tail, and for a clean stop, which writes a last checkpoint. Longer
is a failure worth reporting."""

CHECKPOINTER_QUIET_S: Final = 0.5
"""The seconds without CPU after which the checkpointer counts as idle: many times its longest wait for the disk."""

ANSWER_S_MAX: Final = 60.0
"""The seconds after which a frame without an answer fails the run."""

BULK_QUEUES_PER_ROW_GROUP: Final = 50_000
"""Queues in one row group of the file to load: some 30 MB in memory at a time."""

BULK_READY_S_MAX: Final = 60.0
BULK_S_MAX: Final = 1800.0
"""The seconds of a cluster's start, and of a whole load: every run ends."""

MEMORY_LOOK_S: Final = 0.5
"""The seconds between two samples of memory: peaks last for seconds."""

MACHINE_PROBE_S: Final = 0.5
MACHINE_PUT_ROWS: Final = 200_000
"""The seconds for which, and the rows with which, the machine itself is measured: short beside every run."""

assert POPULATE_QUEUES_PER_FRAME * (MEMBERSHIPS_PER_QUEUE + 1) <= FRAME_OPERATIONS_MAX
# Eight golden-ratio steps come as close to each other as 5.5% of the whole.
assert QUEUES_MIN * MEMBERSHIPS_PER_QUEUE * 0.055 > GROUP_SIZE_MAX

CHECKED_QUEUES: Final = 400
"""Queues whose memberships are compared after a run, and as many again of those logged out: one Describe."""

PUBLISH_SIZES_BYTES: Final = (1, 128, 1024, 128 << 10)
PUBLISH_BODY_BYTES: Final = 128
"""The evaluation's sizes, and the size of the published figures."""

PUBLISH_MESSAGES_PER_CHUNK: Final = 500
PUBLISH_MESSAGES_PER_FRAME: Final = 300
"""Messages to one key in one chunk, and messages to as many keys in one frame."""

PUBLISH_FRAME_BYTES: Final = 1 << 20
"""The bytes of bodies in a frame: with larger bodies a frame has fewer messages."""

PUBLISH_FRAMES_IN_FLIGHT: Final = 16
PUBLISH_BYTES_IN_FLIGHT: Final = 8 << 20
"""Frames and bytes in flight, whichever bound is reached first: half of what a slice reads ahead."""

PUBLISH_KEYS: Final = 20_000
PUBLISH_KEYS_PER_QUEUE: Final = 500
"""The keys of single messages: far more than a frame has. One frame binds the keys of one queue."""

CONSUMER_WINDOW_MESSAGES: Final = 10_000
CONSUMER_WINDOW_BYTES: Final = 16 << 20
"""Messages unacked per queue, and bytes under way per session: a few hundred milliseconds at full speed, so that acks
never wait."""

FANOUT_QUEUES: Final = GROUP_SIZE_MAX
FANOUT_SESSIONS: Final = 8
FANOUT_BODY_BYTES: Final = 128
"""The largest group, over as many connections as a small tier of gateways has."""

FANOUT_MESSAGES_PER_CHUNK: Final = 100
FANOUT_CHUNKS_IN_FLIGHT: Final = 8
FANOUT_CHUNKS_AHEAD: Final = 40
"""Batched: publishes without a receipt, and those that not every consumer has yet. Above either bound the publisher
waits."""

FANOUT_SINGLES_IN_FLIGHT: Final = 2
FANOUT_SINGLES_AHEAD: Final = 40
"""Single: the same bounds. Other brokers were measured with two publishes in flight."""

LATENCY_OPS_PER_S: Final = 2_600
LATENCY_PUBLISHES_PER_S: Final = 100
"""Ten times the evaluation's membership churn, twelve times its messages."""

LATENCY_CONSUMERS: Final = 400
LATENCY_SESSIONS: Final = 4
"""Queues attached, and the number of connections over which they are attached."""

LATENCY_BODY_BYTES: Final = 128
"""The same body size as in the other benches."""

LATENCY_AWAY_QUEUES: Final = 1_000
"""Queues logged out before the first comes back: they are away for a few seconds."""

NEIGHBOURS_MEMORY_MIB: Final = 512
"""The node's budget: small, so that it is reached."""

NEIGHBOURS_LOOK_S: Final = 0.05
"""The seconds between two samples of the node's memory."""

GREEDY_QUEUES: Final = 10_000
GREEDY_KEYS: Final = 500
"""Queues that a greedy client attaches and leaves, and the keys to which they are bound, one key each."""

GREEDY_BINDINGS: Final = 99_000
"""Bindings of a greedy client's largest queue: a slice takes 100,000."""

GREEDY_ACKS: Final = 2_000
GREEDY_WINDOW_MESSAGES: Final = 100_000
GREEDY_CHUNK_BODY_BYTES: Final = 500
"""The most acks in a frame, the most messages in a window, and the body bytes with which a chunk of the most messages
has the largest size."""

GREEDY_EVERY_S: Final = 0.2
"""The seconds between two of its largest publishes: 10 MB/s, so that a run fits a disk."""

GREEDY_UNREAD: Final = 100
"""Sessions that never read."""

GREEDY_PUBLISHES: Final = 600
"""Unary publishes of 1 MB sent at once."""

GREEDY_RECONNECTING: Final = 10
GREEDY_RECONNECT_S: Final = 10.0
"""Sessions that are lost and open anew together, and the seconds that they stay."""

GREEDY_COMPETING: Final = 3
"""Sessions at a time that attach all queues and leave at once."""

STORM_DROPS: Final = 100_000
STORM_UNBIND_QUEUES: Final = 111_112
"""Queues that are dropped, and others that are unbound from all of their nine keys: a million unbinds."""

STORM_DROPS_PER_FRAME: Final = FRAME_OPERATIONS_MAX
STORM_UNBIND_QUEUES_PER_FRAME: Final = FRAME_OPERATIONS_MAX // MEMBERSHIPS_PER_QUEUE
STORM_FRAMES_IN_FLIGHT: Final = 32
"""What the client library makes of as many names in one call: full frames, and as many of them under way."""

STORM_PUBLISHES_PER_S: Final = 200
"""Publishes of others: enough for a p99 of each second."""

STORM_LOOK_S: Final = 0.1
STORM_PLOT_BIN_S: Final = 0.1
"""The seconds between two looks at the slice, and those that one bar of the plot sums up."""

STORM_CHECKED: Final = 100
"""Dropped queues, and as many others, that are looked for afterwards: one Describe."""

STORM_RECLAIM_S_MAX: Final = 600.0
"""The seconds after which what is not reclaimed fails the run."""

assert PUBLISH_KEYS % PUBLISH_KEYS_PER_QUEUE == 0
assert PUBLISH_KEYS_PER_QUEUE < FRAME_OPERATIONS_MAX
assert FANOUT_QUEUES <= FRAME_OPERATIONS_MAX
assert FANOUT_CHUNKS_AHEAD * FANOUT_MESSAGES_PER_CHUNK < CONSUMER_WINDOW_MESSAGES
assert LATENCY_CONSUMERS < QUEUES_MIN // 2
