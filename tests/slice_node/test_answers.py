"""Answers of a session: all are in their share of memory, and who does not take them is not read any further."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation, Start
from shoal_slice_node.adapters.answers import Answers
from shoal_slice_node.adapters.limits import (
    ANSWER_BYTES,
    ANSWERS_HELD_FLOOR_BYTES,
    ANSWERS_PENDING_MAX,
    LARGE_ANSWER_BYTES,
    RESERVED_ANSWER_BYTES,
    SMALL_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
)

from .brokers import connected, running
from .core_driver import declare
from .raw_session import RawSession

LARGE = wire.Answer(outcome=bytes(100_000))


def answers_of(room: AnswerRoom) -> Answers:
    return Answers(room, lambda: None)


def taken(answers: Answers, room_bytes: int) -> wire.SessionResponse:
    """Returns the response that is made of the answers that fit."""
    parts: list[bytes] = []
    answers.take(parts, room_bytes)
    return wire.SessionResponse.FromString(b"".join(parts))


def test_answers_that_are_not_read_stop_their_session() -> None:
    """1,024 answers of refused frames, 550 KB each, waited for each session: three took a node of 512 MiB to 1,168."""
    room = AnswerRoom(20 * LARGE_ANSWER_BYTES)
    answers = answers_of(room)
    count = 0
    while answers.room.is_set():
        answers.expect(1)
        answers.add(LARGE, 1)
        count += 1
    assert answers.held_bytes() == room.share.used_bytes <= room.share.limit_bytes // 4
    response = taken(answers, 1 << 30)
    assert len(response.answers) == count and not answers.room.is_set(), "they are on their way, and not there"
    answers.written()
    assert answers.room.is_set() and not room.share.used_bytes and not answers.owed


def test_a_session_that_is_owed_too_much_is_read_on_at_half_of_it() -> None:
    """Not at each answer: reading would stop again at once."""
    answers = answers_of(AnswerRoom(20 * LARGE_ANSWER_BYTES))
    answers.expect(ANSWERS_PENDING_MAX + 1)
    assert not answers.room.is_set()
    while answers.owed > ANSWERS_PENDING_MAX // 2:
        assert not answers.room.is_set(), answers.owed
        answers.add(wire.Answer(), 1)
        answers.take([], 1000)
    assert answers.room.is_set()


def test_answers_of_all_sizes_are_joined_as_they_came_and_counted_as_they_wait() -> None:
    """An answer was charged its bytes and waited as a message, which takes 5 to 208 times as much."""
    room = AnswerRoom(20 * LARGE_ANSWER_BYTES)
    answers = answers_of(room)
    sizes = [0, 1, 100, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 16_370, 16_384, 100_000, 3_000_000]
    asked = [wire.Answer(sequence=number, outcome=bytes(size)) for number, size in enumerate(sizes)]
    for one in asked:
        answers.expect(1)
        answers.add(one, 1)
    assert room.share.used_bytes == sum(ANSWER_BYTES + one.ByteSize() for one in asked) == answers.held_bytes()
    found = list(taken(answers, 130).answers)
    assert len(found) == 2, "what fits"
    found = [*found, *taken(answers, 1).answers, *taken(answers, 1 << 30).answers]
    assert found == asked and not answers.owed and not answers
    answers.written()
    assert not room.share.used_bytes


def test_an_answer_that_is_prepared_counts_until_it_is_written_dropped_or_its_session_ends() -> None:
    """Places of what is unacked waited for the journal as a list, which nothing counted."""
    room = AnswerRoom(20 * LARGE_ANSWER_BYTES)
    answers = answers_of(room)
    first, second, third = [answers.prepare(LARGE) for _ in range(3)]
    cost_bytes = LARGE.ByteSize() + ANSWER_BYTES
    assert room.share.used_bytes == answers.held_bytes() == 3 * cost_bytes and not answers
    answers.drop_prepared(first)
    answers.add_prepared(second, 0)
    assert room.share.used_bytes == 2 * cost_bytes
    assert list(taken(answers, 1 << 30).answers) == [LARGE]
    answers.written()
    assert room.share.used_bytes == answers.held_bytes() == cost_bytes
    answers.close()
    assert not room.share.used_bytes
    answers.add_prepared(third, 0)
    answers.drop_prepared(answers.prepare(LARGE))
    assert not room.share.used_bytes and not answers


def test_where_the_share_is_full_a_session_goes_on_frame_by_frame() -> None:
    room = AnswerRoom(0)
    other, answers = answers_of(room), answers_of(room)
    while room.share.free_bytes > 0:
        other.add(LARGE, 1)
    small = wire.Answer(sequence=1)
    for _ in range(3):
        answers.expect(1)
        assert not answers.room.is_set()
        answers.add(small, 1)
        assert answers.take([], 1000) < 1000
        assert answers.room.is_set(), "its answer is on its way"
        answers.written()
    answers.add(LARGE, 0)
    assert answers.held_bytes() > ANSWERS_HELD_FLOOR_BYTES and not answers.room.is_set()
    answers.close()
    other.close()
    assert not room.share.used_bytes


def test_a_large_answer_fills_what_was_reserved_for_it() -> None:
    room = AnswerRoom(LARGE_ANSWER_BYTES)
    answers = answers_of(room)
    answer, keep = answers.large(128)
    answers.expect(128)
    room.reserve(keep, "session")
    assert room.share.free_bytes == 0
    answer(LARGE)
    assert room.share.used_bytes == LARGE.ByteSize() + RESERVED_ANSWER_BYTES
    answers.take([], 1 << 30)
    assert answers.held_bytes() == LARGE.ByteSize() + RESERVED_ANSWER_BYTES
    answers.written()
    assert not room.share.used_bytes and not answers.owed
    answers.close()
    late, keep = answers.large(1)
    begun: list[bool] = []
    room.reserve(lambda reservation: begun.append(keep(reservation)), "session")
    late(LARGE)
    assert begun == [False] and not room.share.used_bytes, "nobody waits for it"


def test_small_answers_do_not_wait_behind_large_ones_that_nobody_reads() -> None:
    """Clients that read no answers to large describes made a look at one queue wait for seconds."""
    room = AnswerRoom(2 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    held: list[Reservation] = []
    for number in range(20):
        room.reserve(held.append, f"hostile {number}")
    assert len(held) == 2 and room.waiting == 18
    small: list[Reservation] = []
    while room.has_room_for_small:
        room.reserve(small.append, "honest", SMALL_ANSWER_BYTES)
    assert len(small) == SMALL_ANSWERS_BYTES // SMALL_ANSWER_BYTES and room.waiting == 18
    small[0].settle(100)
    assert not room.has_room_for_small
    small[0].release()
    room.reserve(small.append, "honest", SMALL_ANSWER_BYTES)
    assert not room.has_room_for_small
    last: list[Reservation] = []
    room.reserve(last.append, "late", SMALL_ANSWER_BYTES)
    assert not last and room.waiting == 19, "it waits as all others do"
    held[0].release()
    held[1].release()
    assert len(held) == 4 and not last, "in its turn"
    for one in small:
        one.release()
    while room.waiting:
        for one in (*held, *last):
            one.release()
    for one in (*held, *last):
        one.release()
    assert not room.share.used_bytes and len(held) == 20 and len(last) == 1 and room.has_room_for_small


def test_small_answers_never_keep_large_ones_waiting() -> None:
    """They had the first turn: those that came all the time took what was freed before a large one ever had room."""
    room = AnswerRoom(2 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    small: list[Reservation] = []
    for number in range(500):
        room.reserve(small.append, f"hostile {number}", SMALL_ANSWER_BYTES)
    large: list[Reservation] = []
    room.reserve(large.append, "honest")
    for _ in range(1_000):
        if large:
            break
        small.pop(0).release()
        room.reserve(small.append, "hostile again", SMALL_ANSWER_BYTES)
    assert large


def test_small_answers_that_are_read_slowly_leave_a_large_one_its_room() -> None:
    """They took the room down to nothing while no large one waited; the next one waited until much was read."""
    room = AnswerRoom(4 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    small: list[Reservation] = []
    for number in range(5_000):
        room.reserve(small.append, f"hostile {number}", SMALL_ANSWER_BYTES)
    large: list[Reservation] = []
    room.reserve(large.append, "honest")
    waited, read = room.waiting, 0
    assert waited > 1_000
    while not large:
        small.pop(0).release()
        read += 1
    assert read <= waited + SMALL_ANSWERS_BYTES // SMALL_ANSWER_BYTES + 1, "each that is read lets the next begin"


def test_who_holds_small_answers_comes_after_those_that_hold_none() -> None:
    room = AnswerRoom(LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    begun: list[str] = []
    small: list[Reservation] = []
    first: list[Reservation] = []
    room.reserve(first.append, "other")
    room.reserve(small.append, "hostile", SMALL_ANSWER_BYTES)

    def begins(name: str) -> Start:
        def start(reservation: Reservation) -> None:
            begun.append(name)
            reservation.release()

        return start

    for name in ("hostile", "honest"):
        room.reserve(begins(name), name)
    first[0].release()
    assert begun == ["honest", "hostile"]
    room.reserve(first.append, "other")
    room.reserve(begins("hostile"), "hostile")
    small[0].release()
    room.reserve(begins("honest"), "honest")
    first[1].release()
    assert begun[2:] == ["hostile", "honest"], "it holds none any more"


def test_every_request_begins_whatever_its_source_holds() -> None:
    """A source that took a small answer while it waited was in both lines, and what waited in one of them was lost."""
    rng = random.Random(7)
    for _ in range(100):
        room = AnswerRoom(2 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
        held: list[Reservation] = []
        begun = asked = 0

        def start(reservation: Reservation) -> None:
            nonlocal begun
            begun += 1
            held.append(reservation)  # noqa: B023 - it is called within the round

        for _ in range(300):
            if rng.random() < 0.55:
                asked += 1
                room.reserve(start, rng.randrange(4), rng.choice((SMALL_ANSWER_BYTES, LARGE_ANSWER_BYTES)))
            elif held:
                one = held.pop(rng.randrange(len(held)))
                one.settle(rng.randrange(1, one.bytes + 1))
                one.release()
        while held:
            held.pop().release()
        assert begun == asked
        assert not (room.share.used_bytes or room.waiting or room._held or room._waiting)
        assert room.has_room_for_small


def test_a_source_that_always_holds_small_answers_has_its_turn() -> None:
    room = AnswerRoom(LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    large: list[Reservation] = []
    mine: list[Reservation] = []
    room.reserve(lambda reservation: None, "looks", SMALL_ANSWER_BYTES)
    room.reserve(large.append, "other 0")
    room.reserve(mine.append, "looks")
    for number in range(1, 20):
        room.reserve(large.append, f"other {number}")
        room.reserve(large.append, f"another {number}")
        if mine:
            break
        large.pop(0).release()
    assert mine and number < 12


@pytest.mark.parametrize("others_between_looks", [2, 4, 8, 16, 30])
def test_a_source_that_looks_now_and_then_keeps_its_place(others_between_looks: int) -> None:
    """Each small answer that came and went put its waiting pull behind all others: they were served for ever before."""
    room = AnswerRoom(3 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    large: list[tuple[int, Reservation]] = []

    def pull(number: int) -> None:
        room.reserve(lambda reservation: large.append((number, reservation)), number)

    for number in range(40):
        pull(number)
    mine: list[Reservation] = []
    room.reserve(mine.append, "looks")
    small: list[Reservation] = []
    served = 0
    while not mine and served < 1_000:
        number, reservation = large.pop(0)
        reservation.release()
        pull(number)
        served += 1
        if served % others_between_looks == 0:
            if small:
                small.pop().release()
            else:
                room.reserve(small.append, "looks", SMALL_ANSWER_BYTES)
    assert served <= 50, "while it holds an answer, others pass it"


@pytest.mark.parametrize("seed", range(20))
def test_each_source_that_waits_has_its_turn_soon(seed: int) -> None:
    """Whatever comes and goes meanwhile: before it begin at most so many others as its line and its turn allow."""
    rng = random.Random(seed)
    room = AnswerRoom(2 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    large: list[Reservation] = []
    small: list[Reservation] = []
    begun = 0
    began: dict[int, int] = {}
    """How many had begun as a source began to wait."""
    longest = 0

    def ask(source: int) -> None:
        def start(reservation: Reservation) -> None:
            nonlocal begun, longest
            begun += 1
            longest = max(longest, begun - began.pop(source))
            large.append(reservation)

        if source not in began:
            began[source] = begun
            room.reserve(start, source)

    sources = 12
    for _ in range(5_000):
        choice = rng.random()
        if choice < 0.5:
            ask(rng.randrange(sources))
        elif choice < 0.7:
            room.reserve(small.append, rng.randrange(sources), SMALL_ANSWER_BYTES)
        elif choice < 0.8 and small:
            small.pop(rng.randrange(len(small))).release()
        elif large:
            large.pop(0).release()
    assert begun > 500
    assert longest <= sources * 9


async def test_what_a_session_is_owed_is_never_below_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large change weighs more than a small one, before it is answered and then: else a session never pauses."""
    owed: list[int] = []
    take = Answers.take

    def taken(self: Answers, response: list[bytes], room_bytes: int) -> int:
        left = take(self, response, room_bytes)
        owed.append(self.owed)
        return left

    monkeypatch.setattr(Answers, "take", taken)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(60):
        session = await RawSession.open(SliceServiceStub(channel))
        for number in range(3):
            await session.change(*(declare(f"q{number}-{each}") for each in range(900)))
            await session.attach([b"q0-0"] if not number else [b"q%d-1" % number], first_handle=number + 1)
    assert owed and min(owed) == 0 == owed[-1]


@pytest.mark.parametrize("ends", [False, True])
def test_large_answers_count_until_they_are_taken_also_where_the_session_ends_meanwhile(ends: bool) -> None:
    """A session that holds most ends first: one that had read large answers counted with all of them."""
    room = AnswerRoom(20 * LARGE_ANSWER_BYTES)
    answers = answers_of(room)
    for _ in range(2):
        fill, keep = answers.large(1)
        room.reserve(keep, "source")
        fill(LARGE)
    assert answers.held_bytes() == room.share.used_bytes == 2 * (LARGE.ByteSize() + RESERVED_ANSWER_BYTES)
    assert len(taken(answers, 1 << 30).answers) == 2
    if ends:
        answers.close()
    answers.written()
    assert answers.held_bytes() == room.share.used_bytes == 0
