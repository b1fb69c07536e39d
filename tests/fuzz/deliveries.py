"""Models how often messages were delivered to queues with a bound for that, and what becomes of them at the bound: they
are done, and one copy of each is at the dead-letter key, here or by a letter to the slice that owns it.

Belongs here: counts, and what RETRY records do. Not here: who holds a message (given.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_slice_node.core.apply.records import Fate, Reason, Retry
from shoal_slice_node.core.dispatch.letters import Letter

if TYPE_CHECKING:
    from tests.fuzz.owed import Life, Owed

HOPS_MAX = 2
REASONS = {1: b"nack", 2: b"timeout", 3: b"left"}


class Slot(NamedTuple):
    """Names a message that one life of a queue has to get."""

    life: int
    key: bytes
    offset: int


class Deliveries:
    """`counts`: how often a message came back, as records say. `back`: what came back and is in no record, with the
    number of the reason. `unsure`: messages that were done and are promised again: their counts may be gone."""

    def __init__(self) -> None:
        self.counts: dict[Slot, int] = {}
        self.back: dict[Slot, int] = {}
        self.unsure: set[Slot] = set()
        self.headers: dict[tuple[bytes, int], Mapping[str, bytes]] = {}
        """Key and offset of each copy, with its headers."""
        self._bounds: dict[int, int] = {}
        self._reasons: dict[Slot, int] = {}
        self._of_old_leader: set[Slot] = set()
        """Those whose reasons the present leader does not know if no record names them: it says that they left."""
        self._letters: dict[bytes, Slot] = {}
        self._sent: set[Slot] = set()
        self._sent_by_leader: set[Slot] = set()
        """Those of the present leader: another knows of none, and may own the key by then, so that it copies here."""

    def begins(self, life: Life) -> None:
        """Notes a new life of a queue."""
        self._bounds[life.number] = life.options.max_deliveries

    def bound(self, life: int) -> int:
        return self._bounds.get(life, 0)

    def came_back(self, life: int, key: bytes, offset: int, reason: int) -> None:
        """Notes that a consumer had a message, and has it no more."""
        if self.bound(life):
            slot = Slot(life, key, offset)
            self.back[slot] = self._reasons[slot] = reason
            self._of_old_leader.discard(slot)

    def settled(self, life: int, key: bytes, offsets: set[int]) -> None:
        """Notes that messages are acked, or no longer owed."""
        for offset in offsets:
            self.back.pop(Slot(life, key, offset), None)

    def promised_again(self, life: Life, key: bytes, offset: int) -> None:
        """Notes that a message was done, or may be, and is owed again."""
        if self.bound(life.number):
            self.unsure.add(Slot(life.number, key, offset))

    def check_given(self, life: Life, key: bytes, offset: int) -> None:
        """Checks that a message may be given."""
        slot, most = Slot(life.number, key, offset), self.bound(life.number)
        if most and slot not in self.unsure:
            assert slot not in self.back, f"{slot} came back, and is given again before a record has its count"
            assert self.counts.get(slot, 0) < most, f"{slot} is given once more than {most} times"

    def check_times(self, life: int, key: bytes, offset: int, times: int) -> None:
        """Checks how often a delivery says that it was delivered before."""
        slot = Slot(life, key, offset)
        if self.bound(life) and slot not in self.unsure:
            counted = self.counts.get(slot, 0)
            assert times == counted, f"{slot} is delivered as one that came back {times} times, not {counted}"

    def crashed(self) -> None:
        """Forgets what is in no record."""
        self.back.clear()
        self._sent_by_leader.clear()
        self._of_old_leader.update(self._reasons)

    # Records.

    def retried(
        self, owed: Owed, retries: Sequence[Retry], named: Sequence[tuple[Life, bytes]], left: set[Slot]
    ) -> None:
        """Notes a RETRY record. `named`: the life and key of each retry. `left`: all that these lives have still to
        get after it. Copies are to be told to `owed` by the caller: `copies` returns them."""
        self._copies: list[tuple[Slot, bytes, Mapping[str, bytes]]] = []
        for retry, (life, key) in zip(retries, named, strict=True):
            todo = life.todo.get(key, {})
            for offset in [offset for offset in sorted(todo) if retry.first <= offset < retry.to]:
                slot = Slot(life.number, key, offset)
                if slot in left:
                    self._counted(slot, retry)
                else:
                    self._died(owed, life, slot, retry)

    def _counted(self, slot: Slot, retry: Retry) -> None:
        if slot in self.back:
            del self.back[slot]
            if slot not in self.unsure:
                assert retry.times == self.counts.get(slot, 0) + 1, f"{slot}: a record counts {retry.times}"
            self.counts[slot] = retry.times

    def _died(self, owed: Owed, life: Life, slot: Slot, retry: Retry) -> None:
        times = self.counts.get(slot, 0) + (slot in self.back)
        assert retry.fate != Fate.AGAIN, f"{slot} is to be given again, and is done"
        if slot not in self.unsure:
            assert times == retry.times == self.bound(slot.life), f"{slot} is done after {times} deliveries"
        if retry.fate == Fate.SENT:
            assert slot in self._sent, f"{slot}: its copy is not at another slice"
        else:
            assert slot not in self._sent_by_leader, f"{slot}: its copy is at another slice"
        dead_letter = life.options.dead_letter
        assert isinstance(dead_letter, bytes)
        if slot in self._of_old_leader and retry.reason == self._reasons[slot]:
            self._of_old_leader.discard(slot)  # The old leader's record.
        headers = self._headers(life, slot, retry.times)
        if retry.fate == Fate.DEAD and headers is not None:
            assert owed.owns(dead_letter), f"{slot} is done, and {dead_letter!r} is another slice's"
            self._copies.append((slot, dead_letter, headers))
        self.back.pop(slot, None)
        del life.todo[slot.key][slot.offset]
        life.acked.get(slot.key, set()).discard(slot.offset)

    def _reason(self, slot: Slot) -> bytes:
        if slot not in self._reasons:
            return b""
        return REASONS[Reason.LEFT if slot in self._of_old_leader else self._reasons[slot]]

    def _headers(self, life: Life, slot: Slot, times: int) -> Mapping[str, bytes] | None:
        """Returns the headers of a message's copy; None if there is to be none."""
        own = self.headers.get((slot.key, slot.offset), {})
        hops = int(own.get("shoal-hops", b"0")) + 1
        origin = own.get("shoal-origin-key", slot.key), own.get("shoal-origin-offset", b"%d" % slot.offset)
        dead_letter = life.options.dead_letter
        if not dead_letter or dead_letter in (slot.key, origin[0]) or hops > HOPS_MAX:
            return None
        return {
            "shoal-reason": self._reason(slot),
            "shoal-key": slot.key,
            "shoal-offset": b"%d" % slot.offset,
            "shoal-queue": life.name,
            "shoal-deliveries": b"%d" % times,
            "shoal-hops": b"%d" % hops,
            "shoal-origin-key": origin[0],
            "shoal-origin-offset": origin[1],
        }

    def publish_copies(self, owed: Owed, published: Sequence[int | None]) -> None:
        """Notes the copies that the record published. `published`: how many queues each was routed to, in order."""
        assert len(published) == len(self._copies), f"{len(published)} copies were made, not {len(self._copies)}"
        kept = [
            key for (_, key, _), queues in zip(self._copies, published, strict=True) if owed.keeps(key, queues or 0)
        ]
        heads = {key: owed.look.key(key).head - kept.count(key) for key in kept}
        for (slot, key, headers), queues in zip(self._copies, published, strict=True):
            first = heads[key] if owed.keeps(key, queues or 0) else 0
            if first:
                heads[key] += 1
                self.headers[key, first] = headers
            owed.published(key, encode_chunk([owed.keys[slot.key].log[slot.offset][0]]), first, queues or 0)

    # Letters, and what copies say.

    def taken(self, owed: Owed, letter: Letter) -> Slot:
        """Checks a letter that the courier got. Returns which message it is a copy of."""
        chunk = parse_chunk(letter.chunk)
        fields = dict(chunk.headers[0].fields)
        life = owed.lives[fields["shoal-queue"]]
        slot = Slot(life.number, fields["shoal-key"], int(fields["shoal-offset"]))
        self._check(fields, self._headers(life, slot, self.bound(life.number)))
        assert slot.offset in life.todo[slot.key] and letter.key == life.options.dead_letter
        assert [owed.keys[slot.key].log[slot.offset][0]] == list(chunk.bodies)
        assert self._letters.setdefault(letter.producer, slot) == slot, "two letters have one producer"
        return slot

    def sent(self, slot: Slot) -> None:
        """Notes that a letter is where it belongs."""
        self._sent.add(slot)
        self._sent_by_leader.add(slot)

    def check_headers(self, key: bytes, offset: int, fields: Mapping[str, bytes]) -> None:
        """Checks what a delivery says of a copy."""
        if (key, offset) in self.headers:
            self._check(dict(fields), self.headers[key, offset])

    @staticmethod
    def _check(fields: dict[str, bytes], expected: Mapping[str, bytes] | None) -> None:
        assert expected is not None, f"there is to be no copy like {fields}"
        expected = dict(expected)
        if not expected["shoal-reason"]:  # A leader before a crash knew it.
            expected["shoal-reason"] = fields["shoal-reason"]
        assert fields == expected, f"a copy says {fields}, not {expected}"
