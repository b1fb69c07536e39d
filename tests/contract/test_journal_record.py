"""The journal record: its layout to the byte, and no damage passes."""

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_contract.journal_record import HEADER, STX, Record, decode_record, encode_record
from shoal_contract.limits import PAYLOAD_BYTES_MAX

RECORDS = st.builds(
    Record,
    kind=st.integers(0, 2**8 - 1),
    flags=st.integers(0, 2**16 - 1),
    lsn=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    time_ms=st.integers(0, 2**64 - 1),
    payload=st.binary(max_size=200),
)
SAMPLE = Record(kind=3, flags=0x0102, lsn=0x1122334455667788, epoch=7, time_ms=1_700_000_000_123, payload=b"shoal")


def encoded(record: Record) -> bytes:
    return encode_record(record.kind, record.lsn, record.epoch, record.time_ms, record.payload, record.flags)


def crc32c_bit_by_bit(data: bytes) -> int:
    """CRC-32C by its definition (RFC 3720): reflected polynomial 0x82F63B78, all ones in, all ones out."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def test_layout_is_the_published_one_to_the_byte() -> None:
    head = bytes.fromhex("02 03 0201 05000000 8877665544332211 07000000 7b68e5cf8b010000")
    crc = crc32c_bit_by_bit(head + b"shoal")
    assert crc32c_bit_by_bit(b"123456789") == 0xE3069283
    assert encoded(SAMPLE) == head + crc.to_bytes(4, "little") + b"shoal"


def test_golden_record_is_still_read() -> None:
    golden = "02 03 0201 05000000 8877665544332211 07000000 7b68e5cf8b010000 1a2ba994 73686f616c"
    assert decode_record(bytes.fromhex(golden), 0) == (SAMPLE, 37)


@given(st.lists(RECORDS, max_size=8), st.binary(max_size=20))
def test_records_round_trip_one_after_another(records: list[Record], before: bytes) -> None:
    data = memoryview(before + b"".join(map(encoded, records)))
    position = len(before)
    for record in records:
        decoded = decode_record(data, position)
        assert decoded is not None
        assert decoded[0] == record
        position = decoded[1]
    assert position == len(data) and decode_record(data, position) is None


def test_every_single_flipped_bit_is_noticed() -> None:
    sound = encoded(SAMPLE)
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_record(bytes(damaged), 0) is None, f"bit {bit}"


def test_flipped_bit_is_noticed_although_more_data_follows() -> None:
    sound = encoded(SAMPLE)
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound + sound)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_record(bytes(damaged), 0) is None, f"bit {bit}"


def test_truncated_record_is_no_record() -> None:
    sound = encoded(SAMPLE)
    assert all(decode_record(sound[:size], 0) is None for size in range(len(sound)))


@pytest.mark.parametrize("blank", [b"\x00", b"\xff", bytes([STX])])
def test_blank_space_holds_no_record(blank: bytes) -> None:
    assert decode_record(blank * 4096, 0) is None


def test_length_beyond_the_limit_is_damage_whatever_the_checksum_says() -> None:
    head = HEADER.pack(STX, 1, 0, PAYLOAD_BYTES_MAX + 1, 1, 1, 1, 0)[:28]
    payload = bytes(PAYLOAD_BYTES_MAX + 1)
    largest = encode_record(1, 1, 1, 1, payload[:-1])
    assert decode_record(largest, 0) is not None
    with pytest.raises(AssertionError, match="limit"):
        encode_record(1, 1, 1, 1, payload)
    crc = google_crc32c.extend(google_crc32c.value(head), payload)
    assert decode_record(head + crc.to_bytes(4, "little") + payload, 0) is None
