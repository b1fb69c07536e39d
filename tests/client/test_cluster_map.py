"""Maps are built from responses; changes name only what moved; nonsense is refused."""

from __future__ import annotations

import pytest

import shoal
from shoal.core.cluster_map import first_map, next_map
from shoal_contract.errors import Malformed
from shoal_contract.limits import SLICES_MAX
from shoal_contract.wire import redirector_pb2 as wire
from tests.client.fake_cluster import FakeCluster


def response(version: int, slices: list[str], **columns: list[int] | int) -> wire.WatchMapResponse:
    addresses = [wire.SliceAddress(slice=name, address=f"{name}:1") for name in slices]
    return wire.WatchMapResponse(map_version=version, slices=addresses, **columns)  # type: ignore[arg-type]


def test_first_response_is_the_whole_map() -> None:
    cluster_map = first_map(response(7, ["a", "b"], partitions=4, owners=[0, 0, 1, 1]))
    assert (cluster_map.version, cluster_map.partition_map.owners) == (7, (0, 0, 1, 1))
    assert cluster_map.address_of("b") == "b:1"
    assert cluster_map.address_of("gone") == ""


def test_changes_apply_also_when_the_slices_are_listed_in_another_order() -> None:
    before = first_map(response(7, ["a", "b"], partitions=4, owners=[0, 0, 1, 1]))
    after = next_map(before, response(8, ["c", "b", "a"], moved=[3], owners=[0]))
    names = [after.slices[owner] for owner in after.partition_map.owners]
    assert names == ["a", "a", "b", "c"]


@pytest.mark.parametrize(
    "bad",
    [
        response(8, ["a", "b"], moved=[9], owners=[0]),
        response(8, ["a", "b"], moved=[1], owners=[]),
        response(8, ["a"]),
    ],
)
def test_a_change_that_fits_nothing_is_refused(bad: wire.WatchMapResponse) -> None:
    before = first_map(response(7, ["a", "b"], partitions=4, owners=[0, 0, 1, 1]))
    with pytest.raises(Malformed):
        next_map(before, bad)


@pytest.mark.parametrize("name", ["s\x1b[31m", "s\n", "s" * 256])
def test_names_and_addresses_that_no_log_may_show_are_refused(name: str) -> None:
    for change in ("slice", "address", "admin_address"):
        told = response(7, ["a"], partitions=1, owners=[0])
        setattr(told.slices[0], change, name)
        with pytest.raises(Malformed, match="too long, or not printable"):
            first_map(told)
        later = response(8, ["a"])
        setattr(later.slices[0], change, name)
        with pytest.raises(Malformed, match="too long, or not printable"):
            next_map(first_map(response(7, ["a"], partitions=1, owners=[0])), later)


def test_a_map_of_too_many_slices_is_refused() -> None:
    names = [f"s{number:04}" for number in range(SLICES_MAX + 1)]
    first_map(response(7, names[1:], partitions=1, owners=[0]))
    with pytest.raises(Malformed, match=f"map has {SLICES_MAX + 1} slices; it may have {SLICES_MAX}"):
        first_map(response(7, names, partitions=1, owners=[0]))


def test_administration_listens_where_the_slice_says_or_beside_the_rest() -> None:
    first = response(7, ["a", "b"], partitions=2, owners=[0, 1])
    first.slices[1].admin_address = "b:2"
    cluster_map = first_map(first)
    assert [cluster_map.admin_address_of(name) for name in ("a", "b", "gone")] == ["a:1", "b:2", ""]
    assert cluster_map.address_of("b") == "b:1"
    change = response(8, ["a", "b"])
    change.slices[0].admin_address = "a:3"
    assert [next_map(cluster_map, change).admin_address_of(name) for name in ("a", "b")] == ["a:3", "b:1"]


async def test_questions_of_administration_go_to_its_port(cluster: FakeCluster) -> None:
    await cluster.slices["s02"].open_admin_port()
    async with shoal.connect(cluster.redirectors[0].address) as broker:
        admin = shoal.Admin(broker)
        for name in ("s01", "s02"):
            assert (await admin.figures(name)).slice == name
        asked = [(cluster.slices[name].admin.calls, cluster.slices[name].admin_apart.calls) for name in ("s01", "s02")]
        assert asked == [(1, 0), (0, 1)]
