"""Bounds and settings of the residents' load test, each with its unit and its reason, and the stated service levels."""

from typing import Final

# The evaluation's load table, at scale 1.

RESIDENTS: Final = 68_000
GROUPS: Final = 131_953
MEMBERSHIPS: Final = 629_637
"""Online residents; groups with a member online; memberships of online residents, 9.26 each."""

MEMBERSHIP_CHURN_PER_S: Final = 260.0
GROUP_CHURN_PER_S: Final = 23.2
MESSAGES_PER_S: Final = 8.6
"""Binds and unbinds together; groups that gain their first or lose their last member; messages sent."""

SCALE_MIN: Final = 0.005
SCALE_MAX: Final = 100.0
"""Below SCALE_MIN, groups are too few to have the evaluation's sizes; above SCALE_MAX, names no longer fit their
digits."""

# The population.

SESSION_S_MIN: Final = 15.0
SESSION_S_MAX: Final = 12 * 3600.0
"""Sessions are log-uniform between these: the mean is 90 minutes, so logins and logouts are 232 of the 260 changes a
second. The rest are joins and leaves during sessions."""

GROUP_SIZE_LOG_MEAN: Final = -0.5073
GROUP_SIZE_LOG_DEVIATION: Final = 1.7277
GROUP_SIZE_MAX: Final = 785
"""The places of groups: a lognormal cut off at the largest. With these and PLACES_FREE_SHARE, online members per group
have mean 4.77 and deviation 13.1, as measured in the evaluation."""

GROUPS_FOR_LARGEST: Final = 50_000
"""From so many groups on, one group has the largest size."""

PLACES_FREE_SHARE: Final = 0.01
"""The share of places that is free at any time: residents that join choose from these."""

GROUPS_EMPTY_SHARE: Final = 0.0046
"""The share of groups without an online member: so many groups have only one place, and that is free."""

LEAVE_ANYWHERE_SHARE: Final = 0.4
"""The share of leaves that are of any group; the others are of the larger of two groups. So group churn comes to the
evaluation's share."""

GROUP_ENDS_SHARE: Final = 0.5
"""The share of groups that never come back after their last member is gone: the next member founds a group with a new
name."""

RESIDENTS_PER_SEAT: Final = 1.25
"""Residents per seat online: a resident that logs out is away until a fifth of all have come and gone."""

PLACE_PICKS_MAX: Final = 30
"""Attempts to find a free place in a group that the resident is not in already."""

MEMBERSHIPS_SPREAD: Final = 9
"""How far the groups of two neighbouring seats differ from the mean: one has at most 8 fewer, the other as many
more."""

BODY_BYTES: Final = 128
"""The bytes of a body, as in the other benchmarks."""

# Running it.

CROWDS: Final = 100
"""Users that Locust starts and stops: each is a hundredth of the residents."""

GENERATORS_MAX: Final = 16
CONSUMED_QUEUES_MAX: Final = 300_000
"""Queues consumed at a time, over all generators: all queues at the hurdle (scale 4). More would need about 2.5 KB each
at the broker and as much at the generator, which share this machine. Above this, only that share of the residents
checks every message."""

CONSUMED_PER_SESSION_MAX: Final = 180_000
"""Queues of one generator: a session attaches at most 200,000, and those of residents that leave count until they
have left."""

LOGINS_PER_BATCH: Final = 64
CROWD_WORKERS: Final = 8
"""Logins of a crowd in one batch, and batches at a time: enough to fill two group commits."""

CALLS_IN_FLIGHT_MAX: Final = 5_000
"""Calls of single residents in flight; above this, due work waits and its latency grows."""

DELIVERIES_PER_TURN_MAX: Final = 50
"""Deliveries looked at before other tasks get a turn: about a millisecond."""

TURN_S: Final = 0.005
"""The seconds of one turn of the clock: due work starts with this precision."""

SETTLE_POLL_S: Final = 0.01
"""The seconds between two checks whether all messages from before an unbind have arrived."""

DETACH_EVERY_S: Final = 0.1
"""The seconds between two detaches: queues of residents that left are detached together."""

REPORT_EVERY_S: Final = 0.5
SAMPLES_PER_REPORT_MAX: Final = 20_000
"""The seconds between two reports, and the latencies of one kind in a report. Further ones in that half second are
counted, not sampled."""

ONLINE_SHARE_READY: Final = 0.999
"""The share of the residents that is online when the warm-up is over."""

WARM_UP_S_MAX: Final = 3600.0
"""The longest warm-up in seconds. A hundred times the load is 63 million memberships: half an hour at 35,000 a second,
twice that on a busy machine."""

LOST_AFTER_S: Final = 30.0
"""The seconds after which a message with a receipt that was not delivered is lost. The end may take as long, too."""

WINDOW_MESSAGES: Final = 1_000
WINDOW_BYTES: Final = 1 << 20
"""Messages and bytes unacked per queue; the residents ack at once."""

INBOX_BYTES: Final = 32 << 20
"""The bytes that a generator holds unread."""

EARLY_MAX: Final = 1_000
"""Deliveries kept for a binding whose bind is not answered yet."""

MISSING_MAX: Final = 10_000
"""Missing offsets remembered, over all bindings: enough to tell late ones from lost ones in the first cases."""

FAULT_EVERY: Final = 5
"""One of so many deliveries has the fault that the run was asked for."""

FAULT_CASES_MAX: Final = 20
"""Faults that are described; all are counted."""

DURATION_S_DEFAULT: Final = 300.0
DURATION_S_MIN: Final = 1.0
DURATION_S_MAX: Final = 6 * 3600.0
"""The seconds of a run after the warm-up. Every run ends."""

CLUSTER_READY_S_MAX: Final = 120.0
CLUSTER_STOP_S_MAX: Final = 180.0
GENERATOR_READY_S_MAX: Final = 60.0
GENERATOR_STOP_S_MAX: Final = 20.0
LOCUST_STOP_S_MAX: Final = 120.0
"""The seconds for starts and ends of processes: a cluster's stop writes checkpoints, and Locust's waits for generators
that look for missing messages. Longer is a failure worth reporting."""

READY_POLL_S: Final = 0.05
"""The seconds between two checks of a process that was started."""

SLICES_DEFAULT: Final = 3
"""The slices of the fresh cluster, as with `shoal up`."""

LOCUST_END_S_MAX: Final = 600.0
"""The seconds beyond warm-up and duration, for draining and for writing the reports."""

USAGE_EVERY_S: Final = 1.0
"""The seconds between two samples of the processes' memory and CPU; also the width of a point in the plots."""

PROGRESS_EVERY_S: Final = 5.0
"""The seconds between two lines of progress."""

POINTS_MAX: Final = 600
"""Points of one line in a plot: more than a page has pixels for."""

HISTOGRAM_STEP: Final = 1.02
"""The factor between two classes of latencies: percentiles are exact to 2%."""

HISTOGRAM_MS_MIN: Final = 0.01
HISTOGRAM_CLASSES: Final = 900
"""The lowest latency, and the number of classes: they reach up to ten minutes."""

# Service levels.

BIND_P99_MS: Final = 100.0
UNBIND_P99_MS: Final = 100.0
PUBLISH_P99_MS: Final = 100.0
DELIVERY_P99_MS: Final = 150.0
"""The levels while the load is steady, with generator and broker on the same machine. There an fdatasync beside a
checkpoint's takes up to 150 ms (docs/developers/performance.md), and at most one in a hundred may be such."""

RUSH_BIND_P99_MS: Final = 1_000.0
RUSH_PUBLISH_P99_MS: Final = 500.0
RUSH_DELIVERY_P99_MS: Final = 750.0
"""The levels while crowds come and go as fast as the broker takes them: binds wait in line, publishing must go on."""

RUSH_OPERATIONS_PER_S_MIN: Final = 10_000.0
"""Binds and unbinds a second that a crowd can rely on while it is moving."""

RATE_SHARE_MIN: Final = 0.95
RATE_DEVIATIONS: Final = 4.0
"""The share of each stated rate that must be reached; in short runs, chance may take four of its deviations."""

ONLINE_SHARE_MIN: Final = 0.99
"""The share of the residents that the shape wants online, on average."""

assert SESSION_S_MIN < SESSION_S_MAX
assert ONLINE_SHARE_MIN < ONLINE_SHARE_READY
assert HISTOGRAM_MS_MIN * HISTOGRAM_STEP**HISTOGRAM_CLASSES > 500_000
assert BODY_BYTES >= 64
