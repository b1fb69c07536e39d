"""Keeps, beside the journal, which segment each archive got last: a node adds to no archive that ends with another one.

    <journal>/archives: two slots of SLOT_BYTES; of the sound ones that with the higher number counts
    slot: a record (shoal_contract.journal_record) of kind KIND, then zeros
        lsn      the number of the change
        payload  form u8, FORM | an entry for each archive, the one that got something last comes last
    entry: u64 from LSN | u64 first LSN | u64 end LSN | u64 bytes | u32 CRC-32 of them (zlib), little-endian

Heads and nonces cannot tell a copy of the data from its original, which both write on in one segment; their bytes can.
Nor can a path tell archives apart, which are moved.

Why it survives a crash at any point: a change goes to the slot that does not count, by a write in place, which needs no
room on a full disk; the other slot stays as it is. The journal releases a segment only after its entry is on disk. So
what an archive got last is known, or is still in the journal and can be compared as a whole.

Belongs here: the file. Not here: what an archive has (archive).
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from shoal_contract.journal_record import HEADER, decode_record, encode_record
from shoal_slice_node.storage.files import Files
from shoal_slice_node.storage.journal_segment import first_lsn_of, used_bytes
from shoal_slice_node.storage.limits import ARCHIVE_COPY_BYTES, ARCHIVES_KNOWN_MAX

NAME: Final = "archives"
SLOT_BYTES: Final = 512
"""One sector, so that a power loss rarely leaves a part."""
KIND: Final = 1
FORM: Final = b"\x01"
_ENTRY: Final = Struct("<QQQQI")

assert HEADER.size + len(FORM) + ARCHIVES_KNOWN_MAX * _ENTRY.size <= SLOT_BYTES


class LastArchived(NamedTuple):
    """Describes the segment that an archive got last. `from_lsn`: from this LSN on the archive has all records below
    `end_lsn`. `size`: the bytes that are used of the segment; `crc`: of these bytes."""

    from_lsn: int
    first_lsn: int
    end_lsn: int
    size: int
    crc: int

    def begins(self, data: bytes) -> bool:
        """Returns whether a segment's bytes begin with these."""
        return self.size <= len(data) and crc_of(data, self.size) == self.crc


def crc_of(data: bytes, size: int) -> int:
    """Returns the CRC-32 of the first `size` bytes, read in blocks: `data` may be a memory map."""
    crc = 0
    for at in range(0, size, ARCHIVE_COPY_BYTES):
        crc = crc32(data[at : min(size, at + ARCHIVE_COPY_BYTES)], crc)
    return crc


class KnownArchives:
    """Reads and changes what is known, in the folder of a journal. Blocks: for the archive's thread. Raises OSError."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / NAME

    def entries(self) -> list[LastArchived]:
        """Returns an entry for each archive, the latest last; none if both slots are damaged."""
        return _decoded(self._read() or b"")[1]

    def make(self) -> None:
        """Makes the file, if there is none, on disk. To be called before the first segment is due: a disk that is full
        later has no room for it, and nothing would be released."""
        data = self._read()
        if data is not None and len(data) >= 2 * SLOT_BYTES:
            return
        file = self._files.create(self._path) if data is None else self._files.open(self._path)
        try:
            file.write_at(0, bytes(2 * SLOT_BYTES))
            file.sync()
        finally:
            file.close()
        self._files.sync_folder(self._path.parent)

    def note(
        self, former: LastArchived | None, path: Path, end_lsn: int, sound_bytes: int | None = None
    ) -> LastArchived:
        """Notes what an archive got last: a segment of the journal. Returns its entry, on disk, in the place of the
        archive's `former` one; that if the archive had more, or as much. `sound_bytes`: as in `Archive.put`."""
        first_lsn = first_lsn_of(path.name)
        if former is not None and first_lsn < former.first_lsn:
            return former
        data = self._files.read(path)
        size = used_bytes(data) if sound_bytes is None else sound_bytes
        follows = former is not None and first_lsn in (former.first_lsn, former.end_lsn)
        from_lsn = former.from_lsn if former is not None and follows else first_lsn
        if former is not None and (former.first_lsn, former.size) == (first_lsn, size):
            return former
        entry = LastArchived(from_lsn, first_lsn, end_lsn, size, crc_of(data, size))
        self._replace(former, entry)
        return entry

    def _replace(self, former: LastArchived | None, entry: LastArchived) -> None:
        """Puts an archive's entry in the place of its former one, on disk. The oldest beyond the bound is forgotten."""
        self.make()
        number, entries = _decoded(self._read() or b"")
        if former in entries:
            entries.remove(former)  # One of them: two archives may have got the same last.
        payload = FORM + b"".join(_ENTRY.pack(*one) for one in [*entries, entry][-ARCHIVES_KNOWN_MAX:])
        slot = encode_record(KIND, number + 1, 0, 0, payload)
        file = self._files.open(self._path)
        try:
            file.write_at((number + 1) % 2 * SLOT_BYTES, slot.ljust(SLOT_BYTES, b"\0"))
            file.sync()
        finally:
            file.close()

    def _read(self) -> bytes | None:
        try:
            return self._files.read(self._path)
        except FileNotFoundError:
            return None


def _decoded(data: bytes) -> tuple[int, list[LastArchived]]:
    """Returns the number of the slot that counts, and its entries; 0 and none if no slot is sound."""
    number, payload = 0, b""
    for at in (0, SLOT_BYTES):
        found = decode_record(data, at)
        if found is not None and found[0].kind == KIND and found[0].lsn > number:
            number, payload = found[0].lsn, found[0].payload
    return number, [LastArchived(*entry) for entry in _ENTRY.iter_unpack(payload[1:])] if payload[:1] == FORM else []
