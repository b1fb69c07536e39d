"""One table of arguments: every wrong type and value is named, at once; what is right comes back ready for the wire."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_contract import arguments
from shoal_contract.arguments import Seconds, Whole
from shoal_contract.errors import InvalidName, Malformed, OutOfRange, ShoalError, TooLarge
from shoal_contract.limits import TIME_S_MAX, TIME_S_MIN

NUMBERS = [value for value in vars(arguments).values() if isinstance(value, Whole)]
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("argument", NUMBERS, ids=lambda argument: argument.name)
def test_a_whole_number_is_taken_within_its_bounds_only(argument: Whole) -> None:
    for right in (argument.low, argument.high):
        assert argument.check(right) == right
    for wrong in (argument.low - 1, argument.high + 1, 1 << 200, -(1 << 200)):
        with pytest.raises(OutOfRange, match=argument.name) as caught:
            argument.check(wrong)
        assert caught.value.to_wire().limit in (argument.low, argument.high)
    for other in (True, None, 1.0, "7", b"7", math.nan, [7], int):
        with pytest.raises(TypeError, match=argument.name):
            argument.check(other)


def test_every_number_fits_the_wire() -> None:
    assert all(0 <= argument.low <= argument.high < 1 << 64 for argument in NUMBERS)


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, -math.inf, 1e30, 1 << 2000])
def test_a_deadline_is_a_time_to_come(wrong: float) -> None:
    with pytest.raises(OutOfRange, match="deadline_s"):
        arguments.DEADLINE_S.check(wrong)


@pytest.mark.parametrize("wrong", [True, None, "3", [3]])
def test_a_deadline_is_a_number(wrong: object) -> None:
    with pytest.raises(TypeError, match="deadline_s"):
        arguments.DEADLINE_S.check(wrong)


NOON = datetime(2030, 12, 24, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


@pytest.mark.parametrize(
    ("value", "unix_ms"),
    [
        (None, 0),
        (TIME_S_MIN, TIME_S_MIN * 1000),
        (NOON, NOON_MS),
        (NOON.astimezone(timezone(timedelta(hours=9))), NOON_MS),
        (NOON + timedelta(microseconds=1), NOON_MS + 1),  # Rounded up: never earlier.
        (NOON_MS // 1000, NOON_MS),
        (1790000000.123, 1790000000123),
    ],
)
def test_a_time_is_taken_in_two_forms(value: object, unix_ms: int) -> None:
    assert arguments.check_time("not_before", value) == unix_ms


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, 1e12, 1 << 2000])
def test_a_time_is_one_of_this_age(wrong: float) -> None:
    with pytest.raises(OutOfRange, match="not_before"):
        arguments.check_time("not_before", wrong)


@pytest.mark.parametrize("wrong", [0, 10, 3600.5, TIME_S_MIN - 1, datetime(1999, 12, 31, tzinfo=UTC)])
def test_a_time_before_the_year_2000_is_no_time(wrong: datetime | float) -> None:
    """Other arguments are seconds from now."""
    told = rf"not_before is .*; it is Unix time, not seconds from now: it needs {TIME_S_MIN} to "
    with pytest.raises(OutOfRange, match=told) as caught:
        arguments.check_time("not_before", wrong)
    assert caught.value.limit == TIME_S_MIN == int(datetime(2000, 1, 1, tzinfo=UTC).timestamp())


@pytest.mark.parametrize("wrong", [1_700_000_000_000, TIME_S_MAX + 1, 1 << 70])
def test_a_time_in_milliseconds_is_no_time(wrong: float) -> None:
    """What it said answered another mistake."""
    with pytest.raises(OutOfRange, match="it is Unix time, in seconds, not milliseconds: it needs") as caught:
        arguments.check_time("not_before", wrong)
    assert caught.value.limit == TIME_S_MAX


@pytest.mark.parametrize("wrong", [-1, 86_401, math.nan])
def test_the_delay_of_a_nack_may_be_none(wrong: float) -> None:
    assert [arguments.check_delay_ms(value) for value in (0, 0.0, 0.0001, 1.5)] == [0, 0, 1, 1500]
    with pytest.raises(OutOfRange, match=r"delay_s is .*; it needs 0 up to 86400\.0 seconds"):
        arguments.check_delay_ms(wrong)


@pytest.mark.parametrize("wrong", [True, "2030-01-01", [1], datetime(2030, 1, 1)])
def test_a_time_has_a_zone(wrong: object) -> None:
    with pytest.raises(TypeError, match="not_before"):
        arguments.check_time("not_before", wrong)


def test_a_narrower_range_keeps_the_name() -> None:
    assert arguments.LEASE_MS.within(1, 5) == Whole("lease_ms", 1, 5)
    with pytest.raises(AssertionError):
        arguments.LEASE_MS.within(0, 1 << 40)


def test_names_are_one_or_many() -> None:
    assert arguments.check_names("key", "a") == {b"a": "a"}
    assert arguments.check_names("key", ["a", b"b", "a"]) == {b"a": "a", b"b": b"b"}
    with pytest.raises(TypeError, match=r"keys must be a name .* not int"):
        arguments.check_names("key", 7)
    with pytest.raises(TypeError, match="key name must be str or bytes, not int"):
        arguments.check_names("key", ["a", 7])
    with pytest.raises(InvalidName, match="key name is empty"):
        arguments.check_names("key", ["a", ""])


def test_an_endless_iterable_of_names_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "NAMES_PER_CALL_MAX", 100)
    with pytest.raises(TooLarge, match="keys in one call: 101 or more; the limit is 100"):
        arguments.check_names("key", itertools.repeat("a"))


@pytest.mark.parametrize("body", [b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:], memoryview(b"a-b-c")[::2]])
def test_whatever_holds_bytes_is_a_body(body: object) -> None:
    found = arguments.check_body(body)
    assert type(found) is bytes and found == b"abc"


def test_a_body_names_its_type_and_its_size() -> None:
    with pytest.raises(TypeError, match="body must be bytes, bytearray or memoryview, not str: encode it first"):
        arguments.check_body("hello")
    for large in (bytes((1 << 20) + 1), memoryview(bytes(4 << 20)).cast("B", (2, 2 << 20))):
        with pytest.raises(TooLarge, match="the limit is 1048576"):
            arguments.check_body(large)
    with pytest.raises(TypeError, match="body 1 must be bytes"):
        arguments.check_bodies([b"a", "b"])
    with pytest.raises(TypeError, match="bodies must be an iterable of bytes, not bytes"):
        arguments.check_bodies(b"abc")
    with pytest.raises(TooLarge, match="chunk messages: 4097 or more; the limit is 4096"):
        arguments.check_bodies(itertools.repeat(b""))
    with pytest.raises(TooLarge, match="chunk bytes: 3145728 or more; the limit is 2097152"):
        arguments.check_bodies(itertools.repeat(bytes(1 << 20)))


def test_headers_name_what_is_wrong() -> None:
    assert arguments.check_headers({"a": bytearray(b"b")}) == {"a": b"b"}
    assert arguments.check_headers({}) is None and arguments.check_headers(None) is None
    with pytest.raises(TypeError, match="header name must be str, not int"):
        arguments.check_headers({1: b""})
    with pytest.raises(TypeError, match=r"header 'a' must be bytes, .* not str: encode it first"):
        arguments.check_headers({"a": "b"})
    with pytest.raises(Malformed, match=r"header name .* is not valid Unicode"):
        arguments.check_headers({"\ud800": b""})
    with pytest.raises(Malformed, match="2 headers for 3 bodies"):
        arguments.check_headers_of_each([None, {}], 3)
    with pytest.raises(Malformed, match="more headers than the 1 bodies"):
        arguments.check_headers_of_each(itertools.repeat(None), 1)


@given(ANYTHING)
def test_nothing_but_typed_errors_comes_of_anything(value: Any) -> None:
    checks: list[Any] = [argument.check for argument in NUMBERS]
    checks.append(Seconds("deadline_s", 10).check)
    checks += [arguments.check_body, arguments.check_bodies, arguments.check_headers, arguments.check_prefix]
    checks += [
        lambda one: arguments.check_names("queue", one),
        lambda one: arguments.check_headers_of_each(one, 2),
        lambda one: arguments.check_flag("mandatory", one),
        lambda one: arguments.check_text("after", one),
    ]
    for check in checks:
        try:
            check(value)
        except (TypeError, ShoalError) as error:
            assert str(error)
            if isinstance(error, ShoalError):
                assert error.to_wire().SerializeToString()
