"""Bounds and settings of the residents' load test. Each with its unit and its reason. The stated service levels too."""

from typing import Final

# The evaluation's load table, at scale 1.

RESIDENTS: Final = 68_000
GROUPS: Final = 131_953
MEMBERSHIPS: Final = 629_637
"""Online residents, groups with a member online, memberships of those online: 9.26 each."""

MEMBERSHIP_CHURN_PER_S: Final = 260.0
GROUP_CHURN_PER_S: Final = 23.2
MESSAGES_PER_S: Final = 8.6
"""Binds and unbinds together; groups that gain a first or lose a last member; messages sent."""

SCALE_MIN: Final = 0.005
SCALE_MAX: Final = 100.0
"""Below, groups are too few to have the evaluation's sizes; above, names no longer fit their digits."""

# The population.

SESSION_S_MIN: Final = 15.0
SESSION_S_MAX: Final = 12 * 3600.0
"""Sessions are log-uniform between these: mean 90 minutes, so logins and logouts are 232 of the 260 changes a second.
The rest are joins and leaves in between."""

GROUP_SIZE_LOG_MEAN: Final = -0.5073
GROUP_SIZE_LOG_DEVIATION: Final = 1.7277
GROUP_SIZE_MAX: Final = 785
"""Places of groups: a lognormal cut off at the largest. With these and PLACES_FREE_SHARE those online in groups have
mean 4.77 and deviation 13.1, as measured there."""

GROUPS_FOR_LARGEST: Final = 50_000
"""From so many groups on, one has the largest size."""

PLACES_FREE_SHARE: Final = 0.01
"""Of places are free at any time: what those who join choose from."""

GROUPS_EMPTY_SHARE: Final = 0.0046
"""Of groups have nobody online, for that many have one place only, and it is free."""

LEAVE_ANYWHERE_SHARE: Final = 0.4
"""Of leaves are of any group; else, of two groups, of the larger. So group churn comes to the evaluation's share."""

GROUP_ENDS_SHARE: Final = 0.5
"""Of groups whose last member is gone never come back: who takes the place founds one with a new name."""

RESIDENTS_PER_SEAT: Final = 1.25
"""So many residents share the seats online: who logs out is away until a fifth of all have come and gone."""

PLACE_PICKS_MAX: Final = 30
"""Attempts to find a free place in a group that the resident is not in already."""

MEMBERSHIPS_SPREAD: Final = 9
"""How many of their groups one of two residents has less than the mean, and the other more: at most 8."""

BODY_BYTES: Final = 128
"""As in the other benchmarks."""

# Running it.

CROWDS: Final = 100
"""Users that Locust starts and stops: each stands for a hundredth of the residents."""

GENERATORS_MAX: Final = 16
CONSUMED_QUEUES_MAX: Final = 300_000
"""Queues consumed at a time, over all generators; every one at the hurdle. More would need about 2.5 KB each at the
broker and as much at the generator, which share this machine; above, that share of residents checks every message."""

CONSUMED_PER_SESSION_MAX: Final = 180_000
"""Queues of one generator on one slice, on average: a session attaches at most 200,000, and slices differ."""

LOGINS_PER_BATCH: Final = 64
CROWD_WORKERS: Final = 8
"""Of a crowd that comes or goes: as many logins in one go, and goes at a time: what fills two group commits."""

CALLS_IN_FLIGHT_MAX: Final = 5_000
"""Of single residents; above it, what is due waits, and its latency grows."""

DELIVERIES_PER_TURN_MAX: Final = 50
"""Looked at before other tasks get a turn: about a millisecond."""

TURN_S: Final = 0.005
"""How exactly things happen when they are due."""

SETTLE_POLL_S: Final = 0.01
"""How often one who left looks whether all that was said before has arrived."""

DETACH_EVERY_S: Final = 0.1
"""Queues of those who left are detached together."""

REPORT_EVERY_S: Final = 0.5
SAMPLES_PER_REPORT_MAX: Final = 20_000
"""Latencies of one kind in a generator's report; above it, the rest of that half second is counted, not sampled."""

ONLINE_SHARE_READY: Final = 0.999
"""Of the residents are online when the warm-up is over."""

WARM_UP_S_MAX: Final = 3600.0
"""A hundred times the load is 63 million memberships: half an hour at 35,000 a second, twice that on a busy machine."""

LOST_AFTER_S: Final = 30.0
"""A message that has a receipt and was not delivered by then is lost. Also how long the end may take."""

WINDOW_MESSAGES: Final = 1_000
WINDOW_BYTES: Final = 1 << 20
"""Unacked per queue; the residents ack at once."""

INBOX_BYTES: Final = 32 << 20
"""What a generator holds unread."""

EARLY_MAX: Final = 1_000
"""Deliveries kept of a binding whose bind is not answered yet."""

MISSING_MAX: Final = 10_000
"""Missing offsets remembered, of all bindings: enough to tell late ones from lost ones in the first cases."""

FAULT_EVERY: Final = 5
"""Deliveries, of which one has the fault that a run was asked to have."""

FAULT_CASES_MAX: Final = 20
"""Faults told in words; all are counted."""

DURATION_S_DEFAULT: Final = 300.0
DURATION_S_MIN: Final = 1.0
DURATION_S_MAX: Final = 6 * 3600.0
"""After the warm-up. Every run ends."""

CLUSTER_READY_S_MAX: Final = 120.0
CLUSTER_STOP_S_MAX: Final = 180.0
GENERATOR_READY_S_MAX: Final = 60.0
GENERATOR_STOP_S_MAX: Final = 20.0
LOCUST_STOP_S_MAX: Final = 120.0
"""Starts and ends of processes: a cluster's stop writes checkpoints, Locust's waits for generators that look for
what is missing. Longer is a failure worth reporting."""

READY_POLL_S: Final = 0.05
"""How often a process that was started is looked at."""

SLICES_DEFAULT: Final = 3
"""Of the fresh cluster: as `shoal up`."""

LOCUST_END_S_MAX: Final = 600.0
"""Beyond warm-up and duration: draining, and writing the reports."""

USAGE_EVERY_S: Final = 1.0
"""Memory and CPU of the processes; also the width of a point in the plots."""

PROGRESS_EVERY_S: Final = 5.0
"""A line for who waits."""

POINTS_MAX: Final = 600
"""Of one line in a plot: more than a page has pixels for."""

HISTOGRAM_STEP: Final = 1.02
"""Latencies are counted in classes that grow by 2%: that is how exact percentiles are."""

HISTOGRAM_MS_MIN: Final = 0.01
HISTOGRAM_CLASSES: Final = 900
"""Up to ten minutes."""

# Service levels.

BIND_P99_MS: Final = 100.0
UNBIND_P99_MS: Final = 100.0
PUBLISH_P99_MS: Final = 100.0
DELIVERY_P99_MS: Final = 150.0
"""While the load is steady, with generator and broker on the same machine: an fdatasync beside a checkpoint's takes up
to 150 ms there (docs/performance.md), and may be one in a hundred at most."""

RUSH_BIND_P99_MS: Final = 1_000.0
RUSH_PUBLISH_P99_MS: Final = 500.0
RUSH_DELIVERY_P99_MS: Final = 750.0
"""While crowds come and go as fast as the broker takes them: binds wait in line, talk must go on."""

RUSH_OPERATIONS_PER_S_MIN: Final = 10_000.0
"""Binds and unbinds a second that a crowd may count on, as long as it is moving."""

RATE_SHARE_MIN: Final = 0.95
RATE_DEVIATIONS: Final = 4.0
"""Of each stated rate must be reached; in short runs, chance may take four of its deviations."""

ONLINE_SHARE_MIN: Final = 0.99
"""Of the residents that the shape wants online, on average."""

assert SESSION_S_MIN < SESSION_S_MAX
assert ONLINE_SHARE_MIN < ONLINE_SHARE_READY
assert HISTOGRAM_MS_MIN * HISTOGRAM_STEP**HISTOGRAM_CLASSES > 500_000
assert BODY_BYTES >= 64
