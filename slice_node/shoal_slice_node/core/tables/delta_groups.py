"""Keeps groups over a base: members that came or went since the last checkpoint. Reads: base + frozen + active.

A layer holds for each group it touches:

    member (8 bytes)           one op: the layers below lack the member, it came here
    member + b"-" (9 bytes)    one op: the layers below have the member, it went here
    _Ops                       two ops or more

The caller knows which members are there (tables.Groups), so an opposite op on the same member undoes the entry and
leaves nothing: a binding dropped before it was checkpointed never reaches the disk. Most groups touched have one op, so
most cost one dict slot and no object of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Protocol, TypeAlias

from shoal_slice_node.core.limits import GONE_RUN_MIN, PAGE_MEMBERS_MIN, RECENT_KEYS_MAX, SORTED_ANEW_MAX
from shoal_slice_node.core.tables.delta_piece import ID_BYTES, OVERHEAD_BYTES, Piece
from shoal_slice_node.core.tables.gone import Gone
from shoal_slice_node.core.tables.key_order import KeyOrder


class BaseGroups(Protocol):
    """Says what a delta of groups needs below it."""

    def count(self, group: bytes) -> int: ...

    def entries(self) -> int: ...

    def has(self, group: bytes, member: bytes) -> bool: ...

    def page(self, group: bytes, after: bytes, limit: int) -> list[bytes]:
        """Returns up to `limit` members above `after`, ascending."""
        ...

    def scan(self) -> Iterator[tuple[bytes, bytes]]: ...


class _Ops:
    """Holds two ops or more on one group."""

    __slots__ = ("net", "order", "present")

    def __init__(self, first: bytes) -> None:
        came = len(first) == ID_BYTES
        self.present: dict[bytes, bool] = {first[:ID_BYTES]: came}  # member -> came (True) or went
        self.net = 1 if came else -1  # came less went
        self.order: KeyOrder | None = None  # of the members that came, if there are many

    def __len__(self) -> int:
        return len(self.present)

    def __contains__(self, member: object) -> bool:
        """Returns whether the member came."""
        return self.present.get(member, False)  # type: ignore[call-overload,no-any-return]

    def came(self, after: bytes, last: bytes | None, limit: int) -> list[bytes]:
        """Returns up to `limit` members that came in (after, last], ascending."""
        if len(self.present) <= SORTED_ANEW_MAX:
            found = sorted(member for member, came in self.present.items() if came and member > after)
        else:
            if self.order is None:
                self.order = KeyOrder([member for member, came in self.present.items() if came])
            found = list(islice(self.order.between(after + b"\0", b"", self), limit))
        return found[: limit if last is None else bisect_right(found, last, 0, min(limit, len(found)))]


_Entry: TypeAlias = bytes | _Ops


class DeltaGroups:
    """See tables.Groups."""

    def __init__(self, base: BaseGroups) -> None:
        self._base = base
        self._active: dict[bytes, _Entry] = {}
        self._frozen: dict[bytes, _Entry] = {}
        self._garbage: dict[bytes, _Entry] = {}
        # How many members came, and how many went, in the active layer; came less went in the frozen layer.
        self._came = 0
        self._went = 0
        self._frozen_net = 0
        self._undone: list[bytes] = []
        self._gone = Gone()
        """Remembers, by group and member, where a page found none."""

    def add(self, group: bytes, member: bytes) -> None:
        if self._gone:
            self._gone.came(group + member)
        active = self._active
        entry = active.get(group)
        if entry is None:
            active[group] = member
            self._came += 1
        elif type(entry) is bytes:
            if entry[:ID_BYTES] == member:  # it went in this layer: undone
                assert len(entry) > ID_BYTES, "added twice"
                del active[group]
                self._went -= 1
            else:
                active[group] = entry = _Ops(entry)
                self._note(group, entry, member, True)
        else:
            self._note(group, entry, member, True)  # type: ignore[arg-type]

    def remove(self, group: bytes, member: bytes) -> bool:
        active = self._active
        entry = active.get(group)
        if entry is None:
            active[group] = member + b"-"
            self._went += 1
            return False
        if type(entry) is bytes:
            if entry == member:  # it came in this layer: undone
                del active[group]
                self._came -= 1
                return True
            assert entry[:ID_BYTES] != member, "removed twice"
            active[group] = entry = _Ops(entry)
        return self._note(group, entry, member, False)  # type: ignore[arg-type]

    def _note(self, group: bytes, ops: _Ops, member: bytes, came: bool) -> bool:
        """Notes one more op on a group with ops. Returns True if it undid one."""
        ops.net += 1 if came else -1
        before = ops.present.pop(member, None)
        if before is None:
            ops.present[member] = came
            if ops.order is None and len(ops.present) > RECENT_KEYS_MAX:
                ops.order = KeyOrder([member for member, came in ops.present.items() if came])
            elif came and ops.order is not None:
                ops.order.note(member, ops)
            if came:
                self._came += 1
            else:
                self._went += 1
            return False
        assert before is not came, "added or removed twice"
        if came:
            self._went -= 1
        else:
            self._came -= 1
        if not ops.present:
            del self._active[group]
        return True

    def count(self, group: bytes) -> int:
        return self._base.count(group) + _net(self._frozen.get(group)) + _net(self._active.get(group))

    def entries(self) -> int:
        return self._base.entries() + self._frozen_net + self._came - self._went

    def has(self, group: bytes, member: bytes) -> bool:
        for layer in (self._active, self._frozen):
            entry = layer.get(group)
            if isinstance(entry, bytes):
                if entry[:ID_BYTES] == member:
                    return len(entry) == ID_BYTES
            elif entry is not None and (came := entry.present.get(member)) is not None:
                return came
        return self._base.has(group, member)

    def members(self, group: bytes, after: bytes = b"", limit: int = 1000) -> tuple[list[bytes], bytes]:
        active, frozen = self._active.get(group), self._frozen.get(group)
        if active is None and frozen is None:
            page = self._base.page(group, after, limit + 1)
            return page[:limit], page[limit - 1] if len(page) > limit else b""
        page_members = max(limit, PAGE_MEMBERS_MIN)
        start = self._past(group, after)
        page = self._base.page(group, start, page_members)
        last = page[-1] if len(page) == page_members else None  # What lies above it waits for the next page.
        page = _overlay(frozen, page, start, last, page_members)
        if len(page) > page_members:
            del page[page_members:]
            last = page[-1]
        found = _overlay(active, page, start, last, limit)
        if len(found) > limit:
            del found[limit:]
            last = found[-1]
        elif not found and (last is not None or len(page) >= GONE_RUN_MIN):
            self._gone.note(group + after + b"\0", group + (last or page[-1]) + b"\0")
        return found, last or b""

    def _past(self, group: bytes, after: bytes) -> bytes:
        """Returns `after`, or how far above it the group is known to have no member."""
        past = self._gone.past(group + after + b"\0")
        member = past[ID_BYTES : 2 * ID_BYTES]
        if len(past) != 2 * ID_BYTES:
            return after if len(past) < 2 * ID_BYTES else member
        return max(after, (int.from_bytes(member, "big") - 1).to_bytes(ID_BYTES, "big"))  # It came.

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        touched = iter(sorted({**self._frozen, **self._active}))
        group = next(touched, None)
        for below, member in self._base.scan():
            while group is not None and group < below:
                yield from self._pairs(group)
                group = next(touched, None)
            if group == below:
                yield from self._pairs(group)
                group = next(touched, None)
            elif below not in self._active and below not in self._frozen:
                yield below, member
        while group is not None:
            yield from self._pairs(group)
            group = next(touched, None)

    def _pairs(self, group: bytes) -> Iterator[tuple[bytes, bytes]]:
        after, is_first = b"", True
        while after or is_first:
            page, after = self.members(group, after)
            is_first = False
            for member in page:
                yield group, member

    @property
    def rows(self) -> int:
        """Returns the number of ops in the active layer."""
        return self._came + self._went

    @property
    def bytes_about(self) -> int:
        """Returns the memory of the active layer, about."""
        return self.rows * (2 * ID_BYTES + OVERHEAD_BYTES)

    def freeze(self) -> None:
        assert not self._frozen and not self._garbage, "the last frozen delta is not dropped yet"
        self._frozen, self._active = self._active, {}
        self._frozen_net = self._came - self._went
        self._came = self._went = 0

    def pieces(self, table: str, rows_max: int) -> Iterator[Piece]:
        """Yields the frozen layer in pieces of about rows_max ops."""
        ops: tuple[list[bytes], list[bytes]] = ([], [])  # went, came
        for group, entry in self._frozen.items():
            if isinstance(entry, bytes):
                ops[len(entry) == ID_BYTES].append(group + entry[:ID_BYTES])
            else:
                for member, came in entry.present.items():
                    ops[came].append(group + member)
                    if len(ops[came]) >= rows_max:
                        yield _piece(table, came, ops)
            for came in (False, True):
                if len(ops[came]) >= rows_max:
                    yield _piece(table, came, ops)
        for came in (False, True):
            if ops[came]:
                yield _piece(table, came, ops)

    def melt(self, rows_max: int) -> bool:
        """Moves up to rows_max frozen ops into the active layer, where opposite ones undo each other; False when
        nothing is left. Reads give the same before, between and afterwards."""
        frozen = self._frozen
        for _ in range(rows_max):
            if not frozen:
                return False
            group, entry = frozen.popitem()
            if isinstance(entry, bytes):
                member, came = entry[:ID_BYTES], len(entry) == ID_BYTES
            else:
                member, came = entry.present.popitem()
                entry.net -= 1 if came else -1
                if entry.present:
                    frozen[group] = entry
            self._frozen_net -= 1 if came else -1
            if not came:
                self.remove(group, member)
                continue
            went = self._went
            self.add(group, member)
            if self._went < went:
                self._undone.append(group)
        return True

    def take_undone(self) -> list[bytes]:
        """Returns the groups of which a member came in the frozen layer and went in the active one, as far as that was
        undone by `melt` since the last call: no layer says any more that it went. A group may come twice."""
        undone, self._undone = self._undone, []
        return undone

    def drop_frozen(self) -> None:
        """Drops the frozen layer, which the base now has. Call together with the base's renewal, then `free` until it
        returns False."""
        self._garbage, self._frozen = self._frozen, {}
        self._frozen_net = 0
        self._gone = Gone()  # The base may have new members now.

    def free(self, rows_max: int) -> bool:
        """Frees about rows_max ops of what was dropped; False when nothing is left."""
        garbage = self._garbage
        left = rows_max
        while garbage and left > 0:
            group, entry = garbage.popitem()
            left -= 1
            if isinstance(entry, _Ops):
                entry.order = None
                take = min(left, len(entry.present))
                for _ in range(take):
                    entry.present.popitem()
                left -= take
                if entry.present:
                    garbage[group] = entry
        return bool(garbage)


def _piece(table: str, came: bool, ops: tuple[list[bytes], list[bytes]]) -> Piece:
    piece = ("add" if came else "remove", table, ops[came].copy())
    ops[came].clear()
    return piece


def _net(entry: _Entry | None) -> int:
    if entry is None:
        return 0
    if isinstance(entry, bytes):
        return 1 if len(entry) == ID_BYTES else -1
    return entry.net


def _overlay(entry: _Entry | None, page: list[bytes], after: bytes, last: bytes | None, limit: int) -> list[bytes]:
    """Returns `page` (ascending members of the layers below) with the entry's ops in (after, last] applied. Of the
    members that came, it adds the first limit + 1 at most: more than `limit` in all means that there may be more."""
    if entry is None:
        return page
    if isinstance(entry, bytes):
        member = entry[:ID_BYTES]
        if len(entry) != ID_BYTES:
            return [below for below in page if below != member]
        return sorted((*page, member)) if after < member and (last is None or member <= last) else page
    present = entry.present
    kept = [below for below in page if below not in present]
    kept += entry.came(after, last, limit + 1)
    kept.sort()
    return kept
