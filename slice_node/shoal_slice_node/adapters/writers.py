"""Keeps the sessions' streams: how each is woken when there is something to send, and since when each is writing.

A transport takes a response only when its client reads. A session that is stalled while writing holds memory, and ends
first when memory is short.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import nlargest
from itertools import chain, islice, takewhile
from operator import attrgetter

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.limits import CHUNK_BYTES_MAX
from shoal_runtime.connections import Address
from shoal_runtime.hang_up import address_of
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import (
    ANSWERS_HELD_FLOOR_BYTES,
    ANSWERS_SMALL_PARTS,
    STALLED_DELIVERIES_MS,
    STALLED_SESSION_MS,
    STALLED_SMALL_MS,
    STALLED_SMALL_PER_LOOK,
)
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares, Share
from shoal_slice_node.core.limits import NEWCOMERS_PARTS


class Writers:
    """Keeps the streams of the sessions that clients have open, and ends silent or stalled sessions."""

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self._wakers: dict[int, Callable[[], None]] = {}
        self._enders: dict[int, Callable[[], None]] = {}
        self._connections: dict[int, str] = {}
        self._by_address: dict[Address, dict[int, Session]] = {}
        """Maps the address of a client's connection to its sessions, by number. None is empty."""
        self._heard: OrderedDict[Session, int] = OrderedDict()
        """Maps a session to the time (steady_ms) of its last whole frame; the oldest first."""
        self._writing: dict[Session, int] = {}
        """Maps a session that is writing to the time (steady_ms) when it began; the oldest first."""
        self._answers_bytes: dict[Session, Callable[[], int]] = {}
        """Maps the same sessions to functions that return the bytes of their answers, being written or waiting."""
        self._brief_bytes: dict[Session, Callable[[], int]] = {}
        """The same of what these answers have in the room for brief ones."""

    def __len__(self) -> int:
        """Returns the number of open streams."""
        return len(self._wakers)

    def open(self, session: Session, connection: str, wake: Callable[[], None], end: Callable[[], None]) -> None:
        """Adds a session's stream. `connection`: the client's, which other sessions may share. `wake` is called when
        there is something to send. `end` is called when the session has an `ended_by`."""
        self.sessions[session.number] = session
        self._connections[session.number] = connection
        self._by_address.setdefault(address_of(connection), {})[session.number] = session
        self.heard(session)
        self._wakers[session.number] = wake
        self._enders[session.number] = end

    def close(self, session: Session) -> None:
        address = address_of(self._connections[session.number])
        for known in (self.sessions, self._connections, self._wakers, self._enders, self._by_address[address]):
            del known[session.number]
        if not self._by_address[address]:
            del self._by_address[address]
        del self._heard[session]
        self.ended(session)

    def wake(self, dirty: dict[int, Session]) -> None:
        """Wakes the streams of these sessions, and empties `dirty`."""
        for number, session in dirty.items():
            waker = self._wakers.get(number)
            if waker is not None:
                waker()
                if session.ended_by is not None:
                    self._enders[number]()
        dirty.clear()

    def heard(self, session: Session) -> None:
        """Records that a whole frame of the session came, or that it opened."""
        self._heard[session] = steady_ms()
        self._heard.move_to_end(session)

    def end_silent(self, count: int, error: ShoalError, for_ms: int, consumers: bool) -> int:
        """Ends up to `count` sessions that sent no whole frame for `for_ms`. Those that opened last end first, since
        sessions that were there before the trouble did not cause it. Returns how many it ended. `consumers`: ends also
        sessions that have a queue attached."""
        until_ms = steady_ms() - for_ms
        silent = takewhile(lambda one: self._heard[one] <= until_ms, self._heard)
        may_end = (one for one in silent if one.ended_by is None and (consumers or not one.attachments))
        return self._end(nlargest(count, may_end, key=attrgetter("number")), error)

    def end_silent_at(self, addresses: Iterable[Address], count: int, error: ShoalError, for_ms: int) -> int:
        """Ends up to `count` sessions of these connections that sent no whole frame for `for_ms`. Returns how many it
        ended."""
        until_ms = steady_ms() - for_ms
        sessions = chain.from_iterable(self._by_address.get(address, {}).values() for address in addresses)
        may_end = (one for one in sessions if one.ended_by is None and self._heard[one] <= until_ms)
        return self._end(list(islice(may_end, count)), error)

    def _end(self, sessions: Sequence[Session], error: ShoalError) -> int:
        for session in sessions:
            session.end_with(error)
            self._enders[session.number]()
        return len(sessions)

    def began(self, session: Session, answers_bytes: Callable[[], int], brief_bytes: Callable[[], int] = int) -> None:
        """Records that the session begins to write a response. `answers_bytes` returns the bytes of its answers that
        are not taken. `brief_bytes`: see Answers."""
        self._writing[session] = steady_ms()
        self._answers_bytes[session] = answers_bytes
        self._brief_bytes[session] = brief_bytes

    def ended(self, session: Session) -> None:
        """Records that the transport has taken the response."""
        self._writing.pop(session, None)
        self._answers_bytes.pop(session, None)
        self._brief_bytes.pop(session, None)

    def end_stalled_deliveries(self, shares: DispatchShares) -> list[Session]:
        """Ends sessions until the share of deliveries will not be full any more: those that were stalled for
        STALLED_SESSION_MS. Where others wait for room it ends those that were for STALLED_DELIVERIES_MS, until these
        have some, or half of the share is free; but those of connections that hold less than an equal part only after
        STALLED_SESSION_MS, too. Those of the connection that holds most so end first. Returns them."""
        if not shares.line.is_nearly_full:
            return []
        share, waiting = shares.deliveries, shares.line.waiting
        needed_bytes = 1
        if waiting:
            kept_bytes = share.limit_bytes // NEWCOMERS_PARTS
            needed_bytes = min(kept_bytes + waiting * CHUNK_BYTES_MAX, share.limit_bytes // 2)
        lacking_bytes = needed_bytes - share.free_bytes - shares.leaving_bytes
        if lacking_bytes <= 0:
            return []
        for_ms = STALLED_DELIVERIES_MS if waiting else STALLED_SESSION_MS
        until_ms, stalled_ms = steady_ms() - for_ms, steady_ms() - STALLED_SESSION_MS
        holds: dict[Session, int] = {}
        by_connection: Counter[str] = Counter()
        for session, since_ms in self._writing.items():
            if session.ended_by is not None:
                lacking_bytes -= session.under_way_bytes
            elif since_ms <= until_ms and session.under_way_bytes:
                holds[session] = session.under_way_bytes
                by_connection[self._connections[session.number]] += session.under_way_bytes

        def order(session: Session) -> tuple[int, int]:
            return by_connection[self._connections[session.number]], holds[session]

        little_bytes = self._equal_part_bytes(share.limit_bytes) if waiting else 0
        ended: list[Session] = []
        for session in sorted(holds, key=order, reverse=True):
            if lacking_bytes <= 0:
                break
            if self._writing[session] > stalled_ms and order(session)[0] < little_bytes:
                continue
            lacking_bytes -= holds[session]
            self._end_stalled(session, share, for_ms)
            ended.append(session)
        return ended

    def _equal_part_bytes(self, limit_bytes: int) -> int:
        """Returns what each connection may hold of what is held, up to the limit, where those that hold less leave the
        rest to others."""
        held: Counter[str] = Counter()
        for session in self.sessions.values():
            if session.under_way_bytes:
                held[self._connections[session.number]] += session.under_way_bytes
        left_bytes = min(limit_bytes, held.total())
        for number, held_bytes in enumerate(sorted(held.values())):
            part_bytes = left_bytes // (len(held) - number)
            if held_bytes >= part_bytes:
                return part_bytes
            left_bytes -= held_bytes
        return 0

    def end_stalled(self, share: Share, needed_bytes: int, for_ms: int = STALLED_SESSION_MS) -> list[Session]:
        """Ends sessions until `needed_bytes` of the answers' share will be free: those that were stalled for `for_ms`,
        the one that holds most of the share first. Returns them."""
        lacking_bytes = needed_bytes - share.free_bytes
        if lacking_bytes <= 0:
            return []
        now_ms = steady_ms()
        stalled = [session for session, since_ms in self._writing.items() if now_ms - since_ms >= for_ms]
        holds = {session: self._answers_bytes[session]() for session in stalled if session.ended_by is None}
        ended: list[Session] = []
        for session in sorted(holds, key=lambda one: holds[one], reverse=True):
            if lacking_bytes <= 0 or holds[session] < ANSWERS_HELD_FLOOR_BYTES:  # Others do not wait because of these.
                break
            lacking_bytes -= holds[session]
            self._end_stalled(session, share, for_ms)
            ended.append(session)
        return ended

    def end_stalled_small(self, share: Share, needed_bytes: int) -> list[Session]:
        """Ends sessions that each hold few bytes of answers, where `needed_bytes` of the answers' share are not free,
        and will not be free when the sessions that hold much have ended. Returns those that it ended.

        It ends only sessions that were stalled for STALLED_SMALL_MS, and only until such sessions together hold no more
        than 1/ANSWERS_SMALL_PARTS of the share. Those of the connection that holds most end first. So a session that
        pauses with a few bytes is left alone, whatever others hold."""
        lacking_bytes = needed_bytes - share.free_bytes
        if lacking_bytes <= 0:
            return []
        until_ms = steady_ms() - STALLED_SMALL_MS
        holds: Counter[Session] = Counter()
        by_connection: Counter[Hashable] = Counter()
        for session, since_ms in self._writing.items():
            held_bytes = self._answers_bytes[session]()
            if session.ended_by is not None or held_bytes >= ANSWERS_HELD_FLOOR_BYTES:
                lacking_bytes -= held_bytes  # These bytes will be free soon.
            elif since_ms <= until_ms:
                holds[session] = held_bytes
                by_connection[self._connections[session.number]] += held_bytes
        too_much_bytes = holds.total() - share.limit_bytes // ANSWERS_SMALL_PARTS
        if min(lacking_bytes, too_much_bytes) <= 0:
            return []

        def order(session: Session) -> tuple[int, int]:
            return by_connection[self._connections[session.number]], holds[session]

        ended: list[Session] = []
        for session in nlargest(STALLED_SMALL_PER_LOOK, holds, key=order):
            if min(lacking_bytes, too_much_bytes) <= 0:
                break
            lacking_bytes -= holds[session]
            too_much_bytes -= holds[session]
            self._end_stalled(session, share, STALLED_SMALL_MS)
            ended.append(session)
        return ended

    def end_stalled_brief(self, share: Share, needed_bytes: int) -> list[Session]:
        """Ends sessions that were stalled for STALLED_SMALL_MS and have something in the room for brief answers, until
        `needed_bytes` of it will be free. Those of the connection that has most there end first. Returns them."""
        lacking_bytes = needed_bytes - share.free_bytes
        if lacking_bytes <= 0:
            return []
        until_ms = steady_ms() - STALLED_SMALL_MS
        holds: Counter[Session] = Counter()
        by_connection: Counter[Hashable] = Counter()
        for session, since_ms in self._writing.items():
            if session.ended_by is not None:
                lacking_bytes -= self._brief_bytes[session]()  # These bytes will be free soon.
            elif since_ms <= until_ms and (held_bytes := self._brief_bytes[session]()):
                holds[session] = held_bytes
                by_connection[self._connections[session.number]] += held_bytes
        ended: list[Session] = []
        for session in sorted(holds, key=lambda one: by_connection[self._connections[one.number]], reverse=True):
            if lacking_bytes <= 0:
                break
            lacking_bytes -= holds[session]
            self._end_stalled(session, share, STALLED_SMALL_MS)
            ended.append(session)
        return ended

    def _end_stalled(self, session: Session, share: Share, for_ms: int) -> None:
        error = ResourceExhausted(
            f"this client has read nothing for {for_ms / 1000:g} s while {share.name} fill their share"
            f" of memory, {share.limit_bytes} bytes: its session ends",
            subject=share.name,
            limit=share.limit_bytes,
            value=share.used_bytes,
        )
        session.end_with(error)
        self._enders[session.number]()
