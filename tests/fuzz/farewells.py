"""Models farewells: each said once, after its queue was left for its time or with its end; letters for other slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal_contract.chunk import parse_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Farewell
from shoal_slice_node.core.dispatch.farewells import FarewellLetter
from shoal_slice_node.core.rows.farewell_row import LETTER, letter_key

if TYPE_CHECKING:
    from tests.fuzz.owed import Owed

Published = Sequence[int | None]
"""How many queues each chunk of a record was routed to, in order; None where it was kept for none."""


class Kept(NamedTuple):
    """Describes a farewell: what it is, and the record that set it."""

    key: bytes
    chunk: bytes
    after_s: int
    lsn: int
    time_ms: int


class Farewells:
    """`kept`: by queue. `letters`: key and chunk, by the key of the row. `left_ms`: when each queue was seen consumed
    last."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Kept] = {}
        self.letters: dict[bytes, tuple[bytes, bytes]] = {}
        self.left_ms: dict[bytes, int] = {}
        self._producers: dict[bytes, bytes] = {}

    def changed(self, owed: Owed, number: int, step: wire.Farewells) -> None:
        """Notes that this request of a step was done."""
        name = step.queues[number]
        if step.keys:
            self.kept[name] = Kept(step.keys[number], step.chunks[number], step.after_s, owed.lsn, owed.time_ms)
        else:
            self.kept.pop(name, None)

    def check_time(self, name: bytes, now_ms: int) -> None:
        """Checks that a farewell which the node decides to say is due."""
        kept = self.kept[name]
        idle_ms = now_ms - max(self.left_ms.get(name, 0), kept.time_ms)
        assert idle_ms >= 1000 * kept.after_s, f"the farewell of {name!r} comes early: after {idle_ms} ms of {kept}"

    def said(self, owed: Owed, decided_lsn: int, rows: Sequence[Farewell], published: Published) -> None:
        """Notes a FAREWELL record: it says what was not set anew since, and takes letters away."""
        names: list[tuple[int, bytes]] = []
        for number, (row_key, name, _) in enumerate(rows):
            if row_key[:1] == LETTER:
                self.letters.pop(row_key, None)
                continue
            life, kept = owed.lives.get(name), self.kept.get(name)
            if kept is not None and life is not None and life.queue_id == row_key[1:] and kept.lsn <= decided_lsn:
                names.append((number, name))
        self._say(owed, names, published, ends=False)

    def ended(self, owed: Owed, names: Sequence[tuple[int, bytes]], published: Published) -> None:
        """Notes an EXPIRE record, which ends these queues, each with its number in the record."""
        self._say(owed, names, published, ends=True)

    def _say(self, owed: Owed, names: Sequence[tuple[int, bytes]], published: Published, ends: bool) -> None:
        answers = iter(published)
        here = [name for _, name in names if name in self.kept and owed.owns(self.kept[name].key)]
        queues = {name: next(answers) or 0 for name in here}
        assert next(answers, 0) == 0, "a record published more than was to be said"
        offsets = [self.kept[name].key for name in here if owed.keeps(self.kept[name].key, queues[name])]
        heads = {key: owed.look.key(key).head - offsets.count(key) for key in offsets}
        for number, name in names:
            kept = self.kept.pop(name, None)
            if kept is not None and name not in queues:
                self.letters[letter_key(owed.lsn, number)] = kept.key, kept.chunk
            elif kept is not None:
                first = heads[kept.key] if owed.keeps(kept.key, queues[name]) else 0
                heads[kept.key] = first + 1
                owed.published(kept.key, kept.chunk, first, queues[name])
            if ends:
                owed.end(name)

    def taken(self, letter: FarewellLetter) -> None:
        """Checks a letter that the courier got. However often it comes, it has the same producer, and no other has."""
        assert self.letters[letter.row_key] == (letter.key, letter.chunk) and parse_chunk(letter.chunk).bodies
        assert self._producers.setdefault(letter.producer, letter.row_key) == letter.row_key
        mine = [producer for producer, row_key in self._producers.items() if row_key == letter.row_key]
        assert mine == [letter.producer]
