"""Checks the arguments of calls: one table of types and bounds, for client, HTTP gateway and command line alike.

Belongs here: checks that need no slice, made where the call is made, so that a wrong argument harms its own call only.
Each raises TypeError for a wrong type; OutOfRange for a number, TooLarge for a size or a count, InvalidName for a name
that is not allowed. The message names the argument. Not here: what a slice decides (is there such a queue?).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol, runtime_checkable

from shoal_contract.errors import InvalidName, Malformed, OutOfRange, TooLarge
from shoal_contract.limits import (
    BODY_BYTES_MAX,
    CHUNK_BYTES_MAX,
    CHUNK_HEADERS_MAX,
    CHUNK_MESSAGES_MAX,
    DEADLINE_S_MAX,
    FAREWELL_AFTER_S_MAX,
    LIST_ITEMS_MAX,
    MAX_DELIVERIES_MAX,
    NACK_DELAY_MS_MAX,
    NAME_BYTES_MAX,
    NAMES_PER_CALL_MAX,
    PROCESS_BYTES_MAX,
    PULL_LEASE_MS_MAX,
    TIME_S_MAX,
    TIME_S_MIN,
    TTL_MS_MAX,
    U32_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_MESSAGES_MAX,
)
from shoal_contract.names import OWN_HEADERS, Name, encode_name, show

Body = bytes | bytearray | memoryview
"""The types that are taken for a body. Those other than bytes are copied."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Checks an argument that is a whole number, `low` to `high`. Any value that may index a list is taken, but not
    True and False."""

    name: str
    low: int
    high: int

    def check(self, value: object) -> int:
        """Returns the value as an int. Raises TypeError, OutOfRange."""
        try:
            number = operator.index(value)  # type: ignore[arg-type]  # that is the question
        except TypeError:
            number = None
        if number is None or isinstance(value, bool):
            raise TypeError(f"{self.name} must be a whole number, not {_kind(value)}")
        if not self.low <= number <= self.high:
            shown = number if abs(number) < 1 << 64 else f"a number of {number.bit_length()} bits"
            limit = self.low if number < self.low else self.high
            problem = f"{self.name} is {shown}; it needs {self.low} to {self.high}"
            raise OutOfRange(problem, subject=self.name, limit=limit, value=min(max(number, 0), (1 << 63) - 1))
        return number

    def within(self, low: int, high: int) -> Whole:
        """Returns the same argument where only a part of its range is allowed."""
        assert self.low <= low <= high <= self.high, f"{low} to {high} is not within {self}"
        return Whole(self.name, low, high)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Checks an argument that is a time in seconds, above 0 and up to `high`; whole or not. `zero`: 0 is allowed."""

    name: str
    high: float
    zero: bool = False

    def check(self, value: object) -> float:
        """Returns the value as a float. Raises TypeError, OutOfRange (for NaN and infinity too)."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{self.name} must be a number of seconds, not {_kind(value)}")
        if not 0 < value <= self.high and not (self.zero and value == 0):  # NaN fails all comparisons.
            shown = value if isinstance(value, float) or abs(value) < 1 << 64 else "a number beyond all bounds"
            low = "0" if self.zero else "more than 0,"
            problem = f"{self.name} is {shown}; it needs {low} up to {self.high} seconds"
            raise OutOfRange(problem, subject=self.name, limit=int(self.high))
        return float(value)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Checks an argument that is one of a few words."""

    name: str
    words: tuple[str, ...]

    def check(self, value: object) -> str:
        """Returns the value. Raises TypeError."""
        if value not in self.words:
            found = repr(value)[:40] if isinstance(value, str) else _kind(value)
            raise TypeError(f"{self.name} must be one of {', '.join(map(repr, self.words))}, not {found}")
        assert isinstance(value, str)
        return value


# The table of arguments. 0 means: durable, no history, no limit, the slice's default, or no lease.
EXPIRES_AFTER_S: Final = Whole("expires_after_s", 0, U32_MAX)
ACK_TIMEOUT_MS: Final = Whole("ack_timeout_ms", 0, U32_MAX)
MAX_DELIVERIES: Final = Whole("max_deliveries", 0, MAX_DELIVERIES_MAX)
FAREWELL_AFTER_S: Final = Whole("after_s", 0, FAREWELL_AFTER_S_MAX)
NACK_DELAY_MS: Final = Whole("delay_ms", 0, NACK_DELAY_MS_MAX)
HISTORY_MESSAGES: Final = Whole("history_messages", 0, (1 << 53) - 1)
HISTORY_AGE_S: Final = Whole("history_age_s", 0, U32_MAX)
CAPACITY_MESSAGES: Final = Whole("capacity_messages", 0, (1 << 53) - 1)
CAPACITY_BYTES: Final = Whole("capacity_bytes", 0, (1 << 53) - 1)
POLICY: Final = OneOf("policy", ("reject", "drop_oldest"))
EXCLUSIVE: Final = OneOf("exclusive", ("none", "newest", "oldest"))
WINDOW_MESSAGES: Final = Whole("window_messages", 0, WINDOW_MESSAGES_MAX)
WINDOW_BYTES: Final = Whole("window_bytes", 0, WINDOW_BYTES_MAX)
BUFFER_BYTES: Final = Whole("buffer_bytes", 1, PROCESS_BYTES_MAX)
LEASE_MS: Final = Whole("lease_ms", 0, PULL_LEASE_MS_MAX)
PULL_MESSAGES: Final = Whole("messages", 1, U32_MAX)
PULL_BYTES: Final = Whole("bytes_max", 1, PROCESS_BYTES_MAX)
OFFSET: Final = Whole("offset", 0, (1 << 63) - 1)
START_VALUE: Final = Whole("the value of start", 0, (1 << 63) - 1)
LAST_MESSAGES: Final = Whole("messages", 0, (1 << 63) - 1)
PAGE_ITEMS: Final = Whole("limit", 1, LIST_ITEMS_MAX)
TTL_MS: Final = Whole("ttl_ms", 0, TTL_MS_MAX)
TTL_S: Final = Seconds("ttl", TTL_MS_MAX / 1000)
AGO_S: Final = Seconds("seconds", U32_MAX)
DELAY_S: Final = Seconds("delay_s", NACK_DELAY_MS_MAX / 1000, zero=True)
RETRY_AFTER_S: Final = Seconds("retry_after_s", NACK_DELAY_MS_MAX / 1000, zero=True)
DEADLINE_S: Final = Seconds("deadline_s", DEADLINE_S_MAX)
TIMEOUT: Final = Seconds("timeout", DEADLINE_S_MAX, zero=True)


def check_delay_ms(delay_s: object) -> int:
    """Returns the delay of a nack in whole milliseconds, none too short. Raises TypeError, OutOfRange."""
    return ceil(DELAY_S.check(delay_s) * 1000)


@runtime_checkable
class ZonedTime(Protocol):
    """Describes a datetime, as far as it is asked here: the contract imports no clock."""

    def utcoffset(self) -> object: ...

    def timestamp(self) -> float: ...


def check_time(name: str, value: object) -> int:
    """Returns an absolute time as Unix time in milliseconds; 0 for None. `value`: a datetime with a time zone, or a
    number of seconds since 1970. A time before the year 2000 is refused: it is a number of seconds from now, given by
    mistake. Raises TypeError, OutOfRange (for NaN and infinity too)."""
    if value is None:
        return 0
    if isinstance(value, ZonedTime):
        if value.utcoffset() is None:
            raise TypeError(f"{name} must have a time zone, as datetime.now(UTC) has; {value} has none")
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a datetime with a time zone, or seconds since 1970, not {_kind(value)}")
    if not TIME_S_MIN <= value <= TIME_S_MAX:  # NaN fails both comparisons.
        shown = value if isinstance(value, float) or abs(value) < 1 << 64 else "a number beyond all bounds"
        late = value > TIME_S_MAX
        mistake = "in seconds, not milliseconds" if late else "not seconds from now"
        problem = f"{name} is {shown}; it is Unix time, {mistake}: it needs {TIME_S_MIN} to {TIME_S_MAX}"
        limit = TIME_S_MAX if late else TIME_S_MIN
        raise OutOfRange(f"{problem} seconds since 1970", subject=name, limit=limit)
    return math.ceil(round(value * 1000, 3))  # Never earlier.


def check_flag(name: str, value: object) -> bool:
    """Returns `value`. Raises TypeError unless it is True or False."""
    if value is True or value is False:
        return value
    raise TypeError(f"{name} must be True or False, not {_kind(value)}")


def check_text(name: str, value: object) -> str:
    """Returns `value`. Raises TypeError unless it is str, Malformed unless it is valid Unicode."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be str, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Malformed(f"{name} {value[:40]!r} is not valid Unicode: {error.reason}", subject=name) from None
    return value


def check_names(what: str, value: object) -> dict[bytes, Name]:
    """Returns a dict from each name's bytes to the name as it was given. `value` is one name, or an iterable of names.

    `what` ("key", "queue") says what one name is of. Raises TypeError, InvalidName, TooLarge.
    """
    if isinstance(value, str | bytes):
        return {encode_name(value, what): value}
    if not isinstance(value, Iterable):
        raise TypeError(f"{what}s must be a name (str or bytes) or an iterable of names, not {_kind(value)}")
    if isinstance(value, list | tuple | dict | set | frozenset) and len(value) <= NAMES_PER_CALL_MAX:
        return {encode_name(name, what): name for name in value}
    names: dict[bytes, Name] = {}
    for count, name in enumerate(value):
        if count >= NAMES_PER_CALL_MAX:
            raise _too_large(f"{what}s in one call", NAMES_PER_CALL_MAX, count + 1, "or more")
        names[encode_name(name, what)] = name
    return names


def check_prefix(value: object) -> bytes:
    """Returns the bytes of a prefix of names; may be empty. Raises TypeError, InvalidName, Malformed."""
    if not isinstance(value, str | bytes):
        raise TypeError(f"prefix must be str or bytes, not {_kind(value)}")
    data = value if isinstance(value, bytes) else check_text("prefix", value).encode()
    if len(data) > NAME_BYTES_MAX:
        problem = f"prefix is {len(data)} bytes; the limit is {NAME_BYTES_MAX}"
        raise InvalidName(problem, subject="prefix", limit=NAME_BYTES_MAX, value=len(data))
    return data


def check_body(value: object, name: str = "body") -> bytes:
    """Returns a body as bytes; other types are copied. Raises TypeError, TooLarge."""
    if type(value) is bytes:
        size = len(value)
    elif isinstance(value, bytes | bytearray | memoryview):
        size = value.nbytes if isinstance(value, memoryview) else len(value)
    else:
        raise TypeError(f"{name} must be bytes, bytearray or memoryview, not {_not_bytes(value)}")
    if size > BODY_BYTES_MAX:
        raise _too_large(name, BODY_BYTES_MAX, size, "bytes")
    return value if type(value) is bytes else bytes(value)


def check_bodies(value: object) -> list[bytes]:
    """Returns the bodies of a chunk. Raises TypeError, TooLarge."""
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Iterable):
        raise TypeError(f"bodies must be an iterable of bytes, not {_kind(value)}")
    bodies: list[bytes] = []
    size_bytes = 0
    for count, body in enumerate(value):
        if count >= CHUNK_MESSAGES_MAX:
            raise _too_large("chunk messages", CHUNK_MESSAGES_MAX, count + 1, "or more")
        bodies.append(check_body(body, f"body {count}"))
        size_bytes += len(bodies[-1])
        if size_bytes > CHUNK_BYTES_MAX:
            raise _too_large("chunk bytes", CHUNK_BYTES_MAX, size_bytes, "or more")
    return bodies


def check_headers(value: object) -> dict[str, bytes] | None:
    """Returns one message's headers, or None if there are none. Raises TypeError, Malformed, TooLarge; InvalidName for
    one that begins with `shoal-`: only Shoal sets those, in dead letters."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"headers must be a mapping of str to bytes, not {_kind(value)}")
    if len(value) > CHUNK_HEADERS_MAX:
        raise _too_large("headers of one message", CHUNK_HEADERS_MAX, len(value), "fields")
    return {_header_name(name): _header_value(name, field) for name, field in value.items()} or None


def check_headers_of_each(value: object, bodies: int) -> list[dict[str, bytes] | None]:
    """Returns a chunk's headers: an empty list, or one item (or None) for each body. Raises TypeError, Malformed."""
    if isinstance(value, Mapping | str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"headers must be an iterable with one mapping (or None) for each body, not {_kind(value)}")
    found = []
    for count, headers in enumerate(value):
        if count >= bodies:
            raise Malformed(f"there are more headers than the {bodies} bodies", subject="headers")
        found.append(check_headers(headers))
    if found and len(found) != bodies:
        raise Malformed(f"there are {len(found)} headers for {bodies} bodies: none, or one for each", subject="headers")
    return found


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"header name must be str, not {_kind(name)}")
    if name.startswith(OWN_HEADERS):
        shown = show(name[:NAME_BYTES_MAX].encode(errors="replace"))
        raise InvalidName(f"header {shown} begins with {OWN_HEADERS}: such headers are Shoal's own", subject=shown)
    return check_text("header name", name)


def _header_value(name: object, value: object) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"header {str(name)[:40]!r} must be bytes, bytearray or memoryview, not {_not_bytes(value)}")


def _kind(value: object) -> str:
    return type(value).__name__


def _not_bytes(value: object) -> str:
    """Returns the type of a wrong value, and for str, the usual mistake, what to do."""
    return "str: encode it first" if isinstance(value, str) else _kind(value)


def _too_large(what: str, limit: int, value: int, unit: str) -> TooLarge:
    return TooLarge(f"{what}: {value} {unit}; the limit is {limit}", subject=what, limit=limit, value=value)
