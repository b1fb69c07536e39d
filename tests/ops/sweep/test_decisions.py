"""A part is dropped when its home said twice that a newer life has its place, and never else, unless asked to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Part
from shoal_ops.sweep.decisions import Suspects, is_doubtful, is_over, is_unknown

PART = Part("s02", b"q", 100)


@pytest.mark.parametrize(
    ("incarnation", "homes", "over", "unknown", "doubtful"),
    [
        (100, {b"q": 100}, False, False, False),
        (100, {b"q": None}, False, True, False),
        (100, {b"q": 200}, True, False, False),
        (200, {b"q": 100}, False, True, False),
        (100, {b"q": 0}, False, False, False),
        (0, {b"q": 100}, False, False, False),
        (0, {b"q": 0}, False, False, False),
        (0, {b"q": None}, False, False, True),
        (100, {}, False, False, False),
        (0, {}, False, False, False),
    ],
)
def test_a_life_is_over_only_when_the_home_knows_a_newer_one(
    incarnation: int, homes: dict[bytes, int | None], over: bool, unknown: bool, doubtful: bool
) -> None:
    part = Part("s02", b"q", incarnation)
    assert (is_over(part, homes), is_unknown(part, homes), is_doubtful(part, homes)) == (over, unknown, doubtful)


@pytest.mark.parametrize("at_home", [None, 50])
def test_what_the_home_does_not_know_is_dropped_only_where_asked_to(at_home: int | None) -> None:
    for unknown_too in (False, True):
        suspects = Suspects(10, pause_s=0, unknown_too=unknown_too)
        suspects.found([PART], {b"q": at_home}, now_s=0)
        assert suspects.due(0, 10) == [PART] * unknown_too
        assert suspects.settle([PART], [PART], {b"q": at_home}) == [PART] * unknown_too


def test_it_takes_two_looks_and_a_pause_between_them() -> None:
    suspects = Suspects(10, pause_s=30, unknown_too=True)
    suspects.found([PART], {b"q": None}, now_s=100)
    suspects.found([PART], {b"q": None}, now_s=120)
    assert suspects.due(129, 10) == []
    assert suspects.due(130, 10) == [PART]
    assert suspects.settle([PART], [PART], {b"q": None}) == [PART]
    assert len(suspects) == 0


@pytest.mark.parametrize(
    ("parts", "homes"),
    [
        ([PART], {b"q": 100}),
        ([], {b"q": None}),
        ([Part("s02", b"q", 200)], {b"q": 200}),
        ([Part("s02", b"q", 200)], {b"q": None}),
        ([PART], {}),
    ],
)
def test_what_changed_meanwhile_is_spared(parts: list[Part], homes: dict[bytes, int | None]) -> None:
    suspects = Suspects(10, pause_s=0, unknown_too=True)
    suspects.found([PART], {b"q": None}, now_s=0)
    assert suspects.settle([PART], parts, homes) == []
    assert len(suspects) == 0, "it begins anew"


def test_suspects_are_few_and_begin_anew_with_a_newer_map() -> None:
    suspects = Suspects(3, pause_s=0, unknown_too=True)
    suspects.follow_map(1)
    parts = [Part("s02", b"%d" % number, 1) for number in range(9)]
    suspects.found(parts, dict.fromkeys([part.queue for part in parts]), now_s=0)
    assert len(suspects) == 3
    assert suspects.due(0, 2) == parts[:2]
    suspects.follow_map(1)
    assert len(suspects) == 3
    suspects.follow_map(2)
    assert len(suspects) == 0


STEPS = st.lists(st.sampled_from(["declare", "drop home", "drop all", "make part", "look", "second look"]), max_size=30)


@given(STEPS)
def test_no_living_part_is_ever_dropped(steps: list[str]) -> None:
    """One queue, one other slice; each look asks the home after the part, with anything in between."""
    suspects = Suspects(10, pause_s=0, unknown_too=True)
    life, home, part = 0, None, None  # type: tuple[int, int | None, int | None]
    looks: list[Part] = []
    for step in steps:
        if step == "declare" and home is None:
            life += 1
            home = life
        elif step == "drop home":
            home = None
        elif step == "drop all":
            part = None if part == home else part
            home = None
        elif step == "make part" and home is not None:
            part = home
        elif step == "look":
            found = [] if part is None else [Part("s02", b"q", part)]
            suspects.found(found, {b"q": home}, now_s=0)
        elif step == "second look":
            found = [] if part is None else [Part("s02", b"q", part)]
            looks = suspects.settle(suspects.due(0, 10), found, {b"q": home})
            for one in looks:
                assert part == one.incarnation != home
                part = None
