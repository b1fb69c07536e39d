"""Proves that the fuzzer finds defects: small ones are put into core and dispatch, and each must be found within a
number of runs. A fuzzer that misses one of them fails here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import pytest

from shoal_contract.errors import Corrupt
from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply import acks, drops, farewells, purges, retries, trims, undone
from shoal_slice_node.core.apply.records import Kind, Reason
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch import letters, loading
from shoal_slice_node.core.dispatch.acks_in_flight import AcksInFlight
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.growing import Growing
from shoal_slice_node.core.dispatch.leases import Lease, LeaseClock
from shoal_slice_node.core.dispatch.letters import Letters
from shoal_slice_node.core.dispatch.range_room import RangeRoom
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.returns import Returns
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.verbs import applying, engine
from shoal_slice_node.core.verbs.changes import Checked
from shoal_slice_node.core.watching.watched_key import WatchedKey
from shoal_slice_node.core.watching.watched_prefix import WatchedPrefix
from shoal_slice_node.core.watching.watching import Watching
from tests.fuzz.runs import attempt, plan


class Defect(NamedTuple):
    """A defect. `make` takes the function `name` of `owner` and returns its replacement. `runs`: the defect is found
    within so many runs, from `first` on: those that few runs find begin nearer to one that does, to save time."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    runs: int
    first: int = 0


def one_too_far(move_cursor: Any) -> Any:
    return lambda row, key_id, first, to: move_cursor(row, key_id, first, to + 1)


def one_delivery_lost(take: Any) -> Any:
    def taken(session: Session, bytes_max: int, now_ms: int = 0) -> Any:
        found = take(session, bytes_max, now_ms)
        return found._replace(deliveries=found.deliveries[:-1]) if len(found.deliveries) > 1 else found

    return taken


def nothing(_: Any) -> Any:
    return lambda *_: None


def last_returned_first(give_again: Any) -> Any:
    def given_again(stream: Stream, back: Any) -> None:
        give_again(stream, back)
        if stream.returned:
            stream.returned.reverse()

    return given_again


def counted_and_left(_: Any) -> Any:
    def discard(state: Any, queue: Any, key_id: bytes) -> None:
        queue.details -= 1

    return discard


def replay_skips_acks(apply: Any) -> Any:
    """Returns an apply that skips acks for an engine without a dispatcher, which replay has."""

    def applied(state: State, record: Record, checked: Checked | None = None) -> Iterator[None]:
        if record.kind != Kind.ACKS or state.interest.queues:
            yield from apply(state, record, checked)

    return applied


def a_third_of_the_time(_: Any) -> Any:
    def begin(lease: Lease, now_ms: int) -> None:
        lease.until_ms = now_ms + lease.lease_ms // 3

    return begin


def never_begun(_: Any) -> Any:
    return lambda clock, _: clock._open.clear()


def counted_unsent(_: Any) -> Any:
    """Returns a way to take what was not sent that counts it as delivered."""

    def not_sent(returns: Returns, stream: Stream, back: Any) -> None:
        sessions = [attachment.session for attachment in stream.feed.attachments.values()]
        returns.came_back(stream, back, Reason.LEFT, sessions[0] if sessions else Session(0, 0))

    return not_sent


def always_seen(nack: Any) -> Any:
    return lambda acks, attachment, key_id, first, to, terms, lists: nack(
        acks, attachment, key_id, first, to, terms._replace(unseen=False), lists
    )


def goes_on(_: Any) -> Any:
    return lambda attachment: setattr(attachment, "window_messages", max(1, attachment.window_messages - 1))


def one_time_more(copy_of: Any) -> Any:
    return lambda chunk, index, death: copy_of(chunk, index, death._replace(times=death.times + 1))


def lost_on_its_way(_: Any) -> Any:
    return lambda letters, letter, _: letters.sent(letter)


def one_message_more(decode_trims: Any) -> Any:
    return lambda payload: [(key_id, low + 1, lsn) for key_id, low, lsn in decode_trims(payload)]


def never_less(count: Any) -> Any:
    return lambda room, feed, more: count(room, feed, max(0, more))


def uncounted(_: Any) -> Any:
    return lambda _, spread: spread.chunks.clear()


def said_all_the_same(_: Any) -> Any:
    return lambda state, queue_id, farewell, number, _: farewells._say(state, queue_id, farewell, number)


def all_by_one_producer(_: Any) -> Any:
    return lambda _: sha256(b"the same for all")


DEFECTS = {
    "an ack goes one too far": Defect(acks, "move_cursor", one_too_far, 20),
    "a delivery is lost on its way": Defect(Session, "take", one_delivery_lost, 20),
    "a session that has room again is not asked": Defect(Registry, "has_room_again", nothing, 20),
    "what is given again comes in another order": Defect(Stream, "give_again", last_returned_first, 20, first=360),
    "a purge forgets ended bindings": Defect(purges, "_purge_details", lambda _: lambda *_: 0, 60),
    "a drop leaves a row": Defect(drops, "discard_ended", counted_and_left, 60),
    "a repeated frame is done again": Defect(applying, "repeated_answer", nothing, 20),
    "replay skips acks": Defect(engine, "apply_record", replay_skips_acks, 20, first=750),
    "what is done is given again": Defect(undone, "_next_stretch", lambda _: lambda _, low, to: (low, to), 20),
    "ended bindings are not loaded": Defect(loading, "_load_ended", lambda _: lambda *_: iter(()), 20),
    "a log is trimmed too far": Defect(trims, "decode_trims", one_message_more, 20),
    "a transaction is tried on the tables themselves": Defect(State, "tried", lambda _: lambda state: state, 20),
    "a change acks what sessions keep": Defect(AcksInFlight, "acked_by_change", nothing, 20),
    "a drop leaves a farewell": Defect(drops, "forget_farewell", nothing, 20),
    "a farewell that was set anew is said": Defect(farewells, "_say_unless_newer", said_all_the_same, 60),
    "letters share a producer": Defect(farewells, "sha256", all_by_one_producer, 60),
    "an ack timeout ends early": Defect(Lease, "begin", a_third_of_the_time, 60),
    "ack timeouts never end": Defect(LeaseClock, "begin_open", never_begun, 20),
    "counts of deliveries are not kept": Defect(
        retries._Retrying, "_count", lambda _: staticmethod(lambda *_: False), 60, first=170
    ),
    "what was not sent counts as delivered": Defect(Returns, "not_sent", counted_unsent, 60),
    "what no program was given counts as delivered": Defect(AcksInFlight, "nack", always_seen, 20, first=80),
    "a stopped handle gets more": Defect(Attachment, "stop", goes_on, 60),
    "a dead letter has no copy": Defect(retries, "copy_of", nothing, 60),
    "a copy says a wrong count": Defect(retries, "copy_of", one_time_more, 60),
    "dead letters share a producer": Defect(letters, "sha256", all_by_one_producer, 60),
    "a dead letter that is lost counts as sent": Defect(Letters, "not_sent", lost_on_its_way, 60),
    "a watch does not tell who leaves": Defect(WatchedKey, "left", nothing, 20, first=100),
    "a watch does not tell presence": Defect(Watching, "attached", nothing, 20, first=220),
    "a watched prefix does not hear of changes": Defect(WatchedPrefix, "changed", nothing, 20),
    "what sessions only pull from is not counted": Defect(Feed, "_count_pulled", nothing, 20),
    "ranges that are gone still count": Defect(RangeRoom, "count", never_less, 20),
    "chunks that wait are let go uncounted": Defect(Growing, "_let_go", uncounted, 20),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, make, runs, first = DEFECTS[name]
    monkeypatch.setattr(owner, function, make(getattr(owner, function)))
    for seed in range(first, first + runs):
        failure = attempt(plan(seed))
        if failure is not None:
            assert isinstance(failure.error, AssertionError | Corrupt), failure.error
            return
    pytest.fail(f"not found in {runs} runs: {name}")
