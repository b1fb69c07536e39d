"""Locating keys and comparing directories, without any I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_contract.errors import InvalidName, TooLarge
from shoal_contract.limits import LOCATE_KEYS_MAX, NAME_BYTES_MAX
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire
from shoal_redirector.adapters import grpc as grpc_adapter
from shoal_redirector.adapters.grpc import parse_locate
from shoal_redirector.core.directory import (
    Directory,
    SliceAddress,
    check_keys,
    directory_of,
    locate,
    moved,
)

P = 16
EVEN = directory_of(PartitionMap.even(["s1", "s2"], P), {"s2": SliceAddress("s2", "h:1", 4)})


def test_slices_are_in_the_order_of_the_map_and_further_ones_follow() -> None:
    known = {name: SliceAddress(name, f"{name}:1", 1) for name in ("new", "a", "s1")}
    directory = directory_of(PartitionMap.even(["s2", "s1"], P), known)
    assert directory.slices == (SliceAddress("s2"), known["s1"], known["a"], known["new"])


@given(st.lists(st.binary(min_size=1, max_size=255), max_size=20))
def test_each_key_is_located_where_the_map_says(keys: list[bytes]) -> None:
    partitions, owners = locate(EVEN, keys)
    assert [EVEN.slices[owner].slice for owner in owners] == [EVEN.map.owner_of(key) for key in keys]
    assert [EVEN.map.owners[partition] for partition in partitions] == owners


def test_too_many_keys_and_bad_ones_are_named() -> None:
    check_keys([b"k"] * 3, 3)
    with pytest.raises(TooLarge, match="4 keys to locate in one call; the limit is 3") as caught:
        check_keys([b"k"] * 4, 3)
    assert (caught.value.limit, caught.value.value) == (3, 4)
    for bad in (b"", b"k" * 256, b"@" + b"k" * 256):
        with pytest.raises(InvalidName):
            check_keys([b"good", bad], 3)


def test_the_direct_key_of_the_longest_queue_name_is_a_key() -> None:
    check_keys([b"@" + b"q" * 255, b"@"], 3)


def test_what_moved_is_found_also_when_slices_are_added() -> None:
    after = directory_of(EVEN.map.moved({3: "s2", 5: "s9"}), {})
    assert moved(EVEN, after) == ([3, 5], [1, 2])


def test_owners_are_compared_by_name_not_by_index() -> None:
    swapped = PartitionMap(2, ("s2", "s1"), tuple(1 - owner for owner in EVEN.map.owners))
    assert moved(EVEN, directory_of(swapped, {})) == ([], [])


def test_a_new_address_moves_nothing() -> None:
    assert moved(EVEN, directory_of(EVEN.map, {"s1": SliceAddress("s1", "h:2", 5)})) == ([], [])


def test_another_number_of_partitions_cannot_be_compared() -> None:
    assert moved(EVEN, directory_of(PartitionMap.even(["s1"], P * 2), {})) is None


@given(st.lists(st.integers(0, 3), min_size=P, max_size=P), st.lists(st.integers(0, 3), min_size=P, max_size=P))
def test_applying_what_moved_gives_the_newer_map(old: list[int], new: list[int]) -> None:
    names = ("a", "b", "c", "d")
    before = directory_of(PartitionMap(1, names, tuple(old)), {})
    after: Directory = directory_of(PartitionMap(2, names[::-1], tuple(new)), {})
    change = moved(before, after)
    assert change is not None
    owners = [before.slices[owner].slice for owner in old]
    for partition, owner in zip(*change, strict=True):
        owners[partition] = after.slices[owner].slice
    assert owners == [after.slices[owner].slice for owner in new]


def test_keys_are_counted_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.2 million empty keys are two bytes each: parsing them held the loop for 30 ms."""
    most = wire.LocateRequest(keys=[b""] * LOCATE_KEYS_MAX).SerializeToString()
    assert len(parse_locate(most).keys) == LOCATE_KEYS_MAX
    long = wire.LocateRequest(keys=[b"k" * NAME_BYTES_MAX] * LOCATE_KEYS_MAX).SerializeToString()
    assert len(parse_locate(long).keys) == LOCATE_KEYS_MAX

    def parsed(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(grpc_adapter, "decode", parsed)
    with pytest.raises(TooLarge, match="more than 10000 keys to locate") as caught:
        parse_locate(most + b"\n\0")
    assert caught.value.limit == LOCATE_KEYS_MAX
