"""A key of which a queue has as much unacked as a slice gives of one is found among what an inbox remembers."""

from __future__ import annotations

from shoal.core.acks import Acked
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import Repeats
from shoal.limits import SEEN_RANGES_MAX
from shoal_contract.limits import KEY_UNACKED_MAX


def test_a_key_is_found_of_which_a_queue_has_all_that_a_slice_gives() -> None:
    pending: list[Acked] = []
    seen = Repeats(PendingAcks(lambda: pending))
    seen.deliver(b"other", 1, 9, [1])
    seen.deliver(b"k", 1, 9, [1, 2])
    assert seen.full_key(1, 9) is None
    assert seen.full_key(1, 8) == (b"other", 8, 0)
    seen.deliver(b"k", 9, 10, [1])
    assert seen.full_key(1, 9) == (b"k", 9, 0) and seen.full_key(2, 9) is None
    pending.append(Acked(b"k", 2, 4, [1]))
    assert seen.full_key(1, 9) == (b"k", 7, 2), "1, and from 4 on; the slice keeps what is acked behind each, perhaps"
    assert seen.full_key(1, 10) is None
    seen.answered(b"k", ((2, 4),), [1])
    pending.clear()
    assert seen.full_key(1, 9) == (b"k", 7, 2)
    seen.answered(b"k", ((1, 2),), [1])
    assert seen.full_key(1, 9) is None, "all that is acked is below what is not"


def test_every_second_message_of_what_a_slice_gives_of_a_key_is_remembered() -> None:
    seen = Repeats(PendingAcks(list))
    for first in range(1, KEY_UNACKED_MAX, 2):
        seen.deliver(b"k", first, first + 1, [1])
    assert seen.full_key(1, KEY_UNACKED_MAX) == (b"k", KEY_UNACKED_MAX // 2, KEY_UNACKED_MAX // 2)
    assert KEY_UNACKED_MAX // 2 < SEEN_RANGES_MAX
