"""Bounds of the processes beside a node. Each with its unit and its reason."""

from typing import Final

from shoal_slice_node.storage.limits import LOCK_WAIT_S_MAX

SNAPSHOT_END_S_MAX: Final = 5.0
"""How long a snapshot's process may take to notice that nobody listens; then it is killed."""

CHECKPOINTER_ANSWER_S_MAX: Final = 300
"""A checkpointer that has not committed by then counts as dead."""

EXPORT_PAGE_MEMBERSHIPS: Final = 2_000
"""In one page of an export: about 200 KB, and 3 ms of the process that reads it."""

SNAPSHOT_NICENESS: Final = 5
"""Of such a process: broker and checkpointer go first."""

CHECKPOINTER_RESIDENT_BYTES_MAX: Final = 96 << 20
"""A checkpointer that is at rest and larger than this starts itself anew."""

IDLE_MS: Final = 3_000
"""After so long without a change the checkpoint's pages leave the resident memory."""

assert CHECKPOINTER_ANSWER_S_MAX > LOCK_WAIT_S_MAX
