"""Farewells for keys of other slices that take none: what is noted of them, what is tried again, and what ends."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.dispatch import farewells as dispatch_farewells
from shoal_slice_node.core.limits import (
    FAREWELL_LETTER_REFUSED_MS,
    FAREWELL_LINES_FORGOTTEN_MS,
    LETTER_AGAIN_MS,
    LETTER_AGAIN_MS_MAX,
)

from .core_driver import farewell
from .farewell_driver import FarewellDriver


@pytest.fixture(params=[False, True], ids=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> FarewellDriver:
    return FarewellDriver(request.param)


def letters_to(core: FarewellDriver, *keys: str) -> None:
    """Queue `anna` has said a farewell to each of these keys, which are another slice's."""
    core.own(core.partition("@anna"), core.partition("@reader"), core.partition("room"))
    for key in keys:
        core.change(farewell("anna", key=key, body=b"bye"))
        core.maintain()


def away(core: FarewellDriver, count: int) -> list[str]:
    """Keys of another slice."""
    homes = {core.partition(key) for key in ("@anna", "@reader", "room")}
    return [key for key in (f"away{number}" for number in range(10 * count)) if core.partition(key) not in homes][
        :count
    ]


def test_letters_that_one_key_does_not_take_are_tried_one_at_a_time(
    core: FarewellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_farewells, "FAREWELL_LETTERS_WAITING_MAX", 3)
    monkeypatch.setattr(dispatch_farewells, "FAREWELL_LETTERS_PER_RECORD_MAX", 2)
    for _ in range(6):
        letters_to(core, away(core, 1)[0])
    box = core.dispatcher.farewells.letters
    for _ in range(20):
        letter = box.take(core.now_ms)
        assert letter is not None and box._lines.items <= 3
        box.not_sent(letter, core.now_ms)
        assert box._lines.items == len(box._known) == 1, "the others wait on disk"
        core.now_ms += LETTER_AGAIN_MS_MAX
    sent: list[bytes] = []
    for _ in range(3):  # A round finds those that were passed over.
        while (letter := box.take(core.now_ms)) is not None:
            box.sent(letter)
            sent.append(letter.row_key)
        core.now_ms += LETTER_AGAIN_MS_MAX
    assert len(sent) == len(set(sent)) == 6
    while core.maintain():
        pass
    assert core.kept == (0, 0) and not box.ready(core.now_ms)
    core.check()


def test_letters_for_a_key_that_takes_none_hold_up_no_other(
    core: FarewellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_farewells, "FAREWELL_LETTERS_WAITING_MAX", 3)
    full, other = away(core, 2)
    letters_to(core, *[full] * 9, other)
    box = core.dispatcher.farewells.letters
    for _ in range(9):
        letter = box.take(core.now_ms)
        assert letter is not None
        if letter.key == other.encode():
            break
        box.not_sent(letter, core.now_ms, full=True)
    assert letter is not None and letter.key == other.encode()


def test_more_keys_that_take_none_than_are_noted_hold_up_no_other(
    core: FarewellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_farewells, "FAREWELL_LETTERS_WAITING_MAX", 3)
    monkeypatch.setattr(dispatch_farewells, "FAREWELL_LINES_FORGOTTEN_MAX", 2)
    *full, other = away(core, 9)
    letters_to(core, *full, other)
    box = core.dispatcher.farewells.letters
    tried: list[bytes] = []
    for _ in range(60):
        while box.ready(core.now_ms) and (letter := box.take(core.now_ms)) is not None:
            tried.append(letter.key)
            if letter.key == other.encode():
                box.sent(letter)
            else:
                box.not_sent(letter, core.now_ms)
            assert box._lines.items <= 3 and len(box._known) <= 4
        core.now_ms += FAREWELL_LINES_FORGOTTEN_MS
    assert other.encode() in tried and {key.encode() for key in full} <= set(tried)
    before = len(tried)
    core.now_ms += LETTER_AGAIN_MS_MAX
    while box.ready(core.now_ms) and (letter := box.take(core.now_ms)) is not None:
        tried.append(letter.key)
        box.sent(letter)
    assert len(tried) > before, "they are tried again"


def test_what_a_key_refuses_that_was_full_for_an_hour_ends(core: FarewellDriver) -> None:
    full, other = away(core, 2)
    letters_to(core, full, full, other)
    box = core.dispatcher.farewells.letters
    start_ms = core.now_ms
    while box.ended < 2:
        letter = box.take(core.now_ms)
        if letter is None:
            core.now_ms += LETTER_AGAIN_MS
        elif letter.key == full.encode():
            box.not_sent(letter, core.now_ms, full=True)
        else:
            box.not_sent(letter, core.now_ms)  # Its slice is away: it stays, however long that lasts.
        assert core.now_ms - start_ms < 2 * FAREWELL_LETTER_REFUSED_MS
    assert core.now_ms - start_ms >= FAREWELL_LETTER_REFUSED_MS
    core.maintain()
    assert core.kept[0] == 1
    core.check()
    letters_to(core, full)
    core.now_ms += LETTER_AGAIN_MS_MAX
    for letter in list(iter(lambda: box.take(core.now_ms), None)):
        box.sent(letter)
    core.maintain()
    assert core.kept[0] == 0 and full.encode() not in box._refusing
