"""What is kept of queues that are attached at one slice: lives that end and begin before, beside and behind answers."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.attachments import Attachments
from shoal_contract.errors import OutcomeUnknown, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire


def test_what_was_told_before_the_answer_goes_with_its_life_and_with_a_refusal() -> None:
    """A part that came before the answer to its attach, and was dropped, or whose attach was refused: the next one is
    what counts."""
    nothing: Any = lambda *told: None  # noqa: E731
    for how in ("reset", "refused"):
        attachments = Attachments("s01", {1: b"q"}, wire.Attach(), nothing, nothing, nothing, nothing, nothing)
        attachments.begin_stream()
        attachments.parts_came(wire.AckTimeouts(handles=[1], ms=[0], lives=[7]))
        if how == "reset":
            attachments.lives_ended([1])
            attachments.answered([1], wire.Attached(absent=[1], lives=[0]))
            assert attachments.without_part([1]) == [1]
        else:
            attachments.refused([1], OutcomeUnknown("the stream is lost"))
            attachments.answered([1], wire.Attached(lives=[9]))
            assert attachments._lives == {1: 9}


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("absent", [True, False])
def test_a_life_that_begins_before_the_answer_to_the_attach_is_not_ended_by_it(reset: bool, absent: bool) -> None:
    """The queue was dropped and declared anew, or got its part, while the slice attached many: its acks had no effect
    from then on. `absent`: the answer tells what was so when its queue was looked at."""
    nothing: Any = lambda *told: None  # noqa: E731
    ended: list[list[int]] = []
    attachments = Attachments(
        "s01",
        {1: b"q"},
        wire.Attach(),
        nothing,
        nothing,
        lambda handles, _: ended.append(list(handles)),
        nothing,
        nothing,
    )
    attachments.begin_stream()
    if reset:
        attachments.lives_ended([1])
    attachments.parts_came(wire.AckTimeouts(handles=[1], ms=[0], lives=[8]))
    attachments.answered([1], wire.Attached(absent=[1], lives=[0]) if absent else wire.Attached(lives=[8]))
    assert attachments._lives == {1: 8} and attachments.without_part([1]) == []
    told = [[1]] if reset else []
    assert ended == told
    attachments.end_stream()
    attachments.begin_stream()
    attachments.answered([1], wire.Attached(lives=[8]))
    assert ended == told, "it is the same life on the next stream"


def test_each_stream_counts_what_it_told_of_ended_lives_also_of_queues_that_left() -> None:
    """The slice counts all that it told, and compares."""
    nothing: Any = lambda *told: None  # noqa: E731
    attachments = Attachments("s01", {1: b"q"}, wire.Attach(), nothing, nothing, nothing, nothing, nothing)
    attachments.begin_stream()
    attachments.lives_ended([1, 2])
    attachments.lives_ended([2])
    assert attachments.resets_seen == 3
    attachments.end_stream()
    attachments.begin_stream()
    assert attachments.resets_seen == 0


def attachments_of_one(ended: list[list[int]]) -> Attachments:
    nothing: Any = lambda *told: None  # noqa: E731
    tell: Any = lambda handles, _: ended.append(list(handles))  # noqa: E731
    return Attachments("s01", {1: b"q"}, wire.Attach(), nothing, nothing, tell, nothing, nothing)


def on_its_second_stream(attachments: Attachments) -> None:
    """The first one had told that the queue has life 7."""
    attachments.begin_stream()
    attachments.answered([1], wire.Attached(lives=[7]))
    attachments.end_stream()
    attachments.begin_stream()


@pytest.mark.parametrize("lost_by", ["a refusal", "another session"])
async def test_what_ended_before_the_answer_is_forgotten_with_the_attach(lost_by: str) -> None:
    """Else a life that begins unseen before the next attach would be taken for one whose end was told."""
    ended: list[list[int]] = []
    attachments = attachments_of_one(ended)
    attachments.begin_stream()
    attachments.lives_ended([1])
    attachments.parts_came(wire.AckTimeouts(handles=[1], ms=[0], lives=[7]))
    if lost_by == "a refusal":
        attachments.refused([1], ResourceExhausted("no room", subject="room", limit=1, value=2))
    else:
        attachments.ended(1)
    attachments.attach([1])
    attachments.parts_came(wire.AckTimeouts(handles=[1], ms=[0], lives=[9]))
    attachments.answered([1], wire.Attached(absent=[1], lives=[0]))
    assert attachments._lives == {1: 9} and ended == [[1], [1]]


def test_an_answer_without_a_part_behind_the_reset_is_no_other_end() -> None:
    ended: list[list[int]] = []
    attachments = attachments_of_one(ended)
    attachments.begin_stream()
    attachments.answered([1], wire.Attached(lives=[7]))
    attachments.begin_stream()
    attachments.lives_ended([1])
    attachments.answered([1], wire.Attached(absent=[1], lives=[0]))
    assert ended == [[1]]


@pytest.mark.parametrize("lost_by", ["the stream's end", "a refusal"])
@pytest.mark.parametrize("life", [0, 7])
async def test_what_a_first_attach_delivers_before_its_answer_is_of_a_life_that_ends_with_it(
    lost_by: str, life: int
) -> None:
    """No answer tells which life it was: the next one may be another."""
    ended: list[list[int]] = []
    attachments = attachments_of_one(ended)
    attachments.begin_stream()
    attachments.delivering([1])
    if lost_by == "a refusal":
        attachments.refused([1], ResourceExhausted("no room", subject="room", limit=1, value=2))
        attachments.attach([1])
    else:
        attachments.end_stream()
        attachments.begin_stream()
    assert attachments.unconfirmed == {1} and attachments.life_of(1) == 0, "it is held back until the answer"
    attachments.answered([1], wire.Attached(absent=[] if life else [1], lives=[life]))
    assert ended == [[1]] and attachments.life_of(1) == life


def test_what_a_first_attach_delivers_before_its_answer_is_of_the_life_that_this_tells() -> None:
    ended: list[list[int]] = []
    attachments = attachments_of_one(ended)
    attachments.begin_stream()
    attachments.delivering([1])
    attachments.answered([1], wire.Attached(lives=[7]))
    attachments.end_stream()
    attachments.begin_stream()
    attachments.answered([1], wire.Attached(lives=[7]))
    assert ended == []


async def test_a_queue_without_room_that_leaves_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is detached a little later: until then it has no name any more."""
    queues = {1: b"q", 2: b"r"}
    nothing: Any = lambda *told: None  # noqa: E731
    attachments = Attachments("s01", queues, wire.Attach(), *(nothing,) * 5)
    (frame,) = attachments.begin_stream()
    asked = wire.SessionRequest()
    assert frame.fill(asked)
    frame.failed(ResourceExhausted("no room", subject="room", limit=1, value=2))
    attachments.give_up([2])
    del queues[2]
    attachments._attach_again()
    again = wire.Attach()
    assert attachments.fill(again, 0) == [1] and list(again.queues) == [b"q"]


def test_lives_that_are_presumed_to_have_ended_are_not_told_as_lives() -> None:
    """A transaction would say them of messages of the present life."""
    attachments = attachments_of_one([])
    on_its_second_stream(attachments)
    attachments.presume_ended([1])
    assert attachments.life_of(1) == 0
    attachments.answered([1], wire.Attached(lives=[8]))
    assert attachments.life_of(1) == 8


def test_a_life_that_is_presumed_to_have_ended_behind_a_reset_is_the_one_that_the_answer_tells() -> None:
    ended: list[list[int]] = []
    attachments = attachments_of_one(ended)
    on_its_second_stream(attachments)
    attachments.lives_ended([1])
    attachments.parts_came(wire.AckTimeouts(handles=[1], ms=[0], lives=[8]))
    attachments.presume_ended([1])
    ended.clear()
    attachments.answered([1], wire.Attached(lives=[8]))
    attachments.end_stream()
    attachments.begin_stream()
    attachments.answered([1], wire.Attached(lives=[8]))
    assert ended == [] and attachments.life_of(1) == 8


def test_a_life_that_ended_on_this_stream_is_not_presumed_to_have_ended_once_more() -> None:
    """That the queue was dropped was told, and taken back again."""
    ended: list[list[int]] = []
    attachments = attachments_of_one(ended)
    on_its_second_stream(attachments)
    attachments.lives_ended([1])
    assert ended == [[1]]
    attachments.presume_ended([1])
    attachments.answered([1], wire.Attached(absent=[1], lives=[0]))
    assert ended == [[1]] and attachments.without_part([1]) == [1]
