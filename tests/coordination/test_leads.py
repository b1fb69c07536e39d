"""Which address leads a slice: that of its record, while its leader is registered there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal_contract.partition_map import PartitionMap
from shoal_coordination.cluster_view import ClusterView, ViewFold
from shoal_coordination.entries import Entry
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.records import ClusterConfig, NodeRecord, SliceRecord, encode_record
from shoal_coordination.watch import Snapshot

KEYS = ClusterKeys("c")
LED = SliceRecord("s1", 3, "n1", "h:1", leader_admin_address="h:3")
NODE = NodeRecord("n1", "h:1", "s1", "h:3")


def view_of(*nodes: NodeRecord, led: SliceRecord = LED) -> ClusterView:
    records = {
        KEYS.config: encode_record(ClusterConfig("c", 8, 1, "a" * 32)),
        KEYS.map: PartitionMap.even(["s1", "s2"], 8).encode(),
        KEYS.slice("s1"): encode_record(led),
        **{KEYS.node(node.node): encode_record(node) for node in nodes},
    }
    view = ViewFold("c").apply(Snapshot(9, tuple(Entry(key, value, 1, 1, 1, 0) for key, value in records.items())))
    assert view is not None
    return view


def test_a_slice_is_led_while_its_leader_is_registered_at_the_addresses_of_its_record() -> None:
    assert view_of(NODE).leads("s1")
    old = replace(LED, leader_admin_address=""), replace(NODE, admin_address="")
    assert view_of(old[1], led=old[0]).leads("s1"), "administration listens at the same address"


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (replace(NODE, node="n2"),),
        (replace(NODE, address="h:2"),),
        (replace(NODE, admin_address="h:4"),),
        (replace(NODE, admin_address=""),),
        (replace(NODE, address="h:3", admin_address="h:1"),),
    ],
)
def test_nobody_leads_a_slice_whose_leader_is_not_registered_at_both(nodes: tuple[NodeRecord, ...]) -> None:
    """Each of the two is handed out: a stale one may be another server's by now, and `shoal drop` would go there."""
    assert not view_of(*nodes).leads("s1")


def test_nobody_leads_a_slice_that_never_had_a_leader_or_is_not_there() -> None:
    view = view_of(NODE)
    assert not view.leads("s2") and not view.leads("s3")
