"""Words are kept until they are audited, and another message under a known offset is found."""

from __future__ import annotations

import pytest

from shoal_loadtest.residents.core.talk import Said, Talk, body_of, read_body
from shoal_loadtest.residents.core.windows import CHANGED, Faults
from shoal_loadtest.residents.limits import BODY_BYTES

SAID = Said(sender=7, group=5, generation=65_535, number=1 << 40, due_s=12.5)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def talk(faults: Faults) -> Talk:
    return Talk(faults)


def test_a_body_carries_what_was_said() -> None:
    assert len(body_of(SAID)) == BODY_BYTES
    assert read_body(body_of(SAID)) == SAID


@pytest.mark.parametrize("body", [b"", b"hello", bytes(BODY_BYTES), body_of(SAID)[:-1]])
def test_what_was_not_said_here_is_told_apart(body: bytes) -> None:
    assert read_body(body) is None


def test_the_same_message_may_be_noted_by_receipt_and_by_every_delivery(talk: Talk, faults: Faults) -> None:
    for _ in range(3):
        talk.noted(b"key", 4, SAID, 1.0)

    assert len(talk) == 1
    assert not faults.counts


def test_another_message_under_the_same_offset_is_a_fault(talk: Talk, faults: Faults) -> None:
    talk.noted(b"key", 4, SAID, 1.0)
    talk.noted(b"other", 4, SAID._replace(number=2), 1.0)
    assert not faults.counts

    talk.noted(b"key", 4, SAID._replace(number=3), 1.0)
    assert faults.counts == {CHANGED: 1}
    assert faults.cases[0].where == "key key"


def test_words_are_audited_once_and_forgotten(talk: Talk) -> None:
    for offset in range(10):
        talk.noted(b"key", offset, SAID, float(offset))

    assert [heard.offset for heard in talk.audits(5.0)] == [0, 1, 2, 3, 4]
    assert [heard.offset for heard in talk.audits(5.0)] == []
    assert len(talk) == 5


def test_numbers_grow_by_group(talk: Talk) -> None:
    assert [talk.next_number(group) for group in (1, 1, 2, 1)] == [1, 2, 1, 3]
