"""Bounds of the processes beside a node. Each has its unit and its reason."""

from typing import Final

from shoal_contract.limits import FRAME_BYTES_MAX
from shoal_slice_node.core.limits import DONE_RANGES_MAX, EXPORTED_RANGE_BYTES_MAX
from shoal_slice_node.storage.limits import LOCK_WAIT_S_MAX

SNAPSHOT_END_S_MAX: Final = 5.0
"""How long a snapshot process may take to notice that its socket was closed; then it is killed."""

CHECKPOINTER_END_S_MAX: Final = 10.0
"""How long a checkpointer may take to end once its socket was closed, in seconds; then it is killed, and no longer
waited for after as long again: it is not, or no more, at a commit."""

CHECKPOINTER_ANSWER_S_MAX: Final = 300
"""A checkpointer that has not answered after this time counts as dead."""

EXPORT_PAGE_MEMBERSHIPS: Final = 2_000
"""Memberships in one page of an export: about 200 KB, which take the process 3 ms to read."""

EXPORT_PAGE_BYTES: Final = 1 << 20
"""Bytes of one page of an export, at most; one more membership may exceed them, with all of its done ranges. Names and
numbers count as the most that they can take, so pages have less."""

SNAPSHOT_NICENESS: Final = 5
"""The niceness of a snapshot process: the main process and the checkpointer have priority."""

CHECKPOINTER_RESIDENT_BYTES_MAX: Final = 96 << 20
"""An idle checkpointer with more resident memory than this starts itself anew."""

IDLE_MS: Final = 3_000
"""The checkpoint's pages leave the resident memory after this time without work, and a node ticks less often then."""

assert CHECKPOINTER_ANSWER_S_MAX > LOCK_WAIT_S_MAX
assert EXPORT_PAGE_BYTES + 2 * EXPORTED_RANGE_BYTES_MAX * DONE_RANGES_MAX < FRAME_BYTES_MAX
