"""Holds publishes that wait for a newer map, in order: those that a slice refused because it does not own their key,
and all behind them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from shoal.core.publish_requests import PublishRequest
from shoal.limits import REROUTE_BYTES_MAX
from shoal_contract.errors import ResourceExhausted, ShoalError


class Held:
    """Holds publishes in order. `partition_of`: key -> partition, the same for the life of a cluster."""

    def __init__(self, partition_of: Callable[[bytes], int]) -> None:
        self.deadline = float("inf")
        """The earliest deadline of a waiting publish, or a moment before it; event loop time."""
        self._partition_of = partition_of
        self._requests: deque[PublishRequest] = deque()
        self._bytes = 0
        self._partitions: Counter[int] = Counter()
        """Partition -> number of its requests; never zero."""

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, key: bytes) -> bool:
        """Returns whether publishes of this key's partition are held, so that later ones must queue behind them."""
        return bool(self._requests) and self._partitions[self._partition_of(key)] > 0

    def add(self, request: PublishRequest) -> None:
        """Holds one more publish. Raises ResourceExhausted."""
        if self._bytes + request.cost_bytes > REROUTE_BYTES_MAX:
            name = "publishes that wait for a newer map"
            raise ResourceExhausted(
                f"{name}: {self._bytes} bytes; the limit is {REROUTE_BYTES_MAX}",
                subject=name,
                limit=REROUTE_BYTES_MAX,
                value=self._bytes,
            )
        self._requests.append(request)
        self._bytes += request.cost_bytes
        self._partitions[self._partition_of(request.key)] += 1
        self.deadline = min(self.deadline, request.deadline)

    def first(self) -> PublishRequest:
        """Returns the publish that waits longest; it stays until `pop`."""
        return self._requests[0]

    def pop(self) -> None:
        """Holds the publish that waits longest no more."""
        request = self._requests.popleft()
        self._bytes -= request.cost_bytes
        partition = self._partition_of(request.key)
        self._partitions[partition] -= 1
        if not self._partitions[partition]:
            del self._partitions[partition]

    def fail(self, error: ShoalError) -> None:
        """Fails all publishes. They stay until `pop`."""
        for request in self._requests:
            request.fail(error)

    def expire(self, now: float, error: ShoalError) -> None:
        """Fails the publishes beyond their deadline. They stay until `pop`."""
        later = float("inf")
        for request in self._requests:
            if now >= request.deadline:
                request.expire(now, error)
            if request.deadline > now:
                later = min(later, request.deadline)
        self.deadline = later
