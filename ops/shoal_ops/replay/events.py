"""Turns event files into steps: joins, leaves and messages. Reads lines of either form, one by one; gzip or plain.

```
channel:  date  time  network  channel  kind  nick  text        kind: msg join part quit nick mode
churn:    unix time  join|part  group  user
```
Columns are separated by tabs. The first line decides the form of a file.
Not here: what the steps lead to (expectation.py).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from shoal_contract.errors import Malformed
from shoal_ops.limits import LINE_BYTES_MAX

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Join:
    group: bytes
    queue: bytes


@dataclass(frozen=True, slots=True)
class Leave:
    group: bytes
    queue: bytes


@dataclass(frozen=True, slots=True)
class Say:
    group: bytes
    body: bytes


Step = Join | Leave | Say
Event = tuple[Step, ...]
"""The steps of one line, in order; empty for a line that leads to none."""
_Parse = Callable[[list[bytes]], Event]


def read_events(path: Path, publish_after_churn: bool) -> Iterator[Event]:
    """Yields one event for each line. `publish_after_churn`: in a churn file a message to the group follows each
    change.

    Raises Malformed (file, line and reason), OSError.
    """
    parse: _Parse | None = None
    for number, line in _lines(path):
        columns = line.rstrip(b"\r\n").split(b"\t", 6)
        if parse is None:
            parse = _form_of(columns, publish_after_churn)
        try:
            if parse is None:
                raise ValueError("it is neither a channel log (7 columns) nor a churn log (4 columns)")
            yield parse(columns)
        except ValueError as error:
            raise Malformed(f"{path}, line {number}: {error}", subject=str(path), position=number) from None


def count_events(path: Path) -> int:
    """Returns the number of events in a file, for progress. It reads the whole file, so a bad line is found before
    anything is sent. Raises the same as `read_events`."""
    return sum(1 for _ in read_events(path, publish_after_churn=False))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with _open(path) as stream:
        number = 0
        try:
            while line := stream.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(line) > LINE_BYTES_MAX:
                    raise Malformed(
                        f"{path}, line {number}: longer than {LINE_BYTES_MAX} bytes",
                        subject=str(path), limit=LINE_BYTES_MAX, position=number,
                    )  # fmt: skip
                if line.strip():
                    yield number, line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Malformed(f"{path} is damaged after line {number}: {error}", subject=str(path)) from None


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as stream:
        packed = stream.read(2) == _GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path, "rb")) if packed else path.open("rb")


def _form_of(columns: list[bytes], publish_after_churn: bool) -> _Parse | None:
    if len(columns) >= 6 and columns[4] in _KINDS:
        return _channel
    if len(columns) == 4 and columns[1] in (b"join", b"part"):
        return _churn_with_message if publish_after_churn else _churn
    return None


def _churn(columns: list[bytes]) -> Event:
    if len(columns) != 4:
        raise ValueError(f"{len(columns)} columns; a churn log has 4: time, join or part, group, user")
    _, action, group, user = columns
    if not group or not user:
        raise ValueError("group or user is empty")
    if action == b"join":
        return (Join(group, user),)
    if action == b"part":
        return (Leave(group, user),)
    raise ValueError(f"{action.decode(errors='replace')!r} is neither join nor part")


def _churn_with_message(columns: list[bytes]) -> Event:
    """Returns the change, and a message that says what happened."""
    return (*_churn(columns), Say(columns[2], b" ".join(columns)))


def _channel(columns: list[bytes]) -> Event:
    if len(columns) < 6:
        raise ValueError(f"{len(columns)} columns; a channel log has 7: date, time, network, channel, kind, nick, text")
    channel, kind, nick = columns[3:6]
    text = columns[6] if len(columns) > 6 else b""
    if kind not in _KINDS:
        raise ValueError(f"{kind.decode(errors='replace')!r} is not one of {', '.join(k.decode() for k in _KINDS)}")
    if not channel or not (nick or kind == b"mode"):
        raise ValueError("channel or nick is empty")
    if kind == b"nick" and not text:
        raise ValueError("the new nick is empty")
    return _KINDS[kind](channel, nick, text)


_KINDS: dict[bytes, Callable[[bytes, bytes, bytes], Event]] = {
    b"msg": lambda channel, nick, text: (Say(channel, text),),
    b"join": lambda channel, nick, text: (Join(channel, nick),),
    b"part": lambda channel, nick, text: (Leave(channel, nick),),
    b"quit": lambda channel, nick, text: (Leave(channel, nick),),
    b"nick": lambda channel, nick, text: (Join(channel, text), Leave(channel, nick)),
    b"mode": lambda channel, nick, text: (),
}
