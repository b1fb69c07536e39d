"""Divides one budget for the memory of a node's process into shares.

The shares and the base add up to the budget. The base is memory that is not counted (code, caches, the interpreter's
own). LMDB's mapped pages belong to the page cache: the kernel takes them back. The checkpointer is a separate process,
outside of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal_contract.errors import OutOfRange
from shoal_slice_node.core.limits import MEMORY_BASE_BYTES, MEMORY_BYTES_MIN

_MIB = 1 << 20
_PARTS = {"attached": 38, "delta": 30, "deliveries": 12, "owed": 8, "pending": 6, "answers": 6}
"""The shares, in per cent of the budget without its base."""

assert sum(_PARTS.values()) == 100


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Holds the parts of the budget, in bytes. `attached`: consumed queues. `delta`: changes that no checkpoint has.
    `deliveries`: under way to sessions, with the copies that writing makes. `owed`: given and not acked. `pending`:
    requests read and not applied. `answers`: not taken by clients."""

    budget_bytes: int
    attached_bytes: int
    delta_bytes: int
    deliveries_bytes: int
    owed_bytes: int
    pending_bytes: int
    answers_bytes: int


def plan_memory(budget_mib: int) -> MemoryPlan:
    """Divides a budget. Raises OutOfRange if it is less than a node needs to serve."""
    budget = budget_mib * _MIB
    if budget < MEMORY_BYTES_MIN:
        raise OutOfRange(
            f"a memory budget of {budget_mib} MiB is too small; the least is {MEMORY_BYTES_MIN // _MIB} MiB",
            subject="memory",
            limit=MEMORY_BYTES_MIN,
            value=budget,
        )
    free = budget - MEMORY_BASE_BYTES
    shares = {f"{name}_bytes": free * percent // 100 for name, percent in _PARTS.items()}
    return MemoryPlan(budget, **shares)
