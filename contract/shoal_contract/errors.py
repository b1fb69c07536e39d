"""Defines the typed errors, grouped by what the caller should do (docs/concepts.md), and their wire form.

Every error names the thing and the limit. The wire form is `shoal.v1.Error`: inline in sessions, in the trailing
metadata `shoal-error-bin` of unary calls. Servers and the client raise and catch only these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from shoal_contract.limits import ERROR_FIGURE_MAX, ERROR_TEXT_BYTES_MAX
from shoal_contract.printable import printable
from shoal_contract.wire import common_pb2 as wire

METADATA_KEY = "shoal-error-bin"


class ShoalError(Exception):
    """Is the base class of all errors. `subject`: the key, queue, limit or file that the error is about. The fields are
    those of `shoal.v1.Error`."""

    code: ClassVar[wire.ErrorCode.ValueType] = wire.ERROR_CODE_UNSPECIFIED
    """The number of the error on the wire."""

    failed: Mapping[str | bytes, ShoalError] = MappingProxyType({})
    """Where a call names many things, and does each by itself: what was not done, with the error of each. Not on the
    wire."""

    done: Mapping[str | bytes, int] = MappingProxyType({})
    """What such a call did, with what it returns of each; 0 where it returns nothing."""

    def __init__(
        self,
        message: str,
        *,
        subject: str = "",
        limit: int = 0,
        value: int = 0,
        map_version: int = 0,
        owner: str = "",
        leader: str = "",
        position: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.limit = limit
        self.value = value
        self.map_version = map_version
        self.owner = owner
        self.leader = leader
        self.position = position

    def to_wire(self) -> wire.Error:
        """Returns the wire form. Its texts are cut at ERROR_TEXT_BYTES_MAX bytes, and its figures at the largest 64-bit
        number: a figure may be a number that a client sent, plus one."""
        found = wire.Error()
        self.write(found)
        return found

    def write(self, found: wire.Error, texts: bool = True) -> None:
        """Fills an empty wire form. Without `texts` it has neither message nor subject."""
        found.code = self.code
        if texts:
            found.message = cut_text(self.message, ERROR_TEXT_BYTES_MAX)
            found.subject = cut_text(self.subject, ERROR_TEXT_BYTES_MAX)
        if self.limit or self.value:
            found.limit, found.value = min(self.limit, ERROR_FIGURE_MAX), min(self.value, ERROR_FIGURE_MAX)
        if self.map_version or self.owner or self.leader or self.position:
            found.map_version, found.owner = self.map_version, self.owner
            found.leader, found.position = self.leader, self.position


class MapOrLeaderChanged(ShoalError):
    """Tells the caller to refresh the map or the leader, and to repeat; the library does so."""


class NotOwner(MapOrLeaderChanged):
    """Says that the key moved to another slice: `owner`, by `map_version`."""

    code = wire.ERROR_CODE_NOT_OWNER


class NotLeader(MapOrLeaderChanged):
    """Says that another node leads the slice: `leader`."""

    code = wire.ERROR_CODE_NOT_LEADER


class OutcomeUnknown(ShoalError):
    """Tells the caller to repeat with the same producer number; the library does so."""


class Unavailable(OutcomeUnknown):
    """Says that there is no answer, or that none can be given now: the request may have been done."""

    code = wire.ERROR_CODE_UNAVAILABLE


class Fenced(OutcomeUnknown):
    """Says that the node's lease may be over, so it may not answer: the request may have been done."""

    code = wire.ERROR_CODE_FENCED


class DeadlineExceeded(OutcomeUnknown, TimeoutError):
    """Says that a time limit is over. This is also a TimeoutError, so that `except TimeoutError` catches it, as
    asyncio's own."""

    code = wire.ERROR_CODE_DEADLINE_EXCEEDED


class ResourceExhausted(ShoalError):
    """Tells the caller to slow down. `subject` is the limit's name, `limit` and `value` are its figures."""

    code = wire.ERROR_CODE_RESOURCE_EXHAUSTED


class BadCall(ShoalError):
    """Tells the caller to fix the call."""


class InvalidName(BadCall):
    """Says that a name is empty, too long, reserved, or not text."""

    code = wire.ERROR_CODE_INVALID_NAME


class TooLarge(BadCall):
    """Says that something is larger than its limit: `subject` names it, `limit` and `value` are its figures."""

    code = wire.ERROR_CODE_TOO_LARGE


class Unroutable(BadCall):
    """Says that a mandatory publish found no queue bound to its key."""

    code = wire.ERROR_CODE_UNROUTABLE


class NoSuchQueue(BadCall):
    """Says that the queue was never declared, or is dropped."""

    code = wire.ERROR_CODE_NO_SUCH_QUEUE


class Conflict(BadCall):
    """Says that the thing exists already and differs from what was asked for, or that something else holds it."""

    code = wire.ERROR_CODE_CONFLICT


class CrossSlice(BadCall):
    """Says that the keys or queues of one atomic step lie on several slices."""

    code = wire.ERROR_CODE_CROSS_SLICE


class OutOfRange(BadCall):
    """Says that a number is beyond its bounds, or that an offset is not kept any more."""

    code = wire.ERROR_CODE_OUT_OF_RANGE


class Malformed(BadCall):
    """Says that the input is not a frame, chunk or file of the expected form."""

    code = wire.ERROR_CODE_MALFORMED


class NoRights(ShoalError):
    """Tells the caller to get rights."""


class Unauthenticated(NoRights):
    """Says that the login is missing or wrong."""

    code = wire.ERROR_CODE_UNAUTHENTICATED


class PermissionDenied(NoRights):
    """Says that this login may not do that."""

    code = wire.ERROR_CODE_PERMISSION_DENIED


class Corrupt(ShoalError):
    """Says that data is damaged, and tells the caller to call an operator. `subject` is the file, `position` the byte
    in it."""

    code = wire.ERROR_CODE_CORRUPT


def check_at_most(what: str, value: int, limit: int) -> None:
    """Raises TooLarge, with the name of the limit and both figures."""
    if value > limit:
        raise TooLarge(f"{what}: {value}; the limit is {limit}", subject=what, limit=limit, value=value)


def exhausted(what: str, limit: int, value: int) -> ResourceExhausted:
    """Returns the error for something that would now exceed a limit, with the limit's name and both figures."""
    return ResourceExhausted(f"{what}: {value}; the limit is {limit}", subject=what, limit=limit, value=value)


def cut_text(text: str, bytes_max: int) -> str:
    """Returns the beginning of a text that fits `bytes_max` bytes of UTF-8. What cannot be encoded is replaced."""
    if len(text) * 4 <= bytes_max and text.isascii():
        return text
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def shown_text(text: str) -> str:
    """Returns a text of a peer as an error may have it: cut at ERROR_TEXT_BYTES_MAX bytes, and printable."""
    return printable(cut_text(text[:ERROR_TEXT_BYTES_MAX], ERROR_TEXT_BYTES_MAX))


def _leaves(base: type[ShoalError]) -> list[type[ShoalError]]:
    below = base.__subclasses__()
    return [base] if not below else [leaf for cls in below for leaf in _leaves(cls)]


_BY_CODE = {cls.code: cls for cls in _leaves(ShoalError)}


def from_wire(error: wire.Error) -> ShoalError:
    """Returns the typed error of a wire error. An unknown code (a newer server) becomes a plain ShoalError. Texts are
    no longer than `to_wire` makes them, and printable: they go to logs and terminals, whatever the server is."""
    cls: type[ShoalError] = _BY_CODE.get(error.code, ShoalError)
    message = shown_text(error.message)
    return cls(
        message or f"{cls.__name__} without a text: a slice leaves them out where it refuses very much at once",
        subject=shown_text(error.subject),
        limit=error.limit,
        value=error.value,
        map_version=error.map_version,
        owner=shown_text(error.owner),
        leader=shown_text(error.leader),
        position=error.position,
    )


def from_wire_bytes(data: bytes) -> ShoalError:
    """Does as `from_wire`, from serialized bytes (the metadata form)."""
    return from_wire(wire.Error.FromString(data))
