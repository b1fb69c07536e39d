"""The messages between Locust's process and a generator: one JSON object per line, over the generator's pipes.

To the generator: Come, Go, Measure, Finish. From it: Ready, Report (every half second), Finished, Broken. Not here: the
code that acts on them.
"""

from __future__ import annotations

import msgspec


class Come(msgspec.Struct, frozen=True, tag=True):
    """Tells a crowd (a number below CROWDS) to log in and stay online."""

    crowd: int


class Go(msgspec.Struct, frozen=True, tag=True):
    """Tells a crowd to log out."""

    crowd: int


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Says that the warm-up is over: everything from now on counts."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Tells the generator to begin nothing more, check that all messages have come, answer Finished and end."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Says that the generator is connected. `consumed` of `seats` are consumed when online."""

    seats: int
    consumed: int
    groups: int


class Report(msgspec.Struct, frozen=True, tag=True):
    """Says what happened since the last report. `samples_ms`: latencies by name; `counts`: events by name.

    `moving`: whether crowds come or go now. `moving_s`: the seconds of it in all, with `moved` binds and unbinds.
    """

    online: int
    wanted: int
    moving: bool
    moving_s: float
    moved: int
    samples_ms: dict[str, list[float]]
    counts: dict[str, int]
    failures: list[tuple[str, str]]
    """Pairs of the call's name and why it failed."""
    faults: dict[str, int]
    """The faults by kind, since the beginning."""


class Sizes(msgspec.Struct, frozen=True):
    """Sums up the sizes of the groups with a member online."""

    groups: int
    memberships: int
    squares: int
    largest: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    """Is the last message, after a last Report. `sizes`: when measuring began. `redelivered`: marked repeats."""

    sizes: Sizes
    seen: int
    audited: int
    redelivered: int
    cases: list[str]
    cpu_s: float


class Broken(msgspec.Struct, frozen=True, tag=True):
    """Says that the generator cannot go on."""

    why: str


Command = Come | Go | Measure | Finish
Message = Ready | Report | Finished | Broken

_encoder = msgspec.json.Encoder()
_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_messages: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def line_of(said: Command | Message) -> bytes:
    return _encoder.encode(said) + b"\n"


def command_of(line: bytes) -> Command:
    """Returns the command of a line. Raises msgspec.ValidationError."""
    return _commands.decode(line)


def message_of(line: bytes) -> Message:
    """Returns the message of a line. Raises msgspec.ValidationError."""
    return _messages.decode(line)
