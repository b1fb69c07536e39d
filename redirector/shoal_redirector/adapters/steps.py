"""Encodes the answers to watchers, once for all that need the same: the whole map, or the step to the newest."""

from __future__ import annotations

from shoal_contract.wire import redirector_pb2 as wire
from shoal_redirector.core.directory import Directory, moved
from shoal_redirector.limits import AGE_STEP_MS, STEPS_KEPT


class Steps:
    """Keeps the newest steps' bytes, which thousands of watchers share. One for the process."""

    def __init__(self) -> None:
        self._after: Directory | None = None
        self._encoded: dict[tuple[int, int], tuple[Directory | None, bytes]] = {}
        """(`id` of the watcher's directory, the map's age) -> that directory and the bytes. The directory is kept so
        that no other object gets its `id`."""

    def encoded(self, before: Directory | None, after: Directory, age_ms: int) -> bytes:
        """Returns a serialized WatchMapResponse. `before` None: the watcher has nothing."""
        if after is not self._after or len(self._encoded) >= STEPS_KEPT:
            self._after, self._encoded = after, {}
        age_ms -= age_ms % AGE_STEP_MS
        key = (id(before), age_ms)
        found = self._encoded.get(key)
        if found is None:
            found = self._encoded[key] = (before, step(before, after, age_ms).SerializeToString())
        return found[1]


def step(before: Directory | None, after: Directory, age_ms: int) -> wire.WatchMapResponse:
    """Returns the whole map for a watcher without one, or if P changed; else the partitions that moved."""
    response = wire.WatchMapResponse(map_version=after.map.version, age_ms=age_ms, slices=slices(after))
    change = None if before is None else moved(before, after)
    if change is None:
        response.partitions = after.map.partitions
        response.owners.extend(after.map.owners)
    else:
        response.moved.extend(change[0])
        response.owners.extend(change[1])
    return response


def slices(directory: Directory) -> list[wire.SliceAddress]:
    return [
        wire.SliceAddress(slice=each.slice, address=each.address, epoch=each.epoch, admin_address=each.admin_address)
        for each in directory.slices
    ]
