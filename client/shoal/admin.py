"""Shows the cluster to an operator: `shoal.Admin`. It only asks; calls that change something are on the broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

from shoal.broker import Broker
from shoal.core import pages
from shoal.core.refusals import no_such_queue, unreadable
from shoal.figures import (
    BindingEntry,
    CheckpointFigures,
    ClusterInfo,
    Counters,
    JournalFigures,
    KeyEntry,
    MemoryFigures,
    MemoryShare,
    Page,
    SliceFigures,
    SliceInfo,
)
from shoal.limits import LIST_ITEMS_DEFAULT, LIST_QUESTIONS_MAX
from shoal.transport.base import Method, Request, Response
from shoal.transport.methods import FIGURES, LIST_BINDINGS, LIST_KEYS, LIST_MEMBERS, LIST_QUEUES, LOCATE
from shoal_contract.arguments import PAGE_ITEMS, check_prefix, check_text
from shoal_contract.errors import NoSuchQueue
from shoal_contract.names import Name, encode_name
from shoal_contract.wire import admin_pb2 as wire
from shoal_contract.wire.common_pb2 import ErrorCode
from shoal_contract.wire.redirector_pb2 import LocateRequest


class Admin:
    """Asks over an open broker's connection, and ends with it: `admin = shoal.Admin(broker)`.

    Every call waits for slices that are away until the broker's deadline (`deadline_s` of `connect`), then raises
    Unavailable or DeadlineExceeded. Lists raise OutOfRange for a `limit` outside 1 to 1,000, and Malformed for an
    `after` that is not the `next` of a page. Names that are not UTF-8 are returned as bytes.
    """

    def __init__(self, broker: Broker) -> None:
        self._connection = broker.connection
        self._map = self._connection.map
        self._calls = self._connection.calls

    async def cluster(self) -> ClusterInfo:
        """Returns the map and its slices, as a redirector has them now. Raises Unavailable, DeadlineExceeded."""
        found = await self._calls.ask_redirector(LOCATE, LocateRequest(), self._deadline())
        owned = Counter(await self.partitions())
        slices = tuple(
            SliceInfo(one.slice, one.address, one.epoch, owned[one.slice], one.admin_address) for one in found.slices
        )
        return ClusterInfo(found.map_version, found.age_ms, sum(owned.values()), slices)

    async def partitions(self) -> tuple[str, ...]:
        """Returns the slice that owns each partition, by partition number, from the map that this connection has.
        Raises nothing: it asks no slice."""
        owners = self._map.current.partition_map
        return tuple(owners.slices[index] for index in owners.owners)

    async def figures(self, slice_name: str) -> SliceFigures:
        """Returns what a slice holds and did, at most 0.2 s old. Raises OutOfRange for an unknown slice."""
        check_text("slice_name", slice_name)
        return _figures(await self._ask(slice_name, FIGURES, wire.FiguresRequest(), self._deadline()))

    async def queues(self, prefix: Name = "", after: str = "", limit: int = LIST_ITEMS_DEFAULT) -> Page[Name]:
        """Returns names of queues with this prefix, over all slices, each once, in order of their bytes. Raises
        InvalidName for a prefix longer than a name, and what every list does."""
        limit = PAGE_ITEMS.check(limit)
        request = wire.ListQueuesRequest(prefix=check_prefix(prefix), after=pages.decode_after(after), limit=limit)
        answers = await self._ask_all(LIST_QUEUES, request)
        parts = [
            (dict.fromkeys(answer.queues, 0), _moved(name, request.after, answer.next)) for name, answer in answers
        ]
        found, following = pages.merge_names(parts, limit, max)
        return Page(tuple(pages.readable(name) for name, _ in found), following)

    async def keys(self, prefix: Name = "", after: str = "", limit: int = LIST_ITEMS_DEFAULT) -> Page[KeyEntry]:
        """Returns keys with this prefix and their numbers of bound queues, over all slices, in order of their bytes.
        Raises InvalidName for a prefix longer than a name, and what every list does."""
        limit = PAGE_ITEMS.check(limit)
        request = wire.ListKeysRequest(prefix=check_prefix(prefix), after=pages.decode_after(after), limit=limit)
        answers = await self._ask_all(LIST_KEYS, request)
        parts = [(_counts(name, answer), _moved(name, request.after, answer.next)) for name, answer in answers]
        found, following = pages.merge_names(parts, limit, max)
        return Page(tuple(KeyEntry(pages.readable(name), queues) for name, queues in found), following)

    async def members(self, key: Name, after: str = "", limit: int = LIST_ITEMS_DEFAULT) -> Page[Name]:
        """Returns names of the queues bound to a key, in the order in which its slice first knew them; none for a key
        that keeps nothing. Raises InvalidName, and what every list does."""
        limit = PAGE_ITEMS.check(limit)
        request = wire.ListMembersRequest(
            key=encode_name(key, "key"), after=pages.decode_position(after, after), limit=limit
        )

        def owner() -> str:
            return self._calls.owner_of(request.key)

        answer = await self._calls.ask_slice(owner, LIST_MEMBERS, request, self._deadline(), admin=True)
        return Page(tuple(map(pages.readable, answer.queues)), _moved(owner(), request.after, answer.next).hex())

    async def bindings(self, queue: Name, after: str = "", limit: int = LIST_ITEMS_DEFAULT) -> Page[BindingEntry]:
        """Returns a queue's keys with start, cursor, end, backlog, how much is unacked, and whether the key gives no
        more; slice by slice, not ordered by name. Includes ended bindings that have a backlog. Raises NoSuchQueue."""
        limit = PAGE_ITEMS.check(limit)
        name = encode_name(queue, "queue")
        slices = sorted(self._map.current.slices)
        index, position = pages.decode_slice_after(after, slices)
        found: list[BindingEntry] = []
        parts = index  # Earlier pages have dealt with the slices before that of `after`.
        deadline, questions = self._deadline(), 0
        while index < len(slices) and len(found) < limit and questions < LIST_QUESTIONS_MAX:
            request = wire.ListBindingsRequest(queue=name, after=position, limit=limit - len(found))
            answer = await self._list_part(slices[index], request, deadline)
            if answer is not None:
                parts += 1
                found += [_binding(slices[index], item) for item in answer.bindings]
            position = _moved(slices[index], position, answer.next) if answer is not None else b""
            index, questions = (index, questions + 1) if position else (index + 1, 0)
        if not parts:
            raise no_such_queue(name)
        return Page(tuple(found), f"{slices[index]}.{position.hex()}" if index < len(slices) else "")

    async def _list_part(
        self, slice_name: str, request: wire.ListBindingsRequest, deadline: float
    ) -> wire.ListBindingsResponse | None:
        try:
            return await self._ask(slice_name, LIST_BINDINGS, request, deadline)
        except NoSuchQueue:
            return None  # The queue has no part there.

    async def _ask(
        self, slice_name: str, method: Method[Request, Response], request: Request, deadline: float
    ) -> Response:
        return await self._calls.ask_slice(lambda: slice_name, method, request, deadline, admin=True)

    async def _ask_all(self, method: Method[Request, Response], request: Request) -> Sequence[tuple[str, Response]]:
        """Asks every slice at once. Returns slices and their answers. Raises the error of the first one that fails."""
        names, deadline = self._map.current.slices, self._deadline()
        answers = await asyncio.gather(*(self._ask(name, method, request, deadline) for name in names))
        return list(zip(names, answers, strict=True))

    def _deadline(self) -> float:
        return self._connection.deadline(None)


def _moved(slice_name: str, after: bytes, following: bytes) -> bytes:
    """Returns a page's `next`. Raises Malformed if it leads to the same page again."""
    if following and following == after:
        raise unreadable(slice_name, "the next page of its list begins where this one does")
    return following


def _counts(slice_name: str, answer: wire.ListKeysResponse) -> dict[bytes, int]:
    if len(answer.keys) != len(answer.queues):
        raise unreadable(slice_name, f"{len(answer.keys)} keys with {len(answer.queues)} counts")
    return dict(zip(answer.keys, answer.queues, strict=True))


def _figures(answer: wire.FiguresResponse) -> SliceFigures:
    journal, checkpoint, counters = answer.journal, answer.checkpoint, answer.counters
    return SliceFigures(
        **{name: getattr(answer, name) for name in _PLAIN},
        uptime_s=answer.uptime_ms / 1000,
        journal=JournalFigures(journal.lsn, journal.applied_lsn, journal.segments, journal.bytes),
        checkpoint=CheckpointFigures(
            checkpoint.lsn,
            checkpoint.age_ms / 1000,
            checkpoint.lag_records,
            checkpoint.delta_rows,
            checkpoint.delta_bytes,
        ),
        memory=MemoryFigures(
            answer.resident_bytes,
            answer.checkpointer_resident_bytes,
            tuple(MemoryShare(one.name, one.used_bytes, one.limit_bytes) for one in answer.memory),
        ),
        refused={_code_name(one.code): one.count for one in answer.refused},
        counters=Counters(**{field.name: getattr(counters, field.name) for field in fields(Counters)}),
    )


_PLAIN = (
    *("slice", "node", "epoch", "map_version", "partitions", "time_ms", "queues", "keys", "bindings", "messages"),
    *("body_bytes", "sessions", "attached_queues", "disk_bytes"),
    *("trouble", "version", "incarnation", "loop_longest_step_us", "lease_remaining_ms", "disk_free_bytes"),
    *("silent_bindings", "checkpointer_restarts", "letters_waiting", "delayed_publishes", "delayed_bytes"),
    *("farewells", "farewell_bytes"),
)


def _code_name(code: ErrorCode.ValueType) -> str:
    """Returns NO_SUCH_QUEUE for ERROR_CODE_NO_SUCH_QUEUE; the number, for an unknown code of a newer slice."""
    return ErrorCode.Name(code).removeprefix("ERROR_CODE_") if code in ErrorCode.values() else str(int(code))


def _binding(slice_name: str, item: wire.ListedBinding) -> BindingEntry:
    found = item.binding
    return BindingEntry(
        key=pages.readable(found.key),
        slice=slice_name,
        start=found.start,
        cursor=found.cursor,
        end=found.end,
        head=item.head,
        messages=found.messages,
        unacked=found.unacked,
        full=found.full,
    )
