"""Remembers which messages of one slice an inbox handed out and acked, to tell repeats from new ones.

A message is handed out once. It is remembered until the slice has answered its ack. An answered ack is durable: the
slice never gives such an offset again for the same binding. If the offset comes again, it is new (of another binding).
An ack may be late: the slice had taken the message back. That comes again, and is acked again (late_acks.py), unless
the leader that gave all of the key that is remembered says that it gives it for the first time: that is new, too.

Messages belong to the stream that brought them. After a lost stream the slice gives again what was not acked, and an
ack takes effect only for messages given on the stream that it is sent on. So an ack of a message of an earlier stream
waits here until the message has come again. It may never come: the slice may have taken the first ack, or given the
message to others. Until it comes, or the slice says that it is acked, the ack is in doubt (../ack_doubts.py asks). What
is acked then is forgotten, but for copies that are on their way (settled.py).

Ranges are kept, not a high mark: messages of another session that ended may come late, below what was seen, and be new.
Bounded: SEEN_RANGES_EACH to SEEN_RANGES_MAX ranges a pair, SEEN_ENTRIES_MAX pairs, of one key or many. What is
forgotten is new if it comes again. Where it is acked on a later stream, the ack is sent, and is forgotten in doubt.
Long because each step keeps all books of a message in agreement.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from shoal.core.acks import Acked, together
from shoal.core.handled_ranges import HandledRange, deliver_apart
from shoal.core.late_acks import LateAcks, acks_of
from shoal.core.offset_ranges import Ranges, both, count, joined, merged, with_range, within, without
from shoal.core.pair_ranges import Pair, PairRanges
from shoal.core.pending_acks import PendingAcks
from shoal.core.renewed import Renewed
from shoal.core.settled import Settled
from shoal.limits import (
    FORGOTTEN_HANDLES_MAX,
    SEEN_ENTRIES_MAX,
    SEEN_RANGES_ALL,
    SEEN_RANGES_EACH,
    SEEN_RANGES_MAX,
)


class Told(NamedTuple):
    """Holds what the slice tells with messages. `epoch`: its leader's (0: it is not known). `redelivered`: how often
    that leader gave them before."""

    epoch: int = 0
    redelivered: int = 0


UNTOLD = Told()


class _Key:
    """Keeps, for each handle of a key, the ranges handed out and not known to be acked. Handles with equal ranges share
    one tuple. `epoch`: in which the slice's leader gave all that is kept; 0: they were several, or it is not known."""

    __slots__ = ("epoch", "forgotten", "marks")

    def __init__(self, forgotten: int, epoch: int) -> None:
        self.marks: dict[int, Ranges] = {}
        self.epoch = epoch
        self.forgotten = forgotten
        """The number of forgotten handles (`Repeats._forgotten`) that were already removed from `marks`."""


class Repeats:
    """Tells repeats from new messages. `pending`: the unanswered acks that were sent on this stream, or wait to be."""

    def __init__(self, pending: PendingAcks, entries_max: int = SEEN_ENTRIES_MAX) -> None:
        self._pending = pending
        self._entries_max = entries_max
        self._entries = 0
        """The number of handles in all `_keys`."""
        self._keys: dict[bytes, _Key] = {}
        """The key used last is last."""
        self._acked = PairRanges()
        """Messages of an earlier stream that were acked and have not come again: a part of what was handed out."""
        self._doubt = PairRanges()
        """The part of `_acked` of which it is not known whether the slice has the ack."""
        self._doubts_forgotten = 0
        """The number of messages forgotten while in doubt, at a bound or by `lose_doubts`, since `take_forgotten`."""
        self._forgot = False
        """True once messages were forgotten at a bound. They may be acked later, on another stream than theirs."""
        self._again = PairRanges()
        """Messages that came again on this stream and were not acked: a part of what was handed out."""
        self.late = LateAcks()
        """A part of `_acked`, and not of `_doubt`."""
        self.renewed = Renewed(pending)
        """A part of what was handed out; and what was acked and is not known as handed out."""
        self.copies = Settled()
        """No part of it: what was acked and settled, and may come once more on this stream."""
        self._forgotten: list[int] = []
        """Handles that left, or whose queue's life ended, in this order; each key removes them when it is used next."""
        self._forgotten_at: dict[int, int] = {}
        """Handle -> its last place in `_forgotten`."""

    @property
    def in_doubt(self) -> bool:
        """Returns whether messages were acked and it is not known whether their acks took effect."""
        return bool(self._doubt)

    @property
    def remembers_acks(self) -> bool:
        """Returns whether messages of an earlier stream were acked and have not come again."""
        return bool(self._acked)

    def doubts(self) -> list[Acked]:
        """Returns the acks in doubt; handles with equal ranges of a key together."""
        return acks_of(self._doubt.in_parts())

    def some_doubts(self, ranges_max: int) -> list[Acked]:
        """Returns so many ranges of acks in doubt. The next call goes on behind them: all have their turn."""
        return acks_of(self._doubt.take_turns(ranges_max).items())

    def divide_doubts(self, unacked: Iterable[Acked]) -> None:
        """Has these asked for in halves from now on: the slice says that not all of their messages are acked."""
        for key, first, end, handles in unacked:
            for handle in handles:
                self._doubt.divide((key, handle), end - first)  # type: ignore[arg-type]  # a handle

    def settled(self, acks: Iterable[Acked]) -> None:
        """Records that the slice says of acks in doubt that it has them, or that their messages are gone. A message
        may be on its way all the same until the stream ends: it stays a repeat."""
        for key, ranges, handles in together(acks):
            taken = merged(ranges)
            for handle in handles:
                self._doubt.take((key, handle), taken)  # type: ignore[arg-type]  # a handle

    def forget_settled(self, acks: Iterable[Acked]) -> bool:
        """Records the same, and forgets the messages at once, but as `copies`; their `nack` is to be set then. Returns
        whether any was in doubt."""
        any_settled = False
        for key, ranges, handles in together(acks):
            taken = merged(ranges)
            groups: dict[Ranges, list[int]] = {}
            for handle in handles:
                pair: Pair = (key, handle)  # type: ignore[assignment]  # a handle
                if settled := both(self._doubt.get(pair), taken):
                    self._doubt.take(pair, settled)
                    self._acked.take(pair, settled)
                    self.copies.add(pair, settled)
                    groups.setdefault(settled, []).append(pair[1])
            for settled, same in groups.items():
                any_settled = True
                self.answered(key, settled, same)
        return any_settled

    def forget_doubts(self, handles: Iterable[int]) -> None:
        """Drops what is in doubt of handles that another session has now, or that leave: there is no way left to ask or
        to ack again. They may be attached again: what the program has of them stays a repeat."""
        self._doubt.forget(handles)
        self.late.forget(handles)
        self.renewed.forget(handles)

    def lose_doubts(self, handles: Collection[int]) -> None:
        """Takes acks of these handles that are in doubt, or have no answer, for forgotten: their life is not known."""
        self._doubts_forgotten += self._pending.messages(set(handles))
        for handle in handles:
            self._doubts_forgotten += sum(map(count, self._doubt.of(handle)))
        self.forget_doubts(handles)

    def take_forgotten(self) -> int:
        """Returns how many messages were forgotten while their acks were in doubt, and begins anew at 0."""
        forgotten, self._doubts_forgotten = self._doubts_forgotten, 0
        return forgotten

    def acked_late(self, acks: Iterable[Acked]) -> None:
        """Records acks of this stream that are answered and had no effect for some message: the slice had taken it
        back. What is still to come here again is kept as acked."""
        for key, ranges, handles in together(acks):
            taken = merged(ranges)
            for handle in handles:
                self._late_of((key, handle), taken)  # type: ignore[arg-type]  # a handle

    def _late_of(self, pair: Pair, taken: Ranges) -> None:
        renewed = self.renewed.answered(pair, taken)
        had = without(both(within(self._marks(pair[0]).get(pair[1], ()), taken[0][0], taken[-1][1]), taken), renewed)
        if had:  # Of what has come again since, the second ack is under way.
            had = without(had, self._pending.within(*pair, had[0][0], had[-1][1]))
        self._again.take(pair, had)
        self._acked.add(pair, had)
        self.late.add(pair, had)
        self._bound_acked(pair)

    def late_settled(self, acks: Iterable[Acked]) -> None:
        """Records that the slice says of late acks that their messages are acked, or gone."""
        for key, ranges, handles in together(acks):
            taken = merged(ranges)
            for handle in handles:
                late = both(self.late.get((key, handle)), taken)  # type: ignore[arg-type]  # a handle
                self.answered(key, late, (handle,))  # type: ignore[arg-type]  # a handle

    def deliver(
        self, key: bytes, first: int, end: int, handles: Sequence[int], told: Told = UNTOLD
    ) -> tuple[list[HandledRange], list[HandledRange]]:
        """Records messages that came. Returns the new ones, usually all, and those acked before, to be acked again."""
        marks = self._used(key, told.epoch)
        size = len(marks)
        before = list(map(marks.get, handles))
        if before.count(before[0]) == len(before):  # The usual case: one step for all handles.
            ranges = before[0] or ()
            after, new = with_range(ranges, first, end)
            marks.update(dict.fromkeys(handles, after))
            whole, longest = new == ((first, end),), len(after)
            news = [(low, high, handles) for low, high in new]
        else:
            whole, news, longest = deliver_apart(marks, first, end, handles)
        self._entries += len(marks) - size
        for low, high, same in news if self.renewed else ():
            self.renewed.came(key, low, high, same)
        anew: dict[int, Ranges] = {}
        if not whole and told.redelivered == 0 and told.epoch:
            anew = self._bound_again(key, first, end, handles, before)
            again_new = [(low, high, (handle,)) for handle, ranges in anew.items() for low, high in ranges]
            news = sorted([*news, *again_new], key=itemgetter(0))
        again = [] if whole else self._come_again(key, first, end, handles, before, anew)
        if longest > 1 and longest > self._ranges_max:
            self._forget_lowest(key, marks, handles)
        if self._entries > self._entries_max:
            self._forget_oldest()
        return news, again

    def acked(self, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        """Records acks of messages of this stream, before they are sent. Notes those of messages that are not known as
        handed out, as they were nacked or acked before: they may come anew before these acks are answered."""
        self.renewed.acked(key, ((first, end),), handles)
        before = list(map(self._marks(key).get, handles))
        if before.count(before[0]) == len(before) and within(before[0] or (), first, end) == ((first, end),):
            return  # The usual case: one step for all handles.
        unknown: dict[int, Ranges] = {}  # By object: many handles share what they have.
        for handle, known in zip(handles, before, strict=True):
            found = unknown.get(id(known))
            if found is None:
                found = unknown[id(known)] = without(((first, end),), known or ())
            if found:
                self.renewed.add_gone((key, handle), found)

    def ack(
        self, key: bytes, first: int, end: int, handles: Sequence[int], unconfirmed: Container[int] = ()
    ) -> list[HandledRange]:
        """Records acks of messages of an earlier stream. Returns those that came again on this one: their acks take
        effect. What is acked of `unconfirmed` handles, which are being attached anew, is in doubt instead. What is not
        remembered may have been forgotten, and have come again: its ack is returned, too. It may have come too early,
        so it counts as forgotten in doubt.
        """
        return self._ack(key, ((first, end),), handles, unconfirmed)

    def _ack(
        self, key: bytes, ranges: Ranges, handles: Sequence[int], unconfirmed: Container[int] = ()
    ) -> list[HandledRange]:
        sent: list[HandledRange] = []
        for handle in handles:
            pair = (key, handle)
            handed = within(self._marks(key).get(handle, ()), ranges[0][0], ranges[-1][1])
            handed = both(handed, ranges)
            again = both(within(self._again.get(pair), ranges[0][0], ranges[-1][1]), handed)
            self._again.take(pair, again)
            now = () if handle in unconfirmed else again
            sent += [(low, high, (handle,)) for low, high in now]
            waiting = without(handed, now)
            self._acked.add(pair, waiting)
            self._doubt.add(pair, without(waiting, self.late.get(pair)))
            if self._forgot:
                unknown = without(ranges, handed)
                self._doubts_forgotten += count(unknown)
                sent += [(low, high, (handle,)) for low, high in unknown if handle not in unconfirmed]
            self._bound_acked(pair)
        return sent

    def acks_answered(self, acks: Iterable[Acked]) -> None:
        """Records that the slice has these acks of messages that it gave on this stream."""
        apart_of: dict[Pair, list[tuple[int, int]]] = {}  # All of a handle at once: two may be of one message.
        for key, ranges, handles in together(acks):
            taken = merged(ranges)
            apart = self.renewed.among(key, handles)  # type: ignore[arg-type]  # handles
            for handle in apart:
                apart_of.setdefault((key, handle), []).extend(taken)
            if rest := [handle for handle in handles if handle not in apart] if apart else handles:
                self.answered(key, taken, rest)  # type: ignore[arg-type]  # handles
        for (key, handle), found in apart_of.items():
            taken = merged(found)
            self.answered(key, without(taken, self.renewed.answered((key, handle), taken)), (handle,))

    def answered(self, key: bytes, ranges: Ranges, handles: Sequence[int]) -> None:
        """Records that the program has done these messages, or does not have them: they do not come again, or are
        new."""
        if (found := self._keys.get(key)) is None:
            return
        marks = self._marks(key)
        size = len(marks)
        before = list(map(marks.get, handles))
        left = without(before[0], ranges) if before[0] and before.count(before[0]) == len(before) else None
        if left:
            marks.update(dict.fromkeys(handles, left))
        elif left == () and len(handles) == size:
            marks.clear()
        else:
            self._answered_apart(marks, ranges, handles)
        self._entries += len(marks) - size
        if not marks and self._keys.get(key) is found:
            del self._keys[key]
        if self._again:
            for handle in handles:
                self._again.take((key, handle), ranges)
        if self.late:
            for handle in handles:
                self._acked.take((key, handle), both(self.late.get((key, handle)), ranges))
                self.late.take((key, handle), ranges)
        self.renewed.given_back(key, ranges, handles)

    def nack(self, key: bytes, ranges: Ranges, handle: int, now: bool) -> Ranges:
        """Records a nack of messages that were not acked: they are new when they come again. `now`: they came on this
        stream. Returns those that are to be nacked on it; those of an earlier stream come again anyway, unless they
        have come already."""
        left = without(ranges, self._acked.get((key, handle)))
        nacked = left if now else both(self._again.get((key, handle)), left)
        self.answered(key, left, (handle,))
        return nacked

    def stream_ended(self, unanswered: Iterable[Acked]) -> None:
        """Records a lost stream. `unanswered`: acks given for its messages; the slice may have them or not."""
        self._again = PairRanges()
        self.copies.clear()
        self._forget_all_but_doubts()
        renewed = self.renewed.stream_ended()
        for key, ranges, handles in together(unanswered):
            taken = merged(ranges)
            if not renewed:
                self._ack(key, taken, handles)  # type: ignore[arg-type]  # handles
                continue
            for handle in handles:
                if now := without(taken, renewed.get((key, handle))):  # type: ignore[arg-type]  # a handle
                    self._ack(key, now, (handle,))  # type: ignore[arg-type]  # a handle

    def forget(self, handles: Iterable[int]) -> None:
        """Forgets handles that left the inbox, and those whose queue's life ended: messages that come for them from now
        on are of another life, and new."""
        gone = set(handles)
        for handle in gone:
            self._forgotten_at[handle] = len(self._forgotten)
            self._forgotten.append(handle)
        for book in (self._acked, self._doubt, self._again):
            book.forget(gone)
        self.late.forget(gone)
        self.renewed.forget(gone)
        self.copies.forget(gone)
        if len(self._forgotten) > FORGOTTEN_HANDLES_MAX:
            for key in list(self._keys):
                self._marks(key)
            for found in self._keys.values():
                found.forgotten = 0
            self._forgotten.clear()
            self._forgotten_at.clear()

    def unacked(self, handle: int) -> int:
        """Returns how many messages were handed out for a handle and not acked. O(keys and pending acks)."""
        handed = sum(count(self._marks(key).get(handle, ())) for key in list(self._keys))
        acked = sum(map(count, self._acked.of(handle))) + self._pending.messages({handle})
        return handed - acked + self.renewed.messages(handle)

    def full_key(self, handle: int, most: int) -> tuple[bytes, int, int] | None:
        """Returns a key of which a handle has at least `most` unacked, counting messages and, where these are in
        several, their stretches: the slice keeps one of acked messages behind each, as far as known here. With the
        numbers of both; stretches are 0 where they do not count. None: there is no such key. O(keys, and ranges of
        those that may be)."""
        for key in list(self._keys):
            handed = self._marks(key).get(handle, ())
            if count(handed) + len(handed) < most:
                continue  # No acks make it more.
            left = self.unacked_within(key, handle, handed[0][0], handed[-1][1])
            messages, stretches = count(left), len(left) if len(left) > 1 else 0
            if messages + stretches >= most:
                return key, messages, stretches
        return None

    def unacked_within(self, key: bytes, handle: int, first: int, end: int) -> Ranges:
        """Returns the ranges of first <= offset < end that were handed out for a handle and not acked."""
        left = within(self._marks(key).get(handle, ()), first, end)
        left = without(left, within(self._acked.get((key, handle)), first, end))
        return without(left, self.renewed.acks_within(key, handle, first, end))

    def unanswered(self, handles: Container[int]) -> Iterator[int]:
        """Yields numbers of messages, each above 0, that were handed out for these handles, of which the application
        gave no ack, or its ack is not answered yet. Their sum is the number of all. O(what is remembered)."""
        for key in list(self._keys):
            for handle, ranges in self._marks(key).items():
                left = count(without(ranges, self._acked.get((key, handle)))) if handle in handles else 0
                if left:
                    yield left

    def known(self, key: bytes, handle: int) -> Ranges:
        """Returns the ranges of a key that were handed out for a handle, as far as remembered."""
        return self._marks(key).get(handle, ())

    @property
    def _ranges_max(self) -> int:
        """Returns how many ranges of one pair are remembered."""
        return min(SEEN_RANGES_MAX, max(SEEN_RANGES_EACH, SEEN_RANGES_ALL // max(1, self._entries)))

    def _used(self, key: bytes, epoch: int) -> dict[int, Ranges]:
        found = self._keys.pop(key, None)
        if found is None:
            found = _Key(len(self._forgotten), epoch)
        elif found.epoch != epoch:
            found.epoch = 0
        self._keys[key] = found
        if found.forgotten != len(self._forgotten):
            self._leave_out(found)
        return found.marks

    def _marks(self, key: bytes) -> dict[int, Ranges]:
        found = self._keys.get(key)
        if found is None:
            return {}
        if found.forgotten != len(self._forgotten):
            self._leave_out(found)
            if not found.marks:
                del self._keys[key]
        return found.marks

    def _leave_out(self, found: _Key) -> None:
        """Removes the handles that were forgotten since. O(those, or the key's, whichever are fewer)."""
        since, found.forgotten = found.forgotten, len(self._forgotten)
        marks, places = found.marks, self._forgotten_at
        if found.forgotten - since < len(marks):
            gone: Iterable[int] = self._forgotten[since:]
        elif places.keys().isdisjoint(marks.keys()):
            return
        else:
            gone = [handle for handle in marks if places.get(handle, -1) >= since]
        size = len(marks)
        for handle in gone:
            marks.pop(handle, None)
        self._entries += len(marks) - size

    def _bound_again(
        self, key: bytes, first: int, end: int, handles: Sequence[int], before: Sequence[Ranges | None]
    ) -> dict[int, Ranges]:
        """Takes in that a leader gives these for the first time. What it gave before is new then: the queue was bound
        again from earlier on. It gave all that is acked on its stream, and, if it gave all that is remembered of the
        key, what was acked for good or late, too. Returns those that are new. (An ack that reaches the slice only after
        it gave them acks these.)"""
        gave_all = self._keys[key].epoch != 0
        anew: dict[int, Ranges] = {}
        for handle, ranges in zip(handles, before, strict=True):
            pair = (key, handle)
            acked = within(self._acked.get(pair), first, end) if gave_all else ()
            acked = without(acked, self._doubt.get(pair))
            self._acked.take(pair, acked)
            self.late.take(pair, acked)
            under_way = both(self.renewed.acks_within(key, handle, first, end), within(ranges or (), first, end))
            self.renewed.add(pair, under_way)
            if found := joined(acked, under_way):
                anew[handle] = found
        return anew

    def _come_again(
        self,
        key: bytes,
        first: int,
        end: int,
        handles: Sequence[int],
        before: Sequence[Ranges | None],
        anew: Mapping[int, Ranges],
    ) -> list[HandledRange]:
        """Records messages that handles had `before`. Returns those that were acked, but for what is `anew`; the others
        may be acked from now on."""
        acked: list[HandledRange] = []
        most = self._ranges_max
        for handle, ranges in zip(handles, before, strict=True):
            known = within(ranges or (), first, end)
            if not known:
                continue
            pair = (key, handle)
            done = within(self._acked.get(pair), first, end)
            for book in (self._acked, self._doubt):
                book.take(pair, done)
            self.late.take(pair, done)
            under_way = both(self.renewed.acks_within(key, handle, first, end), known)
            done = without(joined(done, under_way), anew.get(handle, ()))
            self.renewed.add_gone(pair, both(under_way, done))  # Once acked twice, it may come between the answers.
            acked += [(low, high, (handle,)) for low, high in done]
            came = joined(self._again.get(pair), without(known, done))
            # Too many ranges: the lowest become one. An ack sent too early has no effect, and its message is handed out
            # once more; an ack never sent would leave the message with this session for good.
            spare = max(0, len(came) - most)
            self._again.set(pair, ((came[0][0], came[spare][1]), *came[spare + 1 :]) if spare else came)
        return acked

    def _answered_apart(self, marks: dict[int, Ranges], ranges: Ranges, handles: Sequence[int]) -> None:
        for handle in handles:
            before = marks.get(handle)
            if before is not None:
                left = without(before, ranges)
                if left:
                    marks[handle] = left
                else:
                    del marks[handle]

    def _bound_acked(self, pair: Pair) -> None:
        """Forgets the lowest of too many acked ranges, also as handed out: they are new if they come again."""
        acked = self._acked.get(pair)
        most = self._ranges_max
        if len(acked) > most:
            marks = self._marks(pair[0])
            size = len(marks)
            self._answered_apart(marks, acked[:-most], (pair[1],))
            self._entries += len(marks) - size
            self._acked.set(pair, acked[-most:])
            self._doubt_no_more(pair, acked[:-most])

    def _forget_lowest(self, key: bytes, marks: dict[int, Ranges], handles: Sequence[int]) -> None:
        self._forgot, most = True, self._ranges_max
        for handle in handles:
            left = marks[handle] = marks[handle][-most:]
            for book in (self._acked, self._again):
                book.take((key, handle), ((0, left[0][0]),))
            self._doubt_no_more((key, handle), ((0, left[0][0]),))

    def _forget_oldest(self) -> None:
        """Forgets from the key that was not used for longest. Of a key with more handles than that takes, it forgets
        those that the key has had for longest; an eighth of all at once, so that they are not looked for each time."""
        self._forgot = True
        while self._entries > self._entries_max:
            key = next(iter(self._keys))
            marks = self._marks(key)
            spare = self._entries - self._entries_max
            gone = list(islice(marks, max(spare, self._entries_max // 8) if spare > 0 else 0))
            for handle in gone:
                del marks[handle]
            self._entries -= len(gone)
            if not marks:
                self._keys.pop(key, None)
            for handle in gone if self._acked or self._again else ():
                self._acked.pop((key, handle))
                self._again.pop((key, handle))
                self._doubts_forgotten += count(self._doubt.pop((key, handle)))
                self.late.lose((key, handle), self.late.get((key, handle)))

    def _doubt_no_more(self, pair: Pair, forgotten: Ranges) -> None:
        """Takes forgotten messages out of what is in doubt: they are handed out if they come again."""
        for low, high in forgotten:
            self._doubts_forgotten += count(within(self._doubt.get(pair), low, high))
        self._doubt.take(pair, forgotten)
        self.late.lose(pair, forgotten)

    def _forget_all_but_doubts(self) -> None:
        """Forgets the acked messages that are not in doubt: what was on its way ended with the stream, and the slice
        does not give them again."""
        kept = self.late.copy()
        for pair, doubt in self._doubt.items():
            kept.add(pair, doubt)
        for pair, acked in list(self._acked.items()):
            self.answered(pair[0], without(acked, kept.get(pair)), (pair[1],))
        self._acked = kept
