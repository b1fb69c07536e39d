"""The partition hash: published vectors, and a second implementation that shares nothing with the first."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal_contract
from shoal_contract.limits import NAME_BYTES_MAX, PARTITIONS_DEFAULT, PARTITIONS_MAX
from shoal_contract.names import direct_key
from shoal_contract.partition_hash import hashed_part, partition_of

VECTORS = json.loads((Path(shoal_contract.__file__).parent / "partition_vectors.json").read_text())["vectors"]


def crc32_bit_by_bit(data: bytes) -> int:
    """CRC-32/ISO-HDLC by its definition: reflected polynomial 0xEDB88320, all ones in, all ones out."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0xEDB88320 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def second_partition_of(key: bytes, partitions: int) -> int:
    tag = re.match(rb"@?\{([^}]+)\}", key)
    return crc32_bit_by_bit(key if tag is None else tag[1]) % partitions


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.get("text", vector["key_hex"])[:20])
def test_published_vector_holds(vector: dict[str, object]) -> None:
    key = bytes.fromhex(str(vector["key_hex"]))
    assert "text" not in vector or str(vector["text"]).encode() == key
    assert isinstance(vector["partitions"], dict)
    for partitions, expected in vector["partitions"].items():
        assert partition_of(key, int(partitions)) == expected == second_partition_of(key, int(partitions))


def test_vectors_cover_the_kinds_of_key() -> None:
    keys = [bytes.fromhex(vector["key_hex"]) for vector in VECTORS]
    assert {1, NAME_BYTES_MAX, NAME_BYTES_MAX + 1} <= {len(key) for key in keys}
    assert any(key.startswith(b"@") for key in keys)
    assert any(key.isascii() for key in keys) and not all(key.isascii() for key in keys)
    assert all(set(vector["partitions"]) == {"1", "4096", "32768"} for vector in VECTORS)


def test_hash_has_the_check_value_of_its_catalogue_entry() -> None:
    assert partition_of(b"123456789", 1 << 32) == 0xCBF43926


@given(
    st.binary(min_size=1, max_size=NAME_BYTES_MAX) | st.text("@{}ab", min_size=1).map(str.encode),
    st.integers(1, PARTITIONS_MAX),
)
def test_both_implementations_agree_below_the_partition_count(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == second_partition_of(key, partitions) < partitions


def test_keys_and_queues_with_one_tag_are_placed_together() -> None:
    names = (b"{room-7}", b"{room-7}/votes", b"{room-7}}", direct_key(b"{room-7}anna"))
    assert {partition_of(name, PARTITIONS_MAX) for name in names} == {partition_of(b"room-7", PARTITIONS_MAX)}


@pytest.mark.parametrize("key", [b"{}", b"{}a", b"{room-7", b"a{room-7}", b"@a{room-7}", b"@{}a", b"@{room-7"])
def test_a_key_that_does_not_begin_with_a_whole_tag_is_hashed_whole(key: bytes) -> None:
    assert hashed_part(key) == key


def test_numbered_names_spread_evenly() -> None:
    counts = [0] * PARTITIONS_DEFAULT
    for number in range(100 * PARTITIONS_DEFAULT):
        counts[partition_of(b"resident-%08d" % number, PARTITIONS_DEFAULT)] += 1
    assert min(counts) > 50 and max(counts) < 150
