"""Where a bind begins: by age, and at offsets that the key does not keep any more."""

from __future__ import annotations

import pytest

from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire

from .core_driver import CoreDriver, bind, configure, declare, publish, unbind

AGE, OFFSET = wire.START_AGE, wire.START_OFFSET


@pytest.fixture
def core() -> CoreDriver:
    """A key with chunks of two messages, one every 100 ms: offsets 1, 3, 5 ... at 1,000, 1,100, 1,200 ms ..."""
    driver = CoreDriver()
    driver.change(declare("q"), configure("k", KeyOptions(history_messages=10_000)))
    for number in range(100):
        driver.now_ms = 1_000 + 100 * number
        driver.change(publish("k", b"a", b"b"))
    return driver


def bound(core: CoreDriver, start: wire.Start.ValueType, value: int) -> int:
    """The offset from which the queue sees messages; it is unbound again."""
    outcome = core.change(bind("q", "k", start=start, value=value), unbind("q", "k", discard=True))
    core.check()
    return outcome.steps[0].offsets[0]


@pytest.mark.parametrize(
    ("ago_ms", "first"),
    [(0, 199), (1, 199), (100, 197), (150, 197), (1_000, 179), (9_899, 3), (9_900, 1), (1 << 62, 1)],
)
def test_a_bind_by_age_begins_with_the_first_chunk_that_is_young_enough(
    core: CoreDriver, ago_ms: int, first: int
) -> None:
    assert core.now_ms == 10_900
    assert bound(core, AGE, ago_ms) == first


def test_nothing_that_young_is_a_bind_from_now_on(core: CoreDriver) -> None:
    core.now_ms += 1_000
    assert bound(core, AGE, 999) == 201
    assert bound(core, AGE, 1_000) == 199


def test_a_key_that_is_not_there_begins_with_its_first_message() -> None:
    core = CoreDriver()
    core.change(declare("q"))
    assert list(core.change(bind("q", "new", start=AGE, value=5)).steps[0].offsets) == [1]


def test_the_clock_that_goes_back_makes_nothing_younger(core: CoreDriver) -> None:
    core.wall_ahead_ms -= 5_000
    assert bound(core, AGE, 100) == 197


def test_an_offset_that_is_gone_begins_where_the_key_begins(core: CoreDriver) -> None:
    core.change(configure("k", KeyOptions(history_messages=10)))
    core.settle()
    assert [bound(core, OFFSET, offset) for offset in (0, 1, 190, 191, 192, 201)] == [191, 191, 191, 191, 192, 201]
    assert core.change(bind("q", "k", start=OFFSET, value=202)).steps[0].refusals
    core.change(bind("q", "k", start=OFFSET, value=5))
    assert list(core.change(bind("q", "k", start=OFFSET, value=5)).steps[0].offsets) == [191], "it stays as it is"
