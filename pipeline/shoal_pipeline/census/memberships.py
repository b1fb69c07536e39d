"""Turns requests into changes: what joins, leaves, declares and drops really changed, queue by queue. Pure.

The archive has requests as they were sent. Their effect on a slice follows from the queue's own history there, since
each rule needs nothing else (slice_node/core/apply/binds, drops, imports):
- a request is all or nothing: one bad, reserved or foreign key refuses all of it;
- a queue that was not declared, or was dropped, is bound to nothing;
- binding a key that is bound, or unbinding one that is not, changes nothing; a drop ends every binding;
- an expiry drops a queue, unless it was made, declared or bound after the leader had decided.
Five cases do not follow from a queue's history and count as done: a bind that was refused because its key had not
reached the offset it asked for (of an import, also because the key kept it no more); a bind that was refused because
the queue's row for it was full (slice_node/core/apply/bind_checks); a declare that was refused (other
options, a life that is over) while its queue expired; a drop that was refused because the queue was not empty; and what
stands in a refused transaction. Queues that were to be dropped if unused, and were in use, have no row: the record
names them (slice_node/core/verbs/drop).

The state is the memberships of one queue on one slice. Repeated frames are left out before (requests.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.names import DIRECT_PREFIX
from shoal_slice_node.core.limits import BINDINGS_PER_QUEUE_MAX


class Request(NamedTuple):
    """Describes one key of a request, or a request without keys. Requests are sorted by the first five fields. `owned`:
    whether the slice owned the key's partition then. `offset`: of an expiry, the LSN when the leader decided it."""

    queue: bytes
    slice: str
    lsn: int
    step: int
    request: int
    at_ms: int
    kind: str
    key: bytes | None
    partition: int | None
    owned: bool
    offset: int | None = None


class Change(NamedTuple):
    """Describes one change. `delta` is +1 or -1: of a membership, or (key None) of the queue itself on that slice."""

    at_ms: int
    slice: str
    lsn: int
    step: int
    request: int
    queue: bytes
    key: bytes | None
    partition: int | None
    delta: int


class _Membership:
    """Keeps the state of one queue on one slice. `keys` None: the queue is not declared; else its keys and their
    partitions."""

    def __init__(self, known: bool) -> None:
        self.known = known
        self.keys: dict[bytes, int | None] | None = None
        self._renewed_lsn = 0

    def apply(self, request: Sequence[Request]) -> Iterator[Change]:
        first = request[0]
        keys = {one.key: one.partition for one in request if one.key is not None}
        if self.keys is None and not self.known and first.kind in ("bind", "unbind"):
            yield from self._declared(first)
        self.known = True
        if first.kind == "declare":
            self._renewed_lsn = first.lsn
            yield from self._declared(first)
        elif first.kind == "drop":
            yield from self._dropped(first)
        elif first.kind == "expire":
            if self._renewed_lsn <= (first.offset or 0):
                yield from self._dropped(first)
        elif all(_may_be_bound(one) for one in request if one.key is not None):
            if first.kind == "import" and self._has_room(len(request)):
                yield from self._declared(first)
                yield from self._bound(first, keys)
            elif first.kind == "bind" and self._has_room(len(request)):
                self._renewed_lsn = first.lsn
                yield from self._bound(first, keys)
            elif first.kind == "unbind":
                yield from self._unbound(first, keys)

    def _has_room(self, keys: int) -> bool:
        return len(self.keys or ()) + keys <= BINDINGS_PER_QUEUE_MAX

    def _declared(self, by: Request) -> Iterator[Change]:
        if self.keys is None and 0 < len(by.queue) <= NAME_BYTES_MAX:
            self.keys = {}
            self._renewed_lsn = by.lsn
            yield _change(by, None, None, 1)

    def _dropped(self, by: Request) -> Iterator[Change]:
        if self.keys is not None:
            for key, partition in self.keys.items():
                yield _change(by, key, partition, -1)
            self.keys = None
            yield _change(by, None, None, -1)

    def _bound(self, by: Request, keys: dict[bytes, int | None]) -> Iterator[Change]:
        if self.keys is not None:
            for key, partition in keys.items():
                if key not in self.keys:
                    self.keys[key] = partition
                    yield _change(by, key, partition, 1)

    def _unbound(self, by: Request, keys: dict[bytes, int | None]) -> Iterator[Change]:
        if self.keys is not None:
            for key, partition in keys.items():
                if key in self.keys:
                    del self.keys[key]
                    yield _change(by, key, partition, -1)


def changes_of(requests: Iterable[Request], incomplete: frozenset[str] = frozenset()) -> Iterator[Change]:
    """Yields the changes of `requests`, which are sorted. `incomplete`: slices whose archive does not begin at the
    beginning. A queue that is first seen there without having been declared counts as declared."""
    for (_, slice_name), those in groupby(requests, attrgetter("queue", "slice")):
        membership = _Membership(slice_name not in incomplete)
        for _, keys in groupby(those, attrgetter("lsn", "step", "request")):
            yield from membership.apply(list(keys))


def _may_be_bound(one: Request) -> bool:
    key = one.key or b""
    return one.owned and 0 < len(key) <= NAME_BYTES_MAX and not key.startswith(DIRECT_PREFIX)


def _change(by: Request, key: bytes | None, partition: int | None, delta: int) -> Change:
    return Change(by.at_ms, by.slice, by.lsn, by.step, by.request, by.queue, key, partition, delta)
