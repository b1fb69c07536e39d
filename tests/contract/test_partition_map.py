"""The partition map: stored form, even split, moves, and what it refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_contract.errors import Malformed
from shoal_contract.limits import PARTITIONS_DEFAULT, PARTITIONS_MAX
from shoal_contract.partition_hash import partition_of
from shoal_contract.partition_map import PartitionMap


@st.composite
def partition_maps(draw: st.DrawFn) -> PartitionMap:
    slices = draw(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True))
    owners = draw(st.lists(st.integers(0, len(slices) - 1), min_size=1, max_size=300))
    return PartitionMap(draw(st.integers(0, 2**63 - 1)), tuple(slices), tuple(owners))


@given(partition_maps())
def test_stored_form_round_trips(partition_map: PartitionMap) -> None:
    assert PartitionMap.decode(partition_map.encode()) == partition_map


@given(st.integers(1, 40), st.integers(1, 5000))
def test_even_map_gives_each_slice_its_share_in_one_run(slice_count: int, partitions: int) -> None:
    even = PartitionMap.even([f"s{number:02}" for number in range(slice_count)], partitions)
    shares = [len(even.partitions_of(name)) for name in even.slices]
    assert even.version == 1 and even.partitions == partitions == sum(shares)
    assert max(shares) - min(shares) <= 1
    assert list(even.owners) == sorted(even.owners)


@given(partition_maps(), st.data())
def test_move_changes_the_moved_partitions_only(before: PartitionMap, data: st.DataObject) -> None:
    targets = st.sampled_from([*before.slices, "new-a", "new-b"])
    changes = data.draw(st.dictionaries(st.integers(0, before.partitions - 1), targets, max_size=20))
    after = before.moved(changes)
    assert after.version == before.version + 1
    assert after.slices[: len(before.slices)] == before.slices
    for partition in range(before.partitions):
        old, new = before.slices[before.owners[partition]], after.slices[after.owners[partition]]
        assert new == changes.get(partition, old)


def test_owner_of_a_key_is_the_owner_of_its_partition() -> None:
    even = PartitionMap.even(["s00", "s01", "s02"], PARTITIONS_DEFAULT)
    for key in (b"lobby", "Zürich".encode(), b"\x00", b"@resident-1"):
        assert partition_of(key, PARTITIONS_DEFAULT) in even.partitions_of(even.owner_of(key))


def test_slice_without_part_owns_nothing() -> None:
    assert PartitionMap.even(["s00"], 8).partitions_of("s99") == []


def test_stored_form_of_an_even_map_is_small() -> None:
    assert len(PartitionMap.even([f"s{number:02}" for number in range(64)], PARTITIONS_MAX).encode()) < 2048


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"version": 1, "slices": ["a"]}',
        b'{"version": 1, "slices": ["a"], "runs": []}',
        b'{"version": 1, "slices": ["a"], "runs": [[1, 8]]}',
        b'{"version": 1, "slices": ["a"], "runs": [[-1, 8]]}',
        b'{"version": 1, "slices": [], "runs": [[0, 8]]}',
        b'{"version": 1, "slices": ["a"], "runs": [[0]]}',
        b'{"version": 1, "slices": ["a"], "runs": [[0, "many"]]}',
        b'{"version": "first", "slices": ["a"], "runs": [[0, 8]]}',
        b'{"version": 1, "slices": ["a"], "runs": [[0, 32769]]}',
    ],
)
def test_malformed_stored_form_is_refused(stored: bytes) -> None:
    with pytest.raises(Malformed):
        PartitionMap.decode(stored)


@pytest.mark.parametrize("runs", [[[0, 32_769]], [[0, 0], [0, 4]], [[0, -1], [0, 4]], [[0, 32_768]] * 100_000])
def test_runs_beyond_the_limit_are_refused_at_once(runs: list[list[int]]) -> None:
    stored = json.dumps({"version": 1, "slices": ["s01"], "runs": runs}).encode()
    with pytest.raises(Malformed):
        PartitionMap.decode(stored)
