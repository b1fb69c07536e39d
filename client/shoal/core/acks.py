"""Gathers acks into ranges: one Ack for all consumers of a key that are done with the same offsets.

A consumer is a handle (attached), or a queue's name and life (pulled). Messages that were delivered and not acked bound
what is gathered. Not here: when acks are sent (../ack_sender.py), which messages were handed out (repeats.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from shoal.limits import ACK_BYTES_MAX, ACK_HANDLES_MAX
from shoal_contract.wire import slice_pb2 as wire


class PulledLife(NamedTuple):
    """Names a queue, and the life of its part of which messages were pulled; 0: the slice, of an older version, does
    not tell it."""

    queue: bytes
    life: int


AckConsumer = int | PulledLife
LIFE_BYTES: Final = 8
"""Bytes of a life on the wire."""
LIFE_OVER: Final = (1 << 64) - 1
"""No queue has this life: it stands for one that ended."""
LIFE_LEFT: Final = LIFE_OVER - 1
"""Nor this one: it stands for that of a queue that has left the inbox."""


class Acked(NamedTuple):
    """Says that offsets first <= offset < end of a key are done for these consumers."""

    key: bytes
    first: int
    end: int
    consumers: Sequence[AckConsumer]


class AckGather:
    """Keeps ranges of acked offsets, merged where they touch."""

    def __init__(self) -> None:
        self._blocks: list[Acked] = []
        self._last_block: dict[bytes, int] = {}
        """Key -> index of its last block in `_blocks`, which the key's next range may join."""
        self._singles: dict[tuple[bytes, AckConsumer], tuple[int, int]] = {}
        """The newest range of each consumer that acks alone."""

    def __bool__(self) -> bool:
        return bool(self._blocks or self._singles)

    def add(self, key: bytes, first: int, end: int, consumers: Sequence[AckConsumer]) -> None:
        """Adds offsets first <= offset < end of a key, done for these consumers."""
        if len(consumers) == 1:
            self._add_single(key, first, end, consumers[0])
            return
        index = self._last_block.get(key)
        if index is not None:
            _, low, high, same = self._blocks[index]
            if high == first and (same is consumers or same == consumers):
                self._blocks[index] = Acked(key, low, end, same)
                return
        self._last_block[key] = len(self._blocks)
        self._blocks.append(Acked(key, first, end, consumers))

    def _add_single(self, key: bytes, first: int, end: int, consumer: AckConsumer) -> None:
        entry = (key, consumer)
        low, high = self._singles.get(entry, (first, first))
        if high != first:
            self._blocks.append(Acked(key, low, high, (consumer,)))
            low = first
        self._singles[entry] = (low, end)

    def take(self) -> list[Acked]:
        """Returns all ranges, and keeps none."""
        together: dict[tuple[bytes, int, int], list[AckConsumer]] = {}
        for (key, consumer), (low, high) in self._singles.items():
            together.setdefault((key, low, high), []).append(consumer)
        blocks = [*self._blocks, *(Acked(*span, consumers) for span, consumers in together.items())]
        self._singles, self._blocks, self._last_block = {}, [], {}
        return blocks

    def blocks(self) -> Iterator[Acked]:
        """Yields the ranges held now."""
        yield from self._blocks
        for (key, consumer), (low, high) in self._singles.items():
            yield Acked(key, low, high, (consumer,))


def framed(blocks: Iterable[Acked]) -> Iterator[list[Acked]]:
    """Yields the blocks of one frame at a time: at most ACK_HANDLES_MAX consumers and ACK_BYTES_MAX bytes."""
    frame: list[Acked] = []
    handles = size_bytes = 0
    for block in blocks:
        for part in _parts(block):
            part_bytes = _size_bytes(part)
            if frame and (handles + len(part.consumers) > ACK_HANDLES_MAX or size_bytes + part_bytes > ACK_BYTES_MAX):
                yield frame
                frame, handles, size_bytes = [], 0, 0
            frame.append(part)
            handles += len(part.consumers)
            size_bytes += part_bytes
    if frame:
        yield frame


def _parts(block: Acked) -> Iterator[Acked]:
    """Yields the block, cut into several if it has too many consumers for one frame."""
    consumers = block.consumers
    if len(consumers) <= ACK_HANDLES_MAX and _size_bytes(block) <= ACK_BYTES_MAX:
        yield block
        return
    longest = max(map(_consumer_bytes, consumers))
    step = min(ACK_HANDLES_MAX, (ACK_BYTES_MAX - _size_bytes(block._replace(consumers=()))) // longest)
    for start in range(0, len(consumers), step):
        yield block._replace(consumers=consumers[start : start + step])


def _size_bytes(block: Acked) -> int:
    """Returns the largest size that the block can have on the wire, in bytes."""
    consumers = block.consumers
    if consumers and isinstance(consumers[0], int):
        return len(block.key) + 5 * len(consumers) + 40
    return len(block.key) + sum(map(_consumer_bytes, consumers)) + 40


def _consumer_bytes(consumer: AckConsumer) -> int:
    return 5 if isinstance(consumer, int) else len(consumer.queue) + 4 + LIFE_BYTES


def to_wire(block: Acked) -> wire.Ack:
    """Returns the range as it travels."""
    ack = wire.Ack(key=block.key, to=block.end)
    ack.low = block.first
    if isinstance(block.consumers[0], int):
        ack.handles.extend(block.consumers)  # type: ignore[arg-type]  # all of one kind
        return ack
    parts: Sequence[PulledLife] = block.consumers  # type: ignore[assignment]
    ack.queues.extend(part.queue for part in parts)
    if any(part.life for part in parts):
        ack.lives.extend(part.life for part in parts)
    return ack


def together(blocks: Iterable[Acked]) -> list[tuple[bytes, list[tuple[int, int]], Sequence[AckConsumer]]]:
    """Returns the acks of a key by the same consumers together, so that thousands that are scattered are taken out of
    what is remembered in one pass. Their ranges are in any order, and may overlap."""
    found: list[tuple[bytes, list[tuple[int, int]], Sequence[AckConsumer]]] = []
    last: dict[tuple[bytes, AckConsumer, int], int] = {}
    for key, first, end, consumers in blocks:
        name = (key, consumers[0], len(consumers))
        place = last.get(name)
        if place is not None and (len(consumers) == 1 or found[place][2] == consumers):
            found[place][1].append((first, end))
        else:
            last[name] = len(found)
            found.append((key, [(first, end)], consumers))
    return found


def at_places(blocks: Iterable[Acked], places: Collection[int]) -> list[Acked]:
    """Returns the blocks with the consumers at these places only (see `Unacked` of the contract)."""
    return _by_place(blocks, places, True)


def without_places(blocks: Iterable[Acked], places: Collection[int]) -> list[Acked]:
    """Returns the blocks without the consumers at these places, and without blocks that are left with none."""
    return _by_place(blocks, places, False)


def _by_place(blocks: Iterable[Acked], places: Collection[int], wanted: bool) -> list[Acked]:
    named, place, found = set(places), 0, list[Acked]()
    for block in blocks:
        consumers = [one for at, one in enumerate(block.consumers, place) if (at in named) is wanted]
        if consumers:
            found.append(block._replace(consumers=consumers))
        place += len(block.consumers)
    return found


def without_consumers(blocks: Iterable[Acked], gone: set[AckConsumer]) -> list[Acked]:
    """Returns the blocks without these consumers, and without blocks that are left with none."""
    left = (block._replace(consumers=[one for one in block.consumers if one not in gone]) for block in blocks)
    return [block for block in left if block.consumers]
