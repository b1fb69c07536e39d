"""Finds acks of one session that are not answered yet, by key and consumer.

Not here: the acks themselves, and when they are sent (../ack_sender.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence, Set

from shoal.core.acks import AckConsumer, Acked, together
from shoal.core.offset_ranges import Ranges, count, end_of, first_of, within, without

_Layers = list[list[tuple[int, int]]]
"""Ascending ranges that do not touch: of what was acked, of what of it was acked a second time, and so on. They are
changed in their place: a window that is acked out of order has many."""
_Found = dict[bytes, dict[AckConsumer, _Layers]]
"""Key and consumer -> what is acked."""


class PendingAcks:
    """Looks in what `blocks` returns: the acks that are not answered. Their owner tells what becomes of them.

    Most inboxes never ask. So the first question makes an index, which is kept until no acks are left: all questions
    together look at each ack once.
    """

    def __init__(self, blocks: Callable[[], Iterable[Acked]]) -> None:
        self._blocks = blocks
        self._index: _Found | None = None

    def within(self, key: bytes, consumer: AckConsumer, first: int, end: int) -> Ranges:
        """Returns the ranges of first <= offset < end of a key that the consumer has acked, or nacked."""
        layers = self._found().get(key, {}).get(consumer)
        return within(layers[0], first, end) if layers else ()

    def outside(self, key: bytes, consumer: AckConsumer, first: int, end: int) -> Ranges:
        """Returns the ranges of first <= offset < end of a key that the consumer has not acked."""
        return without(((first, end),), self.within(key, consumer, first, end))

    def lowest(self, key: bytes, consumer: AckConsumer) -> int | None:
        """Returns the lowest offset of a key that the consumer has acked, or nacked; None: there is none."""
        layers = self._found().get(key, {}).get(consumer)
        return layers[0][0][0] if layers else None

    def messages(self, consumers: Set[AckConsumer]) -> int:
        """Returns how many messages these consumers have acked. O(keys that have acks, with their consumers)."""
        acked = 0
        for found in self._found().values():
            for consumer in found.keys() & consumers:
                acked += count(found[consumer][0])
        return acked

    def add(self, key: bytes, first: int, end: int, consumers: Sequence[AckConsumer]) -> None:
        """Notes that an ack was given."""
        if self._index is not None:
            _add(self._index, key, first, end, consumers)

    def answered(self, blocks: Iterable[Acked]) -> None:
        """Notes that acks were answered."""
        if self._index is None:
            return
        for key, ranges, consumers in together(blocks):
            of_key, parts = self._index.get(key, {}), _apart(ranges)
            for consumer in consumers:
                if (layers := of_key.get(consumer)) is not None:
                    for some in parts:
                        _take(layers, some)
                    if not layers:
                        del of_key[consumer]
            if not of_key:
                self._index.pop(key, None)
        if not self._index:
            self._index = None

    def clear(self) -> None:
        """Notes that acks were dropped. The next question looks at those that are left."""
        self._index = None

    def _found(self) -> _Found:
        if self._index is None:
            index: _Found = {}
            for block in self._blocks():
                _add(index, *block)
            if not index:
                return index
            self._index = index
        return self._index


def _add(index: _Found, key: bytes, first: int, end: int, consumers: Sequence[AckConsumer]) -> None:
    of_key = index.setdefault(key, {})
    for consumer in consumers:
        layers = of_key.get(consumer)
        if layers is None:
            of_key[consumer] = [[(first, end)]]
        elif layers[0][-1][1] < first:
            layers[0].append((first, end))
        else:
            _add_in_between(layers, first, end)


def _add_in_between(layers: _Layers, first: int, end: int) -> None:
    added: Ranges = ((first, end),)
    for layer in layers:
        had: list[tuple[int, int]] = []
        for low, high in added:
            had += within(layer, low, high)
            begin, stop = bisect_left(layer, low, key=end_of), bisect_right(layer, high, key=first_of)
            touching = layer[begin:stop] or [(low, high)]
            layer[begin:stop] = [(min(low, touching[0][0]), max(high, touching[-1][1]))]
        if not had:
            return
        added = tuple(had)
    layers.append(list(added))


def _apart(ranges: list[tuple[int, int]]) -> list[Ranges]:
    """Returns ranges of which those of one part do not overlap."""
    parts: list[Ranges] = []
    left = sorted(ranges)
    while left:
        part: list[tuple[int, int]] = []
        over: list[tuple[int, int]] = []
        for one in left:
            (over if part and one[0] < part[-1][1] else part).append(one)
        parts.append(tuple(part))
        left = over
    return parts


def _take(layers: _Layers, ranges: Ranges) -> None:
    """Takes out what was answered: of what was acked several times, one of them."""
    for layer in reversed(layers):
        before, layer[:] = tuple(layer), without(layer, ranges)
        if layer is not layers[0]:
            ranges = without(ranges, without(before, layer))
    while layers and not layers[-1]:
        layers.pop()
