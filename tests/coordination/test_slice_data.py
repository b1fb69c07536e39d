"""Whose data a node may serve: the table of what is found against what etcd knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Conflict
from shoal_coordination.records import ClusterConfig, SliceRecord
from shoal_coordination.slice_data import ClaimedData, admit, check_life

CONFIG = ClusterConfig("chat", 8, 1, "c" * 32)
LIFE, OTHER, FRESH = "a" * 32, "b" * 32, "f" * 32
NEVER_LED = SliceRecord("s01")
LED = SliceRecord("s01", epoch=3, leader="n01", incarnation=LIFE, lsn=100)
RESTORED = SliceRecord("s01", epoch=1, leader="n01")
OURS = DataIdentity(CONFIG.id, "s01", "n01", LIFE)


def admitted(record: SliceRecord, found: DataIdentity | None, lsn: int = 0, accept_empty: bool = False) -> DataIdentity:
    return admit(CONFIG, record, found, lsn, accept_empty, node="n01", folder="/data/s01", fresh=FRESH)


@pytest.mark.parametrize(
    ("record", "found", "lsn", "accept_empty", "incarnation"),
    [
        pytest.param(NEVER_LED, None, 0, False, FRESH, id="a slice that was never led begins"),
        pytest.param(LED, OURS, 100, False, LIFE, id="the data is where it was"),
        pytest.param(LED, OURS, 900, False, LIFE, id="the data went on since it was claimed"),
        pytest.param(LED, None, 0, True, FRESH, id="an operator accepts that it is gone"),
        pytest.param(RESTORED, None, 0, True, FRESH, id="the same, in an etcd that knows of no data"),
        pytest.param(NEVER_LED, OURS, 50, False, LIFE, id="etcd lost its records, the data is adopted"),
        pytest.param(RESTORED, OURS, 50, False, LIFE, id="etcd is from before, the data is adopted"),
        pytest.param(LED, OURS, 99, True, LIFE, id="an operator accepts an old copy"),
        pytest.param(LED, OURS, 900, True, LIFE, id="what is there is kept, whatever would be accepted"),
    ],
)
def test_data_that_is_the_slices_own_is_served(
    record: SliceRecord, found: DataIdentity | None, lsn: int, accept_empty: bool, incarnation: str
) -> None:
    assert admitted(record, found, lsn, accept_empty) == replace(OURS, incarnation=incarnation)


@pytest.mark.parametrize(
    ("record", "found", "lsn", "complaint"),
    [
        (LED, None, 0, "data of slice s01 is missing at /data/s01: mount it, or start once with --accept-empty"),
        (RESTORED, None, 0, "data of slice s01 is missing at /data/s01"),
        (
            LED, replace(OURS, cluster_id="9" * 32), 100,
            f"the data in /data/s01 is of slice s01 of another cluster, with id {'9' * 32}; this node belongs to"
            f" cluster chat with id {CONFIG.id}",
        ),
        (NEVER_LED, replace(OURS, cluster_id="9" * 32), 100, f"create --id {'9' * 32}"),
        (LED, replace(OURS, slice="s02"), 100, "is of slice s02 of cluster chat; slice s01 was told to use it"),
        (LED, replace(OURS, node="n02"), 100, "is of node n02, slice s01; node n01 was told to use it"),
        (
            LED, replace(OURS, incarnation=OTHER), 900,
            rf"the data in /data/s01 is of another life of slice s01 \({OTHER}\): the slice goes on with {LIFE}",
        ),
        (LED, OURS, 40, "is an old copy: it ends at LSN 40, and had 100 already; 60 records are missing"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_is_there_what_was_expected_and_what_to_do(
    record: SliceRecord, found: DataIdentity | None, lsn: int, complaint: str
) -> None:
    with pytest.raises(Conflict, match=complaint):
        admitted(record, found, lsn)


@pytest.mark.parametrize(
    "found",
    [replace(OURS, cluster_id="9" * 32), replace(OURS, slice="s02"), replace(OURS, incarnation=OTHER)],
    ids=["cluster", "slice", "life"],
)
def test_foreign_data_is_not_taken_for_an_empty_folder(found: DataIdentity) -> None:
    with pytest.raises(Conflict):
        admitted(LED, found, 900, accept_empty=True)


def test_a_claim_is_checked_as_the_folder_was() -> None:
    check_life(LED, ClaimedData(LIFE, 100))
    check_life(LED, ClaimedData(OTHER, 0, replaces=True))
    check_life(NEVER_LED, ClaimedData(OTHER, 0))
    with pytest.raises(Conflict, match="another life of slice s01"):
        check_life(LED, ClaimedData(OTHER, 100))
    with pytest.raises(Conflict, match="an old copy: it ends at LSN 99"):
        check_life(LED, ClaimedData(LIFE, 99))
