"""Makes lists in pages, in bounded steps: each generator yields after about a millisecond of work and returns its page.

Between two steps the tables may change; what is returned was true at some moment of the listing. Belongs here: what is
looked at, and where the next page begins. Not here: turns and clocks (adapters), how much may be asked for.

Names are listed in order, although keys are stored by partition and the newest rows are in the delta, in no order. So a
page merges two kinds of names: those that changed since the checkpoint, picked and sorted; and those of the checkpoint,
a few from each owned partition at first, then more from each that is used up. A name is looked up before it is listed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeVar

from shoal_contract.errors import Malformed
from shoal_contract.names import show
from shoal_slice_node.core.apply.binds import existing_queue
from shoal_slice_node.core.apply.lookups import backlog_of, bound_key, done_of, kept_part
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import PREFIXES, State
from shoal_slice_node.core.limits import (
    LIST_BINDINGS_PER_STEP_MAX,
    LIST_CHANGED_PER_STEP_MAX,
    LIST_MEMBERS_PER_STEP_MAX,
    LIST_NAMES_PER_STEP_MAX,
    LIST_RANGES_COST_PER_STEP_MAX,
    WALKED_RANGES_PER_STEP,
)
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import KEY_ID, count_ranges, decode_detail, detail_key
from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.rows.key_row import ID, NAME, head_of, low_of
from shoal_slice_node.core.rows.queue_row import name_of
from shoal_slice_node.core.tables.tables import Rows
from shoal_slice_node.core.turns import Work

Item = TypeVar("Item")
Page = Work[tuple[list[Item], bytes]]
"""Returns the items, and the `after` of the next page (empty: there is none)."""

_POSITION_BYTES = 1 + 4 + ID_BYTES
_LIVE, _ENDED = b"\x00", b"\x01"


def list_queues(state: State, prefix: bytes, after: bytes, limit: int) -> Page[bytes]:
    """Lists the names of queues, ascending."""
    return (yield from _list_names(state.tables.queue_by_name, [b""], lambda name: name, prefix, after, limit))


def list_keys(state: State, prefix: bytes, after: bytes, limit: int) -> Page[tuple[bytes, int]]:
    """Lists (name, number of bound queues) of keys, ascending by name."""
    ranges = [PREFIXES[partition] for partition, owned in enumerate(state.owned) if owned]
    names, following = yield from _list_names(state.tables.key, ranges, state.unchecked_name, prefix, after, limit)
    found: list[tuple[bytes, int]] = []
    for number, name in enumerate(names, 1):
        row = state.tables.key.get(state.unchecked_name(name))
        if row is not None:
            found.append((name, state.tables.binding.count(row[ID])))
        if number % LIST_NAMES_PER_STEP_MAX == 0:
            yield
    return found, following


class _Source:
    """Keeps names in order; `at` is the index of the next. If `range_prefix` is not None, that range of the checkpoint
    may have more."""

    __slots__ = ("at", "names", "range_prefix")

    def __init__(self, names: list[bytes], range_prefix: bytes | None) -> None:
        self.names = names
        self.range_prefix = range_prefix
        self.at = 0


def _list_names(
    rows: Rows, ranges: Sequence[bytes], row_key: Callable[[bytes], bytes], prefix: bytes, after: bytes, limit: int
) -> Page[bytes]:
    """Lists names in order. `ranges`: prefixes of row keys, all of one length; the names follow after them."""
    width, listed = len(ranges[0]) if ranges else 0, frozenset(ranges)
    changed, to = yield from _changed_names(rows, listed, prefix, after, limit + 1)
    sources = [_Source(changed, None)] if changed else []
    batch = max(1, 2 * limit // max(1, len(ranges)))
    cost = 0
    for range_prefix in ranges:
        names = _names_below(rows, range_prefix, prefix, after, batch)
        if names:
            sources.append(_Source(names, range_prefix if len(names) == batch else None))
        cost += 1 + len(names)
        if cost >= LIST_RANGES_COST_PER_STEP_MAX:
            cost = 0
            yield
    heads = [(source.names[0], index) for index, source in enumerate(sources)]
    heapq.heapify(heads)
    found: list[bytes] = []
    last, steps = after, 0
    while heads and len(found) <= limit:
        name, index = heads[0]
        if to and name > to:
            break
        source = sources[index]
        source.at += 1
        if source.at == len(source.names) and source.range_prefix is not None:
            source.names, source.at = _names_below(rows, source.range_prefix, prefix, name, batch), 0
            if len(source.names) < batch:
                source.range_prefix = None
        if source.at < len(source.names):
            heapq.heapreplace(heads, (source.names[source.at], index))
        else:
            heapq.heappop(heads)
        if name > last or not last:
            last = name
            key = row_key(name)
            if key[:width] in listed and rows.get(key) is not None:
                found.append(name)
        steps += 1
        if steps % LIST_NAMES_PER_STEP_MAX == 0:
            yield
    return found[:limit], found[limit - 1] if len(found) > limit else to


def _changed_names(
    rows: Rows, ranges: frozenset[bytes], prefix: bytes, after: bytes, count: int
) -> Generator[None, None, tuple[list[bytes], bytes]]:
    """Returns the first `count` names of the delta that belong into the list, ascending; and the last of them, if there
    are more: the page must end there, also where some are gone by then. Only so many are kept in memory: the delta may
    have a million."""
    changed, first, to = rows.changed(), list[bytes](), b""
    width = len(next(iter(ranges), b""))
    for begin in range(0, len(changed), LIST_CHANGED_PER_STEP_MAX):
        some = changed[begin : begin + LIST_CHANGED_PER_STEP_MAX]
        found = {key[width:]: key for key in some if key.startswith(prefix, width) and key[:width] in ranges}
        names = [name for name, key in found.items() if after < name and rows.get(key) is not None]
        first = sorted({*first, *(name for name in names if not to or name < to)})
        if len(first) > count:
            del first[count:]
            to = first[-1]
        yield
    return first, to


def _names_below(rows: Rows, range_prefix: bytes, prefix: bytes, after: bytes, count: int) -> list[bytes]:
    start = range_prefix + (after + b"\x00" if after else b"")
    width = len(range_prefix)
    return [key[width:] for key in rows.keys_below(range_prefix + prefix, start, count)]


def list_members(state: State, key: bytes, after: bytes, limit: int) -> Page[bytes]:
    """Lists the names of the queues bound to a key, in the order of the queue ids. Raises InvalidName, NotOwner;
    Malformed for a bad `after`."""
    if after and len(after) != ID_BYTES:
        raise _not_of_this_list(after)
    found: list[bytes] = []
    full_name = state.full_name(key)
    while len(found) < limit:
        row = state.tables.key.get(full_name)
        count = min(LIST_MEMBERS_PER_STEP_MAX, limit - len(found))
        members, to = ([], b"") if row is None else state.tables.binding.members(row[ID], after, count)
        for queue_id in members:
            queue_row = state.tables.queue.get(queue_id)
            if queue_row is not None:  # Else it was dropped, and is not reclaimed yet.
                found.append(name_of(queue_row))
        if not to:
            return found, b""
        after = to
        yield
    return found, after


class ListedBinding(NamedTuple):
    """Describes one binding of a list. `end` 0: still bound. `head`: the key's next offset. `messages`: the backlog.
    `key_id`: the key's."""

    key: bytes
    start: int
    cursor: int
    end: int
    head: int
    messages: int
    key_id: bytes


def list_bindings(state: State, name: bytes, after: bytes, limit: int) -> Page[ListedBinding]:
    """Lists a queue's live bindings, bucket by bucket, then ended ones that have a backlog.

    `after`: u8 0 live or 1 ended | u32 bucket | key id; all up to it is listed. Raises NoSuchQueue; Malformed for a bad
    `after`.
    """
    queue: Queue | None = existing_queue(state, name)
    if after and len(after) != _POSITION_BYTES:
        raise _not_of_this_list(after)
    found: list[ListedBinding] = []
    while queue is not None and len(found) < limit:
        items, following = _next_bindings(state, queue, after, min(limit - len(found), LIST_BINDINGS_PER_STEP_MAX))
        found += items
        if not following:
            return found, b""
        after = following
        yield
        queue = state.load_queue(name)
    return found, after if queue is not None else b""


def _next_bindings(state: State, queue: Queue, after: bytes, limit: int) -> tuple[list[ListedBinding], bytes]:
    """Returns bindings after `after`, of one bucket or of the ended ones, and the position behind them; b"" at the end.
    Returns at most `limit` bindings, with WALKED_RANGES_PER_STEP done ranges and those of one binding more."""
    if after[:1] == _ENDED:
        return _ended_bindings(state, queue, after[5:], limit)
    number = int.from_bytes(after[1:5], "big")
    if number > queue.extra_buckets:
        return [], _position(_ENDED, 0)
    bucket = queue.numbered_bucket(number)
    key_ids = sorted(key_id for key_id in bucket.starts if key_id > after[5:])
    items: list[ListedBinding] = []
    ranges = 0
    for key_id in key_ids:
        if len(items) == limit or ranges >= WALKED_RANGES_PER_STEP:
            return items, _position(_LIVE, number, key_ids[len(items) - 1])
        done = done_of(state.tables, queue, key_id)
        ranges += len(done)
        items.append(_listed(state, key_id, bucket.starts[key_id], bucket.cursor(key_id), 0, done))
    if number == queue.extra_buckets and not queue.details:
        return items, b""
    return items, _position(_LIVE, number + 1)


def _ended_bindings(state: State, queue: Queue, after: bytes, limit: int) -> tuple[list[ListedBinding], bytes]:
    if not queue.details:
        return [], b""
    items: list[ListedBinding] = []
    ranges = 0
    rows = state.tables.detail.scan(queue.id, detail_key(queue.id, after) + b"\x00")
    for looked_at, (row_key, row) in enumerate(rows):
        if looked_at == limit or ranges >= WALKED_RANGES_PER_STEP:
            return items, _position(_ENDED, 0, after)
        ranges += count_ranges(row)
        after = row_key[KEY_ID]
        detail = decode_detail(row)
        if detail.ended:
            items.append(_listed(state, after, detail.start, detail.cursor, detail.end, detail.done))
    return items, b""


def _position(kind: bytes, bucket: int, key_id: bytes = bytes(ID_BYTES)) -> bytes:
    return kind + bucket.to_bytes(4, "big") + key_id


def _listed(state: State, key_id: bytes, start: int, cursor: int, end: int, done: Ranges) -> ListedBinding:
    full_name, row = bound_key(state.tables, key_id)
    head = head_of(row)
    cursor, done = kept_part(low_of(row), cursor, done)
    return ListedBinding(full_name[NAME], start, cursor, end, head, backlog_of(cursor, end or head, done), key_id)


def _not_of_this_list(after: bytes) -> Malformed:
    return Malformed(f"`after` {show(after[:40])} is not of this list: give `next` of a page", subject="after")
