"""Bounds of ops. Each with its unit and its reason."""

from typing import Final

# Replay

LINE_BYTES_MAX: Final = 2 << 20
"""One line of an event file: a largest message body and its columns, twice."""

CLIENTS_MAX: Final = 64
"""Connections of one replay: each has two sessions with every slice."""

STEPS_PENDING_MAX: Final = 20_000
"""Steps read from the files and not yet done, over all groups: lets small groups go on beside a large one."""

PUBLISHES_UNDER_WAY_MAX: Final = 1_000
"""Messages of one group without a receipt."""

CHANGES_UNDER_WAY_MAX: Final = 500
"""Binds and unbinds of one group under way together, of different queues."""

QUEUES_AT_ONCE_MAX: Final = 2_000
"""Queues declared, attached, looked at or dropped together by one connection."""

DIGEST_PAGE_OFFSETS: Final = 256
"""Digests of received bodies are kept in pages of so many offsets, 8 bytes each: offsets of a key may jump."""

ACK_EVERY_S: Final = 0.25
"""Deliveries are acked together so often: a slice writes one range where many messages came to a queue meanwhile."""

ACKS_HELD_MAX: Final = 500
"""Deliveries of one connection held for that, with their bodies; below a queue's window of 1,000 messages."""

DEADLINE_S: Final = 120.0
"""A replay's calls wait for so long for a slice that is down: longer than any restart should take."""

CONNECT_S: Final = 10.0
"""How long a replay looks for its redirector."""

QUIET_S: Final = 30.0
"""With messages outstanding and none delivered for so long, what is missing counts as missing."""

MISMATCHES_KEPT_MAX: Final = 1_000
"""Mismatches kept one by one; above it they are only counted."""

MISMATCHES_SHOWN_MAX: Final = 20
"""Mismatches printed."""

# Command line

REFRESH_PER_S: Final = 8
"""Progress is drawn so often."""

VERB_DEADLINE_S: Final = 10.0
"""A command waits for so long for its answer: longer than a restart, shorter than patience."""

SLICE_DEADLINE_S: Final = 2.5
"""`shoal status` waits so long for every slice at once: one answers in milliseconds, a busy one in a second."""

TOP_DEADLINE_S: Final = 3.0
"""`shoal top` shows a slice as silent after so long."""

MESSAGES_PRINTED_MAX: Final = 10_000
"""Messages of one `shoal pull` or `peek`: they are held in memory, and print in seconds."""

TAIL_QUEUES_MAX: Final = 1_000
"""Queues followed by one `shoal tail`."""

assert SLICE_DEADLINE_S < VERB_DEADLINE_S
# Sweep

SWEEP_NAMES: Final = 200
"""Queues of one page, and looks at once: some milliseconds of a slice, which describes each exactly."""

SWEEP_EVERY_S: Final = 5.0
"""Beside the gateway a page of each slice is looked at so often: under a thousandth of a slice's time."""

SWEEP_PAUSE_S: Final = 30.0
"""A part is dropped when it was found left behind twice, so far apart: longer than a call's usual deadline."""

SWEEP_SUSPECTS_MAX: Final = 100_000
"""Parts that wait for their second look; about 200 bytes each. More are found in a later round."""

SWEEP_DEADLINE_S: Final = 10.0
"""A slice that does not answer in this time is passed over until the next round."""

assert MISMATCHES_SHOWN_MAX <= MISMATCHES_KEPT_MAX

PORT_MAX: Final = 65_535
"""TCP's."""
