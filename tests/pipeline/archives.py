"""Archives made in a test, byte for byte as a slice node's, with times of the test's choosing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal_contract.journal_record import encode_record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.drop_conditions import IN_USE
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change, encode_ownership
from shoal_slice_node.storage.journal_segment import NONCE_BYTES, batch_mark, encode_head, segment_name

NONCE = b"n" * NONCE_BYTES


class SliceArchive:
    """Records of one slice, LSN by LSN; `cut` ends a segment."""

    def __init__(self, root: Path, slice_name: str = "s01", node: str = "n01", first_lsn: int = 1) -> None:
        self.folder = root / slice_name / node
        self.folder.mkdir(parents=True, exist_ok=True)
        self.next_lsn = first_lsn
        self._first_lsn = first_lsn
        self._records: list[bytes] = []

    def add(self, kind: int, time_ms: int, payload: bytes, flags: int = 0) -> int:
        """The LSN."""
        self._records.append(encode_record(kind, self.next_lsn, 1, time_ms, payload, flags))
        self.next_lsn += 1
        return self.next_lsn - 1

    def own(self, time_ms: int, partitions: int, owned: Sequence[int] | None = None) -> int:
        """`owned` None: all."""
        flags = bytes(owned is None or partition in owned for partition in range(partitions))
        return self.add(Kind.OWNERSHIP, time_ms, encode_ownership(1, flags))

    def change(self, time_ms: int, *steps: wire.Step, producer: bytes = NO_PRODUCER, sequence: int = 0) -> int:
        data = wire.Change(steps=steps).SerializeToString()
        return self.add(Kind.CHANGE, time_ms, encode_change(ChangeHead(producer, sequence, 0), data))

    def cut(self) -> Path:
        """The segment's file: a head, a mark before each record, one at the end, zeros."""
        path = self.folder / segment_name(self._first_lsn)
        first = self._first_lsn
        data = b"".join(batch_mark(first + n, first + n - 1, NONCE) + record for n, record in enumerate(self._records))
        end = batch_mark(self.next_lsn, self.next_lsn - 1, NONCE)
        path.write_bytes(encode_head(NONCE, b"") + data + end + bytes(1000))
        self._first_lsn, self._records = self.next_lsn, []
        return path


def declares(*queues: bytes) -> wire.Step:
    return wire.Step(declares=wire.Declares(queues=queues))


def drops(*queues: bytes) -> wire.Step:
    return wire.Step(drops=wire.Drops(queues=queues))


def drops_unused(*queues: bytes, used: int) -> wire.Step:
    """As a leader writes it that found the first `used` queues in use."""
    incarnations = [IN_USE] * used + [0] * (len(queues) - used)
    return wire.Step(drops=wire.Drops(queues=queues, incarnations=incarnations, if_unused=True))


def binds(queue: bytes, *keys: bytes) -> wire.Step:
    """One request."""
    return wire.Step(binds=wire.Binds(queues=[queue], key_counts=[len(keys)], keys=keys))


def unbinds(queue: bytes, *keys: bytes) -> wire.Step:
    return wire.Step(unbinds=wire.Unbinds(queues=[queue], key_counts=[len(keys)], keys=keys))


def publishes(key: bytes, *chunks: bytes) -> wire.Step:
    return wire.Step(publishes=wire.Publishes(keys=[key] * len(chunks), chunks=chunks))
