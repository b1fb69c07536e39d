"""What came back and is not given yet: what records of it cost, how much of it there may be, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import acks as applied_acks
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, Reason, encode_change
from shoal_slice_node.core.dispatch import returns
from shoal_slice_node.core.dispatch import shares as dispatch_shares
from shoal_slice_node.core.dispatch.stretches import Resting, RestingStretches, Returned, cut_out
from shoal_slice_node.core.limits import OWED_BYTES, RESTING_BYTES, RETRIES_PER_RECORD_MAX
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail

from .core_driver import acks, bind, declare, drop_if, every_second, publish, raises, unbind, with_done
from .nacks_driver import NacksDriver, attached


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    core.change(declare("dead", "plain"), bind("dead", "dead"), bind("plain", "k"))
    declared(core, "q")
    core.change(bind("q", "k"))
    return core


def declared(core: NacksDriver, queue: str, **options: int) -> None:
    step = wire.Declares(queues=[queue.encode()])
    step.options.CopyFrom(QueueOptions(**{"max_deliveries": 5, **options}, dead_letter=b"dead").to_wire())  # type: ignore[arg-type]
    core.change(wire.Step(declares=step))


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Returns a function that tells how many detail rows were decoded by apply since it was called last."""
    rows: list[bytes] = []

    def decode(row: bytes) -> Detail:
        rows.append(row)
        return decode_detail(row)

    def read() -> int:
        found = len(rows)
        rows.clear()
        return found

    monkeypatch.setattr(applied_acks, "decode_detail", decode)
    return read


def retry_records(core: NacksDriver) -> int:
    return sum(record.kind == Kind.RETRY for record in core.records)


def test_nacks_of_one_binding_read_and_write_its_row_once_a_record(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.change(bind("q", "l"), publish("k", *[b"x"] * 400), publish("l", *[b"y"] * 400))
    session = attached(core)
    assert len(core.take(session)) == 800
    for offset in range(1, 400, 2):
        for key in "kl":  # By turns: what is decided is sorted by binding.
            core.nack(session, offset, offset + 1, key=key)
    decoded = counted(monkeypatch)
    core.wait(1000)
    assert retry_records(core) <= 1 + 400 // RETRIES_PER_RECORD_MAX
    assert decoded() <= 2 * retry_records(core)
    assert sorted(core.times(session)) == sorted(2 * [(offset, 1) for offset in range(1, 400, 2)])
    core.check()


def test_the_price_of_a_record_grows_with_the_ranges_of_its_bindings(core: NacksDriver) -> None:
    keys = [f"m{number}" for number in range(8)]
    core.change(*(bind("q", key) for key in keys), *(publish(key, *[b"x"] * 4096) for key in keys))
    with_done(core, "q", keys, every_second(2000))
    session = core.session(1 << 26)
    core.attach(session, "q", messages=1 << 20, size=1 << 26)
    core.take(session)
    for key in keys:
        core.nack(session, 1, 2, key=key)
    deciding = core.dispatcher.returns.deciding
    cost = deciding.decide()
    assert cost > 2000 // 16 and len(deciding.decided()) < len(keys), "a record takes a few such bindings"
    core.wait(1000)
    assert sorted(core.times(session)) == [(1, 1)] * len(keys)


def test_too_much_that_rests_is_refused_by_name_and_nothing_is_lost(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_shares, "RESTING_MAX", 6)
    monkeypatch.setattr(returns, "RESTS_PER_QUEUE_FLOOR", 0)
    core.change(*[publish("k", b"x")] * 5)
    session = attached(core)
    core.take(session)
    for offset in (1, 3, 5):
        core.nack(session, offset, offset + 1)
    with pytest.raises(ResourceExhausted, match="again yet would be 4; the limit is 3: keep the messages") as refused:
        core.nack(session, 2, 3)
    assert (refused.value.subject, refused.value.limit, refused.value.value) == ("resting messages of queue q", 3, 4)
    plain = attached(core, "plain")
    core.take(plain)
    core.nack(plain, 1, 2)  # It does not rest.
    core.wait(1000)
    core.nack(session, 2, 3)
    core.wait(1000)
    assert sorted(core.times(session)) == [(1, 1), (2, 1), (3, 1), (5, 1)]


def test_what_rests_counts_in_the_share_of_what_is_owed(core: NacksDriver) -> None:
    core.change(*[publish("k", b"x")] * 10)
    session = attached(core)
    core.take(session)
    core.nack(session, 1, 10, delay_ms=60_000)
    core.wait(100)
    shares = core.dispatcher.shares
    assert shares.rests.stretches == 1
    core.dispatcher.divide_owed([session])
    assert shares.owed.used_bytes == RESTING_BYTES + OWED_BYTES * session.owed
    core.change(unbind("q", "k", discard=True))
    assert shares.rests.stretches == 0


@pytest.mark.parametrize("max_deliveries", [1, 2])
def test_what_a_bind_promises_again_is_not_done_by_what_was_decided_before(max_deliveries: int) -> None:
    """The record is written after a frame that ends the binding and makes it anew, and so knows of both."""
    core = NacksDriver()
    core.change(declare("dead", "other"), bind("dead", "dead"), bind("other", "k"))
    declared(core, "q", max_deliveries=max_deliveries)
    core.change(bind("q", "k"), publish("k", b"a", b"b", b"c"))
    session = attached(core)
    for _ in range(max_deliveries):
        core.wait(100)
        core.times(session)
        core.nack(session, 1, 4)
    commit, change = (
        core.node.commit,
        wire.Change(steps=[unbind("q", "k", discard=True), bind("q", "k", start=wire.START_EARLIEST)]),
    )
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), change.SerializeToString())
    commit.submit(Item(Kind.CHANGE, payload, lambda _: None, raises))
    commit.gather(core.wall_ms)
    core.now_ms += 20
    core.node.tick(core.now_ms, core.wall_ms)  # It decides while the frame is being written.
    commit.written()
    while commit.to_apply:
        commit.step()
    core.commit()
    core.wait(1000)
    assert [offset for offset, _ in core.times(session)] == [1, 2, 3]
    assert core.take(attached(core, "dead")) == []
    core.check()


def test_a_queue_that_was_pulled_from_and_unbound_is_consumed_no_more() -> None:
    core = NacksDriver()
    step = wire.Declares(queues=[b"t"])
    step.options.CopyFrom(QueueOptions(expires_after_s=5).to_wire())
    core.change(wire.Step(declares=step), bind("t", "k"), declare("u"), bind("u", "k"), publish("k", b"x"))
    session = core.session()
    assert core.pull(session, "t", 10, lease_ms=60_000) and core.pull(session, "u", 10, lease_ms=60_000)
    core.change(unbind("t", "k", discard=True), unbind("u", "k", discard=True))
    assert not core.dispatcher.is_consumed(b"t") and not core.dispatcher.feeds
    assert not core.change(drop_if("u", unused=True)).steps[0].refusals
    core.wait(10_000)
    assert core.tables.queue_by_name.get(b"t") is None, "it is transient"


def test_what_rested_and_was_unbound_leaves_nothing() -> None:
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"x"))
    session = attached(core)
    core.times(session)
    core.nack(session, 1, 2, delay_ms=10_000)
    core.dispatcher.close(session)
    core.pump()
    core.change(unbind("q", "k", discard=True))
    assert not core.dispatcher.feeds


def test_resting_stretches_are_found_by_their_offsets() -> None:
    random = Random(8)
    for _ in range(300):
        kept, model = RestingStretches(), list[Resting]()
        for first in random.sample(range(0, 200, 5), 20):
            one = Resting(Returned(first, first + random.randint(1, 5), 1), Reason.NACK, 0)
            kept.add(one)
            model.append(one)
        for one in random.sample(model, 5):
            kept.remove(one)
            model.remove(one)
        low, to = sorted(random.choices(range(210), k=2))
        expected = sorted((one for one in model if one.first < to and low < one.to), key=lambda one: one.first)
        assert kept.within(low, to) == expected or low == to
        assert (kept.lowest, len(kept)) == (min(one.first for one in model), 15)


def test_delays_that_ended_early_are_left_out_in_steps_and_the_others_end_in_time(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returns, "RESTING_OVER_KEPT", 10)
    monkeypatch.setattr(returns, "RESTING_LOOKED_AT_PER_TURN", 7)
    core.restart()
    session = attached(core, "plain")
    core.change(*[publish("k", b"x")] * 100)
    core.take(session)
    delays = {offset: 300 + 40 * (offset * 37 % 101) for offset in range(1, 101)}
    for offset, delay_ms in delays.items():
        core.nack(session, offset, offset + 1, delay_ms)
    core.change(*[acks(("plain", "k", offset, offset + 1)) for offset in range(2, 101, 2)])
    kept = core.dispatcher.registry.returns
    began_ms, sizes, got = core.now_ms, [100], []
    for _ in range(60):
        core.now_ms += 100
        core.maintain()
        sizes.append(len(kept._delayed) + len(kept._old))
        came = [offset for offset, _ in core.times(session)]
        assert all(began_ms + delays[offset] <= core.now_ms for offset in came)
        got += came
    assert all(before - after <= 7 + 4 for before, after in pairwise(sizes)), (
        "so many are looked at, or over, in a tick"
    )
    assert (sorted(got), sizes[-1]) == (list(range(1, 101, 2)), 0)
    core.check()


def test_what_is_to_be_given_again_is_cut_as_offset_by_offset() -> None:
    random = Random(7)
    for _ in range(300):
        ends = sorted(random.sample(range(1, 60), 2 * random.randint(0, 8)))
        returned = [Returned(low, to, low % 3) for low, to in zip(ends[::2], ends[1::2], strict=True)]
        first = random.randint(0, 60)
        to = first + random.randint(0, 20)
        left = {
            offset: one.times for one in returned for offset in range(one.first, one.to) if not first <= offset < to
        }
        cut_out(returned, first, to)
        assert {offset: one.times for one in returned for offset in range(one.first, one.to)} == left
        assert all(before.to <= one.first < one.to for before, one in pairwise([Returned(0, 0, 0), *returned]))
