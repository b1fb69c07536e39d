"""The engine: what changes do to the tables, and that every node comes to the same ones."""

from __future__ import annotations

import pytest

from shoal_contract import names as contract_names
from shoal_contract.errors import Malformed, NoSuchQueue, OutOfRange, ShoalError, TooLarge, from_wire
from shoal_contract.limits import FRAME_BYTES_MAX, FRAME_OPERATIONS_MAX
from shoal_contract.names import printable
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind, encode_reclaim
from shoal_slice_node.core.limits import REFUSALS_BYTES_MAX
from shoal_slice_node.core.read.reading import describe_key
from shoal_slice_node.core.rows.small_rows import RECLAIM_KEY
from shoal_slice_node.core.verbs.changes import parse_change

from .core_driver import CoreDriver, bind, declare, drop, publish, unbind


def offsets(outcome: wire.Outcome) -> list[int]:
    return [offset for step in outcome.steps for offset in step.offsets]


def refusal(outcome: wire.Outcome) -> ShoalError:
    """Of the last step."""
    return from_wire(outcome.steps[-1].refusals[0].error)


def test_a_bind_from_an_offset_of_a_key_that_is_not_there_is_refused() -> None:
    core = CoreDriver()
    outcome = core.change(declare("q"), bind("q", "k", start=wire.START_OFFSET, value=0))
    assert isinstance(refusal(outcome), OutOfRange)
    core.check()


def test_a_repeated_bind_from_an_offset_returns_the_same_after_a_trim() -> None:
    core = CoreDriver()
    core.change(declare("q", "r"), bind("r", "k"), publish("k", b"a", b"b"), publish("k", b"c"))
    assert offsets(core.change(bind("q", "k", start=wire.START_OFFSET, value=2))) == [2]
    session = core.session()
    core.attach(session, "q", handle=1)
    core.attach(session, "r", handle=2)
    core.take(session)
    core.ack(session, "k", 0, 4, handle=1)
    core.ack(session, "k", 0, 4, handle=2)
    core.settle()
    assert describe_key(core.state, b"k").low == 4
    assert offsets(core.change(bind("q", "k", start=wire.START_OFFSET, value=2))) == [2]


def test_a_start_of_no_known_kind_is_refused() -> None:
    step = bind("q", "k")
    step.binds.start = 9  # type: ignore[assignment]
    with pytest.raises(Malformed, match="start 9"):
        parse_change(wire.Change(steps=[step]).SerializeToString())


@pytest.mark.parametrize(
    "change",
    [
        wire.Change(steps=[wire.Step(binds=wire.Binds())] * (FRAME_OPERATIONS_MAX + 1)),
        wire.Change(
            steps=[
                wire.Step(
                    unbinds=wire.Unbinds(
                        queues=[b"q"] * (FRAME_OPERATIONS_MAX + 1), key_counts=[0] * (FRAME_OPERATIONS_MAX + 1)
                    )
                )
            ]
        ),
    ],
    ids=["steps", "requests"],
)
def test_requests_without_keys_and_empty_steps_are_bounded(change: wire.Change) -> None:
    with pytest.raises(TooLarge, match="operations"):
        parse_change(change.SerializeToString())


def test_what_is_sent_to_a_queue_declared_again_arrives_while_the_old_one_is_reclaimed() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", *(f"k{number}" for number in range(500))), publish("@q", b"old"))
    outcome = core.change(drop("q"), declare("q"), publish("@q", b"new"))
    assert outcome.steps[-1].queues == [1]
    session = core.session()
    core.attach(session, "q")
    assert [body for _, _, body in core.take(session)] == [b"new"]
    core.check()
    core.settle()
    core.check()
    assert describe_key(core.state, b"k7").exists is False


def test_a_reclaimed_key_vanishes_where_no_row_said_so_too() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), unbind("q", "k"))
    ((key_id, _),) = core.tables.local_hints.scan()
    core.tables.local_hints.delete(key_id)
    core.record(Kind.RECLAIM, encode_reclaim([RECLAIM_KEY + key_id]))
    assert not describe_key(core.state, b"k").exists


@pytest.mark.parametrize("ended", [False, True], ids=["bound", "ended"])
def test_a_key_vanishes_though_a_restart_forgot_that_its_log_may_be_trimmed(ended: bool) -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a"))
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    if ended:
        core.change(unbind("q", "k"))
    core.ack(session, "k", 1, 2)
    core.flush()
    core.restart()
    if not ended:
        core.change(unbind("q", "k"))
    core.settle()
    assert not describe_key(core.state, b"k").exists
    assert offsets(core.change(bind("q", "k"))) == [2], "an offset never names two messages"
    core.check()


@pytest.mark.parametrize("name", [b"\xff" * 250, b"\x01" * 250, b"a"])
def test_refusals_form_no_more_texts_than_an_outcome_keeps(name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand names of control characters took half a second, and most of their texts were thrown away."""
    core = CoreDriver()
    formed = 0

    def counted(sentence: str) -> str:
        nonlocal formed
        shown = printable(sentence)
        formed += len(shown)
        return shown

    monkeypatch.setattr(contract_names, "printable", counted)
    queues = [b"%05d" % number + name for number in range(FRAME_OPERATIONS_MAX)]
    outcome = core.change(wire.Step(binds=wire.Binds(queues=queues, keys=[b"k"] * len(queues))))
    texts = sum(len(refusal.error.message) for refusal in outcome.steps[0].refusals)
    assert 0 < formed <= REFUSALS_BYTES_MAX and 0 < texts <= REFUSALS_BYTES_MAX == 64 << 10
    assert len(outcome.steps[0].refusals) == len(queues)
    last = core.change(wire.Step(drops=wire.Drops(queues=queues[-1:]))).steps[0].refusals[0].error
    assert last.subject.startswith("00999"), "the next outcome has texts again"


def test_an_outcome_of_refusals_fits_one_answer() -> None:
    core = CoreDriver()
    names = [b"%05d" % number + b"\xff" * 250 for number in range(FRAME_OPERATIONS_MAX)]
    outcome = core.change(wire.Step(drops=wire.Drops(queues=names)))
    refusals = outcome.steps[0].refusals
    assert outcome.ByteSize() < FRAME_BYTES_MAX // 2 and len(refusals) == len(names)
    assert refusals[0].error.message and {refusal.error.code for refusal in refusals} == {NoSuchQueue.code}
