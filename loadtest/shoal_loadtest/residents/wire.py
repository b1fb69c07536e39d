"""What Locust's process and a generator say to each other: one JSON object a line, over the generator's pipes.

Down: Come, Go, Measure, Finish. Up: Ready, Report (every half second), Finished, Broken. Not here: who acts on it.
"""

from __future__ import annotations

import msgspec


class Come(msgspec.Struct, frozen=True, tag=True):
    """A crowd (a number below CROWDS) logs in, and is to stay online."""

    crowd: int


class Go(msgspec.Struct, frozen=True, tag=True):
    """A crowd logs out."""

    crowd: int


class Measure(msgspec.Struct, frozen=True, tag=True):
    """The warm-up is over: what happens from now on counts."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Begin nothing more; check that all that was said has come; answer Finished and end."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Connected. `consumed` of `seats` are consumed when online."""

    seats: int
    consumed: int
    groups: int


class Report(msgspec.Struct, frozen=True, tag=True):
    """Since the last one. `samples_ms`: latencies by name; `counts`: what happened, by name.

    `moving`: crowds come or go; for `moving_s` in all, with `moved` binds and unbinds.
    """

    online: int
    wanted: int
    moving: bool
    moving_s: float
    moved: int
    samples_ms: dict[str, list[float]]
    counts: dict[str, int]
    failures: list[tuple[str, str]]
    """(name of the call, why)."""
    faults: dict[str, int]
    """By kind, since the beginning."""


class Sizes(msgspec.Struct, frozen=True):
    """Of the groups with anybody online."""

    groups: int
    memberships: int
    squares: int
    largest: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The last words, but for a last Report before it. `sizes`: when measuring began. `redelivered`: marked repeats."""

    sizes: Sizes
    seen: int
    audited: int
    redelivered: int
    cases: list[str]
    cpu_s: float


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The generator cannot go on."""

    why: str


Command = Come | Go | Measure | Finish
Message = Ready | Report | Finished | Broken

_encoder = msgspec.json.Encoder()
_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_messages: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def line_of(said: Command | Message) -> bytes:
    return _encoder.encode(said) + b"\n"


def command_of(line: bytes) -> Command:
    """Raises msgspec.ValidationError."""
    return _commands.decode(line)


def message_of(line: bytes) -> Message:
    """Raises msgspec.ValidationError."""
    return _messages.decode(line)
