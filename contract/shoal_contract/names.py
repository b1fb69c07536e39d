"""Checks and shows names of keys and queues: 1-255 bytes, `str` is UTF-8. Keys beginning with `@` are direct keys."""

from __future__ import annotations

from shoal_contract.errors import InvalidName
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.printable import printable as printable

Name = str | bytes
DIRECT_PREFIX = b"@"
OWN_HEADERS = "shoal-"
"""Begins the names of the headers that only Shoal sets, in dead letters."""


def text(name: bytes) -> str:
    """Returns a name as data: its UTF-8 text, unchanged; bytes that are not UTF-8 become `\\xff`."""
    return name.decode("utf-8", "backslashreplace")


def show(name: bytes) -> str:
    """Returns a name in a form that a person may safely read on a terminal or in a log.

    Characters that are not printable (control characters, line separators, direction marks) and the backslash itself
    are escaped, so that escaping makes no two names alike: `\\x1b` is a character, `\\xff` a byte that is not UTF-8;
    `\\u202e`, `\\\\`.
    """
    return printable(name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"))


def encode_name(name: Name, what: str) -> bytes:
    """Returns the bytes of a name. `what` ("key", "queue") is for the message. Raises InvalidName, TypeError."""
    if isinstance(name, str):
        try:
            data = name.encode()
        except UnicodeEncodeError as error:
            raise InvalidName(f"{what} name {name!r} is not valid Unicode: {error.reason}", subject=what) from None
    elif isinstance(name, bytes):
        data = name
    else:
        raise TypeError(f"{what} name must be str or bytes, not {type(name).__name__}")
    check_name(data, what)
    return data


def check_name(data: bytes, what: str) -> None:
    """Raises InvalidName unless `data` is 1-255 bytes."""
    if not 0 < len(data) <= NAME_BYTES_MAX:
        shown = show(data[:NAME_BYTES_MAX])
        raise InvalidName(name_problem(data, what), subject=shown, limit=NAME_BYTES_MAX, value=len(data))


def check_key(data: bytes) -> None:
    """Raises InvalidName unless `data` is a key: 1-255 bytes, or the direct key of a queue."""
    if data[:1] == DIRECT_PREFIX:
        if len(data) == 1:
            raise InvalidName("key @ is the direct key of no queue: a queue's name follows the @", subject="@")
        check_name(data[1:], "queue")
    else:
        check_name(data, "key")


def check_bindable_key(data: bytes) -> None:
    """Raises InvalidName unless `data` is a key that a queue may be bound to: direct keys are reserved."""
    if data[:1] == DIRECT_PREFIX:
        shown = show(data[: NAME_BYTES_MAX + 1])
        raise InvalidName(f"key {shown} begins with @: reserved for direct keys", subject=shown)
    check_name(data, "key")


def name_problem(data: bytes, what: str) -> str:
    """Returns the message for a bad name."""
    if not data:
        return f"{what} name is empty; it needs 1 to {NAME_BYTES_MAX} bytes"
    return f"{what} name is {len(data)} bytes; the limit is {NAME_BYTES_MAX}"


def direct_key(queue: bytes) -> bytes:
    """Returns the key that `send(queue)` publishes to. Its slice is the queue's home.

    A queue name of 255 bytes has no room for the prefix: its direct key may be 256 bytes, one more than other keys.
    """
    return DIRECT_PREFIX + queue
