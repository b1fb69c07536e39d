"""Bounds of ops. Each with its unit and its reason."""

from typing import Final

# Replay

LINE_BYTES_MAX: Final = 2 << 20
"""The bytes of one line of an event file: twice the largest message body with its columns."""

CLIENTS_MAX: Final = 64
"""Connections of one replay: each has two sessions with every slice."""

STEPS_PENDING_MAX: Final = 20_000
"""Steps read from the files and not yet done, over all groups: enough for small groups to go on beside a large one."""

PUBLISHES_UNDER_WAY_MAX: Final = 1_000
"""Messages of one group without a receipt."""

CHANGES_UNDER_WAY_MAX: Final = 500
"""Binds and unbinds of one group under way together, of different queues."""

QUEUES_AT_ONCE_MAX: Final = 2_000
"""Queues declared, attached, looked at or dropped together by one connection."""

DIGEST_PAGE_OFFSETS: Final = 256
"""Digests of received bodies are kept in pages of so many offsets, 8 bytes each: offsets of a key may jump."""

ACK_EVERY_S: Final = 0.25
"""The seconds between two acks of deliveries: a slice then writes one range where many messages came to a queue
meanwhile."""

ACKS_HELD_MAX: Final = 500
"""Deliveries of one connection that wait for their ack, with their bodies: below a queue's window of 1,000 messages."""

DEADLINE_S: Final = 120.0
"""The seconds that a replay's calls wait for a slice that is down: longer than any restart should take."""

CONNECT_S: Final = 10.0
"""The seconds in which a replay tries to reach its redirector."""

QUIET_S: Final = 30.0
"""The seconds without any delivery after which outstanding messages count as missing."""

MISMATCHES_KEPT_MAX: Final = 1_000
"""Mismatches kept one by one; further ones are only counted."""

MISMATCHES_SHOWN_MAX: Final = 20
"""Mismatches printed."""

# Command line

REFRESH_PER_S: Final = 8
"""How many times a second progress is drawn."""

VERB_DEADLINE_S: Final = 10.0
"""The seconds that a command waits for its answer: longer than a restart, shorter than users' patience."""

SLICE_DEADLINE_S: Final = 2.5
"""The seconds that `shoal status` waits for all slices at once: a slice answers in milliseconds, a busy one in a
second."""

TOP_DEADLINE_S: Final = 3.0
"""The seconds after which `shoal top` shows a slice as silent."""

MESSAGES_PRINTED_MAX: Final = 10_000
"""Messages of one `shoal pull` or `peek`: they are held in memory, and print in seconds."""

FULL_KEYS_NAMED_MAX: Final = 10
"""Keys that a remark of `shoal describe` names of which as much is unacked as may be."""

TAIL_QUEUES_MAX: Final = 1_000
"""Queues followed by one `shoal tail`."""

OFFSET_RANGES_MAX: Final = 10_000
"""Offsets and ranges of one `shoal ack`, `shoal nack`, or line of acks: as many as the gateway takes in one call."""

TRANSACTION_FILE_BYTES_MAX: Final = 4 << 20
"""Bytes of the file of one `shoal transaction`: twice what a transaction may have."""

assert SLICE_DEADLINE_S < VERB_DEADLINE_S
# Sweep

SWEEP_NAMES: Final = 200
"""Queues of one page, and parts looked at again together: some milliseconds of a slice, which describes each
exactly."""

SWEEP_EVERY_S: Final = 5.0
"""The seconds between two pages of each slice, for the sweep beside the gateway: under a thousandth of a slice's
time."""

SWEEP_PAUSE_S: Final = 30.0
"""The seconds between the two looks that must both find a part left behind: longer than a call's usual deadline."""

SWEEP_SUSPECTS_MAX: Final = 100_000
"""Parts that wait for their second look, about 200 bytes each. More are found in a later round."""

SWEEP_DEADLINE_S: Final = 10.0
"""The seconds after which a slice that does not answer is passed over until the next round."""

assert MISMATCHES_SHOWN_MAX <= MISMATCHES_KEPT_MAX

PORT_MAX: Final = 65_535
"""The highest port number of TCP."""

BINDINGS_LISTED_MAX: Final = 10_000
"""A slice lists no more bindings of a queue than so many in a description: there may be others then."""
