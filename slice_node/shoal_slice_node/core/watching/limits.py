"""Bounds what watches of members and counts may take, each bound with its unit and its reason."""

from __future__ import annotations

from typing import Final

from shoal_contract.limits import FRAME_BYTES_MAX, NAME_BYTES_MAX

WATCHES_MAX: Final = 4_096
"""Watches on a node. Waking them all takes a few milliseconds."""

WATCHES_PER_CONNECTION_MAX: Final = 64
"""Watches of one connection: it has 100 calls in all, and needs some for its other questions."""

PREFIXES_PER_CONNECTION_MAX: Final = 8
"""Prefixes that one connection watches: so it does not take all of them."""

PREFIXES_WATCHED_MAX: Final = 64
"""Prefixes that are watched at a time, each counted once with presence and once without: each bind and unbind looks at
each length that they have."""

MEMBERS_TOLD_MAX: Final = 1_000
"""Members of a key that are told one by one. Of a key with more, watches get counts."""

MEMBERS_TOLD_AGAIN: Final = 750
"""A key that had too many members gets a snapshot of them when it has no more than these. A gap keeps a key at the
bound from changing to and fro."""

CHANGES_REMEMBERED_MAX: Final = 256
"""Changes of one key's members that are remembered. A watch that is further behind gets a snapshot."""

CHANGED_KEYS_MAX: Final = 4_096
"""Keys of one prefix that are remembered as changed, where its part of the memory holds so many. A watch that is
further behind gets a snapshot."""

REMEMBER_MS: Final = 60_000
"""How long a key or prefix is followed after its last watch has ended: a client comes back from a lost connection."""

REMEMBERED_MAX: Final = 512
"""Keys and prefixes that are followed without a watch. Above it the oldest is forgotten."""

COUNTS_EVERY_MS: Final = 200
"""How often counts are told at most: they are for people, and a storm becomes five updates a second."""

CROWD: Final = 64
"""If a key or prefix has more watches, all its changes are told every COUNTS_EVERY_MS: each costs a message for each
watch."""

SNAPSHOT_PAUSE_MS: Final = 1_000
"""How long a watch of a prefix waits at least between two snapshots. It waits as long as the last one took, if that is
longer: so a watch that cannot keep up costs half of what snapshots without an end would."""

WATCHED_PER_TICK_MAX: Final = 256
"""Keys and prefixes whose changes one tick tells."""

CHANGES_PER_STEP_MAX: Final = 500
"""Changes of members that are taken in at one go, each in one watched key or prefix: about a millisecond."""

COUNTS_WAITING_MAX: Final = 10_000
"""Keys that wait for their turn as their counts changed, each under its longest watched prefix: some 4 MB. With more,
the prefix with the most of them gets a snapshot, and so do shorter watched prefixes that it begins with."""

MEMBER_CHANGES_WAITING_MAX: Final = 10_000
"""Joins, leaves and drops of members of watched keys that wait for their turn: up to 7 MB. With more, the members of
all watched keys are looked up anew."""

WATCHES_PART: Final = 2
"""Watches may take half of the memory that attached queues and watches share: they keep no queue from being attached
that needs the other half."""

CHANGED_KEYS_PART: Final = 8
"""Keys that are remembered as changed may take an eighth of it; each prefix has an equal part of that."""

PRESENCE_AT_ONCE_MAX: Final = 8
"""A queue that is known in more watched keys becomes online or offline there in turns: one step attaches 25 queues."""

LENGTHS_AT_ONCE_MAX: Final = 4
"""If the prefixes that are watched have more lengths, keys of which other queues are consumed are looked at in turns:
one step may have hundreds of them."""

FORGOTTEN_PER_TICK_MAX: Final = 1_000
"""Members that one tick forgets, of keys that have not been watched for a while: under a millisecond. The last key may
exceed it."""

MEMBERS_PER_STEP_MAX: Final = 200
KEYS_PER_STEP_MAX: Final = 100
"""Members and keys that one step looks up: about half a millisecond."""

KEYS_PER_PART_MAX: Final = 256
"""Keys in one response, and in a page of the list that a snapshot is read from."""

PART_NAMES_BYTES_MAX: Final = 64 << 10
"""Names of queues in one part of a snapshot, in bytes."""

PART_BYTES_MAX: Final = 80 << 10
"""A response's largest size, in bytes: this much of the room for answers is reserved for each that is being made."""

PART_MEMBER_BYTES: Final = 32
"""Memory of a member in a part of a snapshot that is not told yet, besides its bytes on the wire (measured)."""

WATCH_BYTES: Final = 32_000
"""Memory of a watch: its call, which is most of it, its task, its place (measured: 60 on each of 60 connections)."""

MEMBER_BYTES: Final = 600
"""Memory of a member that is known: its name, its id, where it is noted."""

CHANGE_BYTES: Final = 160
"""Memory of a change that is remembered."""

CHANGED_KEY_BYTES: Final = 260
"""Memory of a key that is remembered as changed."""

assert MEMBERS_TOLD_AGAIN < MEMBERS_TOLD_MAX
assert max(KEYS_PER_PART_MAX, CHANGES_REMEMBERED_MAX) * (NAME_BYTES_MAX + 16) < PART_BYTES_MAX
assert PART_NAMES_BYTES_MAX + NAME_BYTES_MAX + 8 * PART_NAMES_BYTES_MAX // 50 < PART_BYTES_MAX < FRAME_BYTES_MAX
