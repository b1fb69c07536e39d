"""A little comes at once where hundreds of connections hold chunks that they do not read; and what others hold of that
leaves enough for what is smaller."""

from __future__ import annotations

import pytest

from shoal_contract.options import QueueOptions
from shoal_slice_node.core.dispatch.freed_looks import FreedLooks
from shoal_slice_node.core.limits import (
    FREED_REFUSED_MAX,
    FREED_STREAMS_MAX,
    LARGE_DELIVERY_BYTES,
    OUT_OF_TURN_OF_LEFT_PARTS,
    OUT_OF_TURN_PARTS,
)
from tests.fuzz.small_limits import patched

from .core_driver import bind, declare, publish
from .crowd import CHUNK, CONNECTIONS, SHARE_BYTES, crowd
from .dead_letters_driver import declare_with
from .delivery_steps import consumer, took


def test_a_client_that_reads_gets_its_small_messages_though_hundreds_do_not_read() -> None:
    """Each came after 2 to 10 s, beside 600 connections that held a chunk of 30 KB each."""
    core, _ = crowd()
    honest = consumer(core, "honest", "honest")
    for _ in range(20):
        core.change(publish("honest", bytes(100)))
        core.pump()
        assert took(core, honest) == [100]


def test_the_first_message_comes_to_a_new_client_though_hundreds_do_not_read() -> None:
    core, _ = crowd()
    assert took(core, consumer(core, "new", "new", [b"waits"])) == [5]


def test_so_does_a_gap() -> None:
    core, _ = crowd()
    core.change(declare("new"), bind("new", "new"), publish("new", b"over", ttl_ms=1), publish("new", b"valid"))
    core.now_ms += 1_000
    core.maintain()
    session = core.session(1 << 20, "new")
    core.attach(session, "new")
    core.pump()
    taken = core.dispatcher.take(session, 1 << 20)
    assert [(one.first, one.to) for one in taken.gaps] == [(1, 2)]


def test_so_does_a_live_message() -> None:
    core, _ = crowd()
    new = consumer(core, "new", "new")
    core.live(publish("new", b"x", live=True))
    core.pump()
    assert took(core, new) == [1]


def test_what_comes_out_of_turn_leaves_enough_for_what_is_smaller() -> None:
    core, _ = crowd()
    kept = core.dispatcher.shares.line.out_of_turn
    for size in (4_000, 1_000, 100):
        names = [f"{size}-{number}" for number in range(100)]
        got = sum(bool(consumer(core, name, name, [bytes(size)]).waiting) for name in names)
        assert got and kept.held_bytes <= SHARE_BYTES // OUT_OF_TURN_PARTS
        assert got == 100 or size > 1_000, "those that are larger have filled it"
    assert took(core, consumer(core, "new", "new", [b"x"])) == [1]


def test_a_client_that_reads_nothing_holds_little_of_it_however_much_comes() -> None:
    core, _ = crowd()
    silent = consumer(core, "silent", "silent")
    for _ in range(100):
        core.change(publish("silent", bytes(900)))
        core.pump()
    assert 0 < silent.under_way_bytes * OUT_OF_TURN_OF_LEFT_PARTS <= SHARE_BYTES // OUT_OF_TURN_PARTS


def test_a_connection_gets_little_out_of_turn_however_many_sessions_it_has() -> None:
    core, _ = crowd()
    kept = core.dispatcher.shares.line.out_of_turn
    sessions = [consumer(core, f"s{number}", "one", [bytes(500)]) for number in range(100)]
    assert 0 < sum(bool(session.waiting) for session in sessions) < 20
    assert kept.held_bytes < SHARE_BYTES // OUT_OF_TURN_PARTS // 10


def test_all_users_of_a_gateway_that_reads_get_theirs_in_the_end() -> None:
    """Of 100 users on a connection 33 got a message of 100 bytes, 5 one of 4 KB; for the others nothing came for 11 s,
    though the first had read."""
    core, _ = crowd()
    users = [consumer(core, f"u{number}", "gateway") for number in range(100)]
    core.change(*(bind(f"u{number}", "all") for number in range(100)))
    for size in (100, 2_000):
        core.change(publish("all", bytes(size)))
        core.pump()
        got = 0
        while ready := [user for user in users if user.waiting]:
            got += sum(len(took(core, user)) for user in ready)
        assert got == len(users)


def test_small_messages_of_other_keys_come_beside_one_that_waits_for_its_turn() -> None:
    """They came to nobody who had a larger one in his queue."""
    core, _ = crowd()
    honest = consumer(core, "honest", "honest")
    core.change(bind("honest", "large", "small"), publish("large", CHUNK))
    core.pump()
    for _ in range(5):
        core.change(publish("small", b"x"), publish("honest", b"y"))
        core.pump()
        got: list[int] = []
        while honest.waiting:
            got += took(core, honest)
        assert got == [1, 1]


@pytest.mark.parametrize("how", ["sole", "ack timeout", "two consumers", "two with an ack timeout"])
def test_what_is_new_comes_beside_large_ones_to_all_queues(how: str) -> None:
    """To those with an ack timeout, or with two consumers, nothing came while a larger message of another key was
    next."""
    core, _ = crowd()
    core.change(declare_with("honest", QueueOptions(ack_timeout_ms=30_000 if "timeout" in how else 0)))
    names = [f"large{number}" for number in range(4)]
    core.change(bind("honest", "small", *names))
    sessions = [core.session(1 << 20, f"honest{number}") for number in range(1 + ("two" in how))]
    for session in sessions:
        core.attach(session, "honest")
    core.pump()
    for name in names:
        core.change(publish(name, CHUNK))
        core.pump()
    for _ in range(5):
        core.change(publish("small", b"x"))
        core.pump()
        assert sorted(size for session in sessions for size in took(core, session)) == [1]
    core.change(publish("small", b"x"), publish(names[0], b"y"))
    core.pump()
    assert sorted(size for session in sessions for size in took(core, session)) == [1]


@pytest.mark.parametrize("timeout_ms", [0, 30_000])
@pytest.mark.parametrize("workers", [16, 17, 40])
def test_the_one_free_worker_of_many_gets_what_is_small(workers: int, timeout_ms: int) -> None:
    """With more than 16, of which all but one were busy, none was found: the free one lay idle."""
    core, _ = crowd()
    core.change(declare_with("jobs", QueueOptions(ack_timeout_ms=timeout_ms)), bind("jobs", "first", "large"))
    busy = [core.session(1 << 20, f"w{number}") for number in range(workers - 1)]
    for session in busy:
        core.attach(session, "jobs", messages=1)
    core.pump()
    while any(attachment.window_open for session in busy for attachment in session.attachments.values()):
        core.change(publish("first", b"job"))
        core.pump()
        for session in busy:
            took(core, session)
    free = core.session(1 << 20, "free")
    core.attach(free, "jobs", messages=100)
    core.pump()
    core.change(publish("large", CHUNK))
    core.pump()
    while free.waiting:
        took(core, free)
    for number in range(10):
        core.change(bind("jobs", f"small{number}"), publish(f"small{number}", b"x"))
        core.pump()
        assert took(core, free) == [1]


def test_what_others_let_go_of_is_looked_at() -> None:
    """Others filled what may come out of turn for a moment, and read: who had found no room lay silent, with all of it
    free."""
    core, _ = crowd()
    others = [consumer(core, f"o{number}", f"o{number}", [bytes(4_000)]) for number in range(150)]
    waits = consumer(core, "waits", "waits", [bytes(4_000)])
    assert not waits.waiting and any(not other.waiting for other in others)
    got = 0
    while ready := [other for other in (*others, waits) if other.waiting]:
        for other in ready:
            got += len(took(core, other))
    assert got == 151


@pytest.mark.parametrize("large_first", ["nothing", "queues", "keys", "sessions"])
def test_what_waits_behind_large_ones_comes_as_a_client_reads(large_first: str) -> None:
    """A look at what may come now was lost where it met a large chunk: with nothing under way, nothing asked for
    another. Of 20 small messages two came in 30 s, and none to the other users of the connection."""
    core, _ = crowd()
    honest = consumer(core, "honest", "honest")
    other = honest
    for number in range(FREED_STREAMS_MAX + 4):
        large = f"large{number}"
        if large_first == "queues":
            core.change(declare(large), bind(large, large))
            core.attach(honest, large, number + 2)
        elif large_first == "keys":
            core.change(bind("honest", large))
        elif large_first == "sessions":
            other = consumer(core, large, "honest")
        core.pump()
        core.change(publish(large, CHUNK))
        core.pump()
    if large_first == "queues":
        core.change(declare("last"), bind("last", "last"))
        core.attach(honest, "last", 99)
    for _ in range(20):
        core.change(publish("last" if large_first == "queues" else "honest", b"x"))
    core.pump()
    got: list[int] = []
    while honest.waiting:
        got += took(core, honest)
    assert got == [1] * 20 and (other is honest or not other.waiting)
    assert not core.dispatcher.shares.line.freed, "looked at for ever"


def test_nothing_is_counted_once_it_was_read() -> None:
    core, sessions = crowd()
    honest = consumer(core, "honest", "honest", [b"x"])
    kept = core.dispatcher.shares.line.out_of_turn
    assert kept.held_bytes and honest.held_out_of_turn_bytes == kept.held_bytes
    took(core, honest)
    assert not kept.held_bytes and not honest.held_out_of_turn_bytes
    other = consumer(core, "other", "other", [b"x"])
    core.dispatcher.close(other)
    core.pump()
    assert not kept.held_bytes
    while ready := [session for session in sessions if session.waiting]:
        for session in ready:
            took(core, session)
    shares = core.dispatcher.shares
    assert not shares.deliveries.used_bytes and not shares.line.is_crowded


@pytest.mark.parametrize("chunks", [1, 6])
def test_each_connection_has_a_turn_once_a_few_have_read(chunks: int) -> None:
    """A turn brought each as much as it had room for: so few had one, and the others waited for 20 s."""
    core, sessions = crowd()
    large = consumer(core, "large", "large", [bytes(4 * LARGE_DELIVERY_BYTES)] * chunks)
    reads = 0
    got: list[int] = []
    while len(got) < chunks:
        if large.waiting:
            got += took(core, large)
        elif ready := [session for session in sessions if session.waiting]:
            took(core, ready[0])
            reads += 1
    assert reads < CONNECTIONS // 3 + 20 * chunks


@pytest.mark.parametrize("gone", [100, 200])
def test_a_look_in_vain_is_followed_by_others(gone: int) -> None:
    """Each that let go brought one look. If that found nothing, as the queue was detached meanwhile, those behind lay
    silent for good, with nearly all of it free."""
    core, _ = crowd()
    others = [consumer(core, f"o{number}", f"o{number}", [bytes(4_000)]) for number in range(150)]
    for number in range(gone):
        core.dispatcher.detach(consumer(core, f"gone{number}", f"gone{number}", [bytes(3_000)]), 1)
    waits = consumer(core, "waits", "waits", [bytes(3_000)])
    assert not waits.waiting
    for _ in range(3):
        for other in others:
            took(core, other)
    out_of_turn = core.dispatcher.shares.line.out_of_turn
    for _ in range(4):
        core.now_ms += 1_000
        core.maintain()
        core.pump()
    assert waits.waiting or waits.connection in out_of_turn.refused, "it is not forgotten"
    for other in others:
        took(core, other)
    core.now_ms += 1_000
    core.maintain()
    core.pump()
    assert len(took(core, waits)) == 1


def test_few_that_found_no_room_are_looked_at_as_one_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and though none of them may have anything yet."""
    begun, begin = 0, FreedLooks.begin

    def counted(looks: FreedLooks, connection: str) -> None:
        nonlocal begun
        begun += 1
        begin(looks, connection)

    core, _ = crowd()
    tiny = consumer(core, "tiny", "tiny", [b"x"])
    for number in range(350):
        consumer(core, f"o{number}", f"o{number}", [bytes(900)] * 2)
    out_of_turn = core.dispatcher.shares.line.out_of_turn
    refused = len(out_of_turn.refused)
    assert refused > 100
    monkeypatch.setattr(FreedLooks, "begin", counted)
    assert took(core, tiny) == [1]
    assert 0 < begun <= FREED_REFUSED_MAX + 1, "and at its own connection"
    begun = 0
    with patched({"FREED_REFUSED_EACH_TIME": 9}):
        core.now_ms += 1_000
        core.maintain()
        core.pump()
    assert 0 < begun <= 9
    assert len(out_of_turn.refused) == refused, "none is forgotten"
