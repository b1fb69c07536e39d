"""Pulls over much that is gone: one answer tells a bounded number of gaps, and the next pull goes on."""

from __future__ import annotations

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import filling, pulling
from shoal_slice_node.core.limits import PARCEL_BYTES_MAX

from .core_driver import CoreDriver, bind, configure, declare, publish

LAST_3 = KeyOptions(capacity_messages=3, policy="drop_oldest")


def test_a_pull_tells_a_bounded_number_of_gaps_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PULL_GAPS_BYTES_MAX", 10 * PARCEL_BYTES_MAX)
    monkeypatch.setattr(pulling, "PULL_ROWS_PER_STEP", 4)
    core = CoreDriver()
    keys = [f"k{number}" for number in range(35)]
    core.change(declare("q"), *[configure(key, LAST_3) for key in keys], bind("q", *keys))
    for number in range(5):
        core.change(*[publish(key, b"%d" % number) for key in keys])
    session = core.session()
    taken: list[int] = []
    found: list[bytes] = []
    while not taken or taken[-1]:
        found += [one.key for one in core.pull(session, "q", 1_000)]
        taken.append(len(core.gaps) - sum(taken))
        assert taken[-1] <= 10
        core.check_served()
    assert sum(taken) == 35 == len({gap.key for gap in core.gaps}), "each gap is told once"
    assert len(found) == 35 * 3 and len(taken) >= 4


def test_a_pull_over_many_expired_stretches_tells_a_bounded_number_of_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PULL_GAPS_BYTES_MAX", 10 * PARCEL_BYTES_MAX)
    monkeypatch.setattr(filling, "EXPIRED_PER_GAP_MAX", 1)
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"stays"))
    for _ in range(100):
        core.change(wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[encode_chunk([b"x"])], ttl_ms=1)))
    core.change(publish("k", b"last"))
    core.now_ms += 1_000
    core.dispatcher.registry.tell_time(core.wall_ms)
    session = core.session()
    bodies: list[int] = []
    for _ in range(12):
        before = len(core.gaps)
        bodies += [one.low for one in core.pull(session, "q", 10)]
        assert len(core.gaps) - before <= 10
    assert bodies == [1, 102]
    assert core.gaps[0].first == 2 and core.gaps[-1].to == 102
