"""Makes limits small, in every module that has them by name: three items may then show what a million would."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random

import shoal_slice_node.core

PACKAGE = "shoal_slice_node"
for _module in pkgutil.walk_packages(shoal_slice_node.core.__path__, f"{PACKAGE}.core."):
    importlib.import_module(_module.name)

SMALL: dict[str, tuple[int, ...]] = {
    # Tables.
    "BUCKET_ENTRIES_MEAN": (2,),
    "BUCKET_LAYOUT_ENTRIES_MAX": (0, 2),
    "GONE_RUN_MIN": (1, 2),
    "SORTED_ANEW_MAX": (0, 2),
    "RECENT_KEYS_MAX": (1, 3),
    "RUN_KEYS_MAX": (2, 6),
    "DEAD_KEYS_MIN": (1, 2),
    "PAGE_MEMBERS_MIN": (1, 3),
    "BINDINGS_PER_QUEUE_MAX": (4,),
    "DONE_RANGES_MAX": (2, 2, 4),
    "DONE_RANGES_PER_COST": (1,),
    "DONE_RANGES_COPIED_PER_COST": (1,),
    "RANGES_PRICE_MAX": (0, 1),
    "AWAY_RANGES_MAX": (1, 2),
    "PURGE_BINDINGS_MAX": (1, 3),
    "DROP_BINDINGS_MAX": (0, 2),
    "ANSWERS_KEPT_MAX": (1, 3),
    "REFUSALS_BYTES_MAX": (1,),
    # Maintenance.
    "RECLAIM_COST_PER_TURN": (1, 5),
    "RECLAIM_NOTED_MAX": (1, 2),
    "DUE_PER_RECORD_MAX": (1, 2),
    "DUE_BYTES_PER_RECORD": (1,),
    "DUE_EARLY_NOTED_MAX": (0, 1),
    "DUE_AGAIN_MS": (1, 2_000),
    "LEFT_TIMES_MAX": (0, 1),
    "LEFT_WALKED_PER_TURN": (1, 2),
    "LEFT_PER_RECORD_MAX": (2, 3),
    "FAREWELLS_BYTES_PER_RECORD": (1,),
    "FAREWELL_LETTERS_WAITING_MAX": (1,),
    "FAREWELL_LETTERS_PER_RECORD_MAX": (1,),
    "KEYS_WALKED_PER_TURN": (1,),
    "ADVANCED_NOTED_MAX": (0, 1, 2),
    "ADVANCED_NOTED_MANY": (0, 1),
    "FULL_NOTED_MAX": (0, 1),
    "FULL_LOOKED_AT_MAX": (0, 1),
    "FULL_LOOKED_AT_MEMBERS_MAX": (0, 1),
    "LINED_MAX": (1,),
    "PRODUCERS_PER_TURN": (1,),
    "PRODUCER_COST_MAX": (1,),
    "SCAN_MEMBERS_PER_TURN": (1, 3),
    "SCAN_MEMBERS_PER_STEP": (1, 2),
    "CURSOR_SCANS_MAX": (1, 2),
    "SCAN_SIZES": (1, 2),
    "SCAN_SIZES_BITS": (1,),
    "SCANS_LINED_PER_TURN": (1, 2),
    "LOWEST_NOTED_MEMBERS_MIN": (1, 1, 2),
    "LOWEST_NOTED_MAX": (1,),
    "LEASES_ENDED_KEPT": (0, 1),
    "LEASES_BEGUN_PER_TICK": (1, 2),
    "EXPIRED_ROWS_PER_STEP": (1, 2),
    "EXPIRED_ROWS_PER_RECORD": (1, 3),
    "EXPIRED_ROWS_PER_OPERATION": (1,),
    "EXPIRED_ROWS_AT_CAPACITY": (1, 2),
    "APPLIED_PER_STEP": (4, 5),
    "IMPORTED_PER_STEP": (2, 5),
    # Dead letters.
    "RETRIES_PER_RECORD_MAX": (1, 3),
    "RETRIES_COST_PER_RECORD": (1, 4),
    "RETRIES_PER_TURN": (1, 2),
    "RETRY_LOOKS_MAX": (1, 3),
    "DEAD_PER_RECORD_MAX": (1, 2),
    "DEAD_BYTES_PER_RECORD_MAX": (1,),
    "DEAD_PER_TURN": (1,),
    # Reads.
    "LOAD_DETAILS_PER_STEP": (1, 2),
    "READ_ROWS_PER_STEP": (1,),
    "PULL_ROWS_PER_STEP": (1, 2),
    "WALKED_IDS_MAX": (0, 1, 4),
    "WALKED_RANGES_PER_COST": (1, 3),
    "WALKED_RANGES_PER_STEP": (1, 3),
    "LOG_ROWS_PASSED_MAX": (0, 1),
    "LOG_BYTES_PASSED_MAX": (1,),
    "LOG_BYTES_PER_COST": (1, 30),
    "GAPS_AT_ONCE_MAX": (1, 2),
    "PULL_GAPS_BYTES_MAX": (1,),
    "EXPIRED_PER_GAP_MAX": (1, 2),
    "RECENT_CHUNKS_BYTES_MAX": (1, 3_000),
    "OPENED_CHUNKS_BYTES_MAX": (1,),
    "CUT_SHARE": (1, 2),
    "CUT_CHUNK_BYTES_MIN": (1,),
    "RELEASED_AT_ONCE_MAX": (0, 1, 500),
    "ACKED_PER_STEP": (1, 2),
    "STRETCHES_PER_PIECE": (1, 2),
    "STRETCHES_LOOKED_AT_PER_COST": (1, 2),
    "ACK_COST_PER_FLUSH": (1, 5),
    "ACK_COST_PER_RECORD": (1, 2),
    "ACK_RECORDS_PER_TURN": (1, 2),
    "ACK_FEEDS_NAMED_MAX": (0, 1),
    # Dispatch.
    "INLINE_STREAMS_MAX": (1, 8),
    "AT_ONCE_MAX": (0, 1, 9, 30),
    "GIVEN_AT_ONCE_MAX": (0, 1, 2),
    "GROWTHS_WAITING_BYTES_MAX": (0, 30),
    "DELIVERED_MARKS_MAX": (1,),
    "PUMP_TURN_BINDINGS": (1, 2),
    "PUMP_TURN_HANDLES": (1, 2),
    "PUMP_TURN_BYTES": (1, 900),
    "PUMP_TURN_ROWS": (1, 2),
    "PUMP_TURN_LOOKS": (2, 6),
    "OWED_PER_SESSION_MAX": (1, 3),
    "OWED_FLOOR": (1,),
    "OWED_BY_PULLS_MAX": (2,),
    "DELIVERIES_FLOOR_BYTES": (1, 800),
    "TURNS_PER_TURN_OF_ALL": (1, 2),
    "LARGE_DELIVERY_BYTES": (0, 640),
    "SMALL_HOLDERS_MAX": (1, 2),
    "LOOKS_PER_LARGE_NEXT": (1,),
    "OUT_OF_TURN_PARTS": (1, 2),
    "FREED_STREAMS_MAX": (1, 2),
    "NEWEST_LOOKED_AT_MAX": (0, 1),
    "LEFT_OUT_KEPT_MAX": (1, 2),
    "OUT_OF_TURN_OF_LEFT_PARTS": (1, 2),
    "CONSUMERS_PER_QUEUE_MAX": (1,),
    "ATTACHED_PER_SESSION_MAX": (2,),
    "HEAVY_RANGES": (0, 1),
    "QUICK_BINDINGS_MAX": (0, 2),
    "RANGES_PART": (1, 50, 1_000),
    "PULLED_RANGES_PART": (1, 50, 1_000),
    "OVERDRAWN_RANGES_PART": (1, 1_000),
    "REFUSED_ROOM_PART": (1, 1_000),
    "RELIEF_LOOKS_PER_STEP": (1, 2),
    "WITHDRAWN_PER_STEP": (1, 2),
    "DETACHED_NOTED_MAX": (0, 2),
    "DETACHED_LOOKS_PER_STEP": (1, 3),
    "DETACHED_FORGOTTEN_PER_STEP": (1, 2),
    "LISTED_PER_COST": (1, 2),
    "LAGGING_AT_ONCE_MAX": (1, 2),
    "LEAVING_LOOKS_MAX": (0, 2),
    "LEAVING_LOOKS_PER_STEP": (0, 1, 3),
    "CONSUMED_COUNTED_MAX": (0, 1),
    "RESTING_LOOKED_AT_PER_TURN": (1, 2),
    "_LOOKS_FOR_A_PARCEL": (1,),
    "NEWCOMERS_PARTS": (2, 8),
    "SMALL_PULLS_PART": (1, 4, 50),
    "LEASES_PER_TURN": (1, 2),
    "LEASE_COST": (1,),
    "UNSENT_LISTS_MAX": (1,),
    "UNSENT_PER_COST": (1,),
    "RESTING_ENDED_PER_TURN": (1, 2),
    "RESTING_OVER_KEPT": (0, 1),
    "RESTS_PER_QUEUE_FLOOR": (1, 2),
    "STREAMS_PER_HANDLE": (1, 2),
    "ATTACHED_PER_STEP": (1,),
    "PULL_FLOOR": (1, 2),
    "OWED_OVER": (1,),
    "ENDED_TOLD_MAX": (1,),
    "OUT_OF_LINE_LOOKS_MAX": (1,),
    "LIVE_WAITING_BYTES_MAX": (0, 50),
    "COUNTED_NAME_BYTES": (0, 1),
    # Watches.
    "CHANGES_PER_STEP_MAX": (1, 3),
    "COUNTS_WAITING_MAX": (0, 2),
    "MEMBER_CHANGES_WAITING_MAX": (1, 3),
    "CHANGED_KEYS_MAX": (1, 2),
}
"""The small values of each limit."""

TOGETHER = {
    "BUCKET_ENTRIES_MEAN": {"BUCKET_ENTRIES_LOW": 1},
    "GIVEN_AT_ONCE_MAX": {"ATTACHED_AT_ONCE_MAX": 1},
    "LISTED_PER_COST": {"LOOKED_AT_PER_COST": 1, "LISTED_AT_ONCE_MAX": 1, "LOOKS_PER_COST": 1_000},
    "ACK_COST_PER_RECORD": {"BIND_BACKS_NOTED_MAX": 2, "BIND_BACKS_FORGOTTEN_MAX": 1},
}
"""The limits that are small together with a limit, as they must be, or show most then; and their values."""

assert SMALL.keys() >= TOGETHER.keys()


def choose(seed: int) -> dict[str, int]:
    """Returns small values for some limits, or none, or all. Each is drawn on its own: a limit that comes to SMALL
    changes nothing else of a run."""
    share = Random(f"share {seed}").choice((0.0, 0.25, 0.25, 0.5, 1.0))
    chosen: dict[str, int] = {}
    for name, values in SMALL.items():
        random = Random(f"{name} {seed}")
        if random.random() < share:
            chosen[name] = random.choice(values)
    for name in list(chosen):
        chosen.update({other: value for other, value in TOGETHER.get(name, {}).items() if other not in chosen})
    return chosen


@contextmanager
def patched(values: Mapping[str, int]) -> Iterator[None]:
    """Sets these limits in all modules. Raises AssertionError for a limit that no module has."""
    before = []
    modules = [module for name, module in sys.modules.items() if name.startswith(f"{PACKAGE}.core")]
    for name, value in values.items():
        having = [vars(module) for module in modules if name in vars(module)]
        assert having, f"there is no limit {name}"
        for found in having:
            before.append((found, name, found[name]))
            found[name] = value
    try:
        yield
    finally:
        for found, name, value in reversed(before):
            found[name] = value
