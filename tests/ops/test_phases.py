"""Progress of long work: a check says how far it is, and never more than all of it."""

from __future__ import annotations

from pathlib import Path

from shoal_contract.limits import FRAME_OPERATIONS_MAX, PARTITIONS_DEFAULT
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.storage.offline import check_path
from tests.slice_node.brokers import running


async def test_a_check_tells_its_phases_and_how_far_it_is(tmp_path: Path) -> None:
    failures: list[object] = []
    async with running(tmp_path, checkpoint=True) as broker:
        for first in range(0, 9000, FRAME_OPERATIONS_MAX):
            queues = [b"q%d" % number for number in range(first, first + FRAME_OPERATIONS_MAX)]
            change = wire.Change(steps=[wire.Step(declares=wire.Declares(queues=queues))])
            payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), change.SerializeToString())
            broker.commit_loop.submit(Item(Kind.CHANGE, payload, lambda _: None, failures.append))
        await broker.set_owned(2, b"\x01" * PARTITIONS_DEFAULT)
    assert not failures
    told: list[tuple[str, int, int]] = []
    report = check_path(tmp_path, lambda phase, done, total: told.append((phase, done, total)))
    assert report.sound and report.rows["queue"] == 9000
    assert [phase for phase, done, _ in told if done == 0] == ["checkpoint", "counting"]
    assert max(done for _, done, _ in told) >= 9000
    assert all(done <= total for _, done, total in told)
