"""Options of queues on the wire: a number that stands for nothing is refused by name."""

from __future__ import annotations

import pytest

from shoal_contract.errors import Malformed
from shoal_contract.options import QueueOptions
from shoal_contract.wire import common_pb2


@pytest.mark.parametrize("number", [-(1 << 31), -128, -4, -1, 3, (1 << 31) - 1])
def test_an_exclusive_that_stands_for_nothing_is_refused(number: int) -> None:
    options = common_pb2.QueueOptions(exclusive=common_pb2.Exclusive.ValueType(number))
    with pytest.raises(Malformed, match=f"exclusive is {number}"):
        QueueOptions.of_wire(options)


@pytest.mark.parametrize("dead_letter", ["@jobs", b"@jobs"])
def test_a_queue_that_is_its_own_dead_letter_key_is_refused(dead_letter: str | bytes) -> None:
    options = QueueOptions(max_deliveries=2, dead_letter=dead_letter)
    with pytest.raises(Malformed, match="queue jobs: its dead_letter is its own direct key @jobs"):
        options.check_dead_letter([b"others", b"jobs"])
    options.check_dead_letter([b"others", b"@jobs"])
    QueueOptions(max_deliveries=2, dead_letter="jobs").check_dead_letter([b"jobs"])


@pytest.mark.parametrize("word", ["none", "newest", "oldest"])
def test_options_come_back_from_the_wire(word: str) -> None:
    options = QueueOptions(60, 1000, 3, "failed", word)
    found = QueueOptions.of_wire(options.to_wire())
    assert found == QueueOptions(60, 1000, 3, b"failed", word)
