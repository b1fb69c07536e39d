"""Typed errors, grouped by what the caller should do (docs/concepts.md), and their wire form.

Every error names the thing and the limit. The wire form is `shoal.v1.Error`: inline in sessions, in the trailing
metadata `shoal-error-bin` of unary calls. Servers and the client raise and catch only these.
"""

from __future__ import annotations

from typing import ClassVar

from shoal_contract.limits import ERROR_FIGURE_MAX, ERROR_TEXT_BYTES_MAX
from shoal_contract.wire import common_pb2 as wire

METADATA_KEY = "shoal-error-bin"


class ShoalError(Exception):
    """Base of all. `subject`: the key, queue, limit or file it is about. Fields as in `shoal.v1.Error`."""

    code: ClassVar[wire.ErrorCode.ValueType] = wire.ERROR_CODE_UNSPECIFIED

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
        """The wire form. Its texts are cut at ERROR_TEXT_BYTES_MAX, and its figures where 64 bits end: they may be what
        a client sent, and one more."""
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
    """Refresh the map or the leader and repeat; the library does."""


class NotOwner(MapOrLeaderChanged):
    """The key moved to another slice: `owner`, by `map_version`."""

    code = wire.ERROR_CODE_NOT_OWNER


class NotLeader(MapOrLeaderChanged):
    """The slice is led by another node: `leader`."""

    code = wire.ERROR_CODE_NOT_LEADER


class OutcomeUnknown(ShoalError):
    """Repeat with the same producer number; the library does."""


class Unavailable(OutcomeUnknown):
    """No answer, or none to be had now: the request may have been done."""

    code = wire.ERROR_CODE_UNAVAILABLE


class Fenced(OutcomeUnknown):
    """The node's lease may be over, so it may not answer: the request may have been done."""

    code = wire.ERROR_CODE_FENCED


class DeadlineExceeded(OutcomeUnknown, TimeoutError):
    """Also a TimeoutError, so that `except TimeoutError` meets it as it meets asyncio's own."""

    code = wire.ERROR_CODE_DEADLINE_EXCEEDED


class ResourceExhausted(ShoalError):
    """Slow down; `subject` is the limit's name, `limit` and `value` its figures."""

    code = wire.ERROR_CODE_RESOURCE_EXHAUSTED


class BadCall(ShoalError):
    """Fix the call."""


class InvalidName(BadCall):
    """A name is empty, too long, reserved, or no text."""

    code = wire.ERROR_CODE_INVALID_NAME


class TooLarge(BadCall):
    """Something is larger than its limit: `subject` names it, `limit` and `value` are its figures."""

    code = wire.ERROR_CODE_TOO_LARGE


class Unroutable(BadCall):
    """A mandatory publish found no queue bound to its key."""

    code = wire.ERROR_CODE_UNROUTABLE


class NoSuchQueue(BadCall):
    """The queue was never declared, or is dropped."""

    code = wire.ERROR_CODE_NO_SUCH_QUEUE


class Conflict(BadCall):
    """What is there already differs from what was asked for, or something else has it."""

    code = wire.ERROR_CODE_CONFLICT


class CrossSlice(BadCall):
    """What must be done in one step lies on several slices."""

    code = wire.ERROR_CODE_CROSS_SLICE


class OutOfRange(BadCall):
    """A number is beyond its bounds, or an offset is not kept any more."""

    code = wire.ERROR_CODE_OUT_OF_RANGE


class Malformed(BadCall):
    """Not a frame, chunk or file of this form."""

    code = wire.ERROR_CODE_MALFORMED


class NoRights(ShoalError):
    """Get rights."""


class Unauthenticated(NoRights):
    """No login, or a wrong one."""

    code = wire.ERROR_CODE_UNAUTHENTICATED


class PermissionDenied(NoRights):
    """This login may not do that."""

    code = wire.ERROR_CODE_PERMISSION_DENIED


class Corrupt(ShoalError):
    """Call an operator. `subject` is the file, `position` the byte in it."""

    code = wire.ERROR_CODE_CORRUPT


def check_at_most(what: str, value: int, limit: int) -> None:
    """Raises TooLarge, with the name of the limit and both figures."""
    if value > limit:
        raise TooLarge(f"{what}: {value}; the limit is {limit}", subject=what, limit=limit, value=value)


def exhausted(what: str, limit: int, value: int) -> ResourceExhausted:
    """Returns the refusal of what would go beyond a limit now, with its name and both figures."""
    return ResourceExhausted(f"{what}: {value}; the limit is {limit}", subject=what, limit=limit, value=value)


def cut_text(text: str, bytes_max: int) -> str:
    """The beginning of a text that fits `bytes_max` bytes of UTF-8; what cannot be encoded is replaced."""
    if len(text) * 4 <= bytes_max and text.isascii():
        return text
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def _leaves(base: type[ShoalError]) -> list[type[ShoalError]]:
    below = base.__subclasses__()
    return [base] if not below else [leaf for cls in below for leaf in _leaves(cls)]


_BY_CODE = {cls.code: cls for cls in _leaves(ShoalError)}


def from_wire(error: wire.Error) -> ShoalError:
    """The typed error of a wire error. An unknown code (a newer server) becomes a plain ShoalError."""
    cls: type[ShoalError] = _BY_CODE.get(error.code, ShoalError)
    return cls(
        error.message or f"{cls.__name__} without a text: a slice leaves them out where it refuses very much at once",
        subject=error.subject,
        limit=error.limit,
        value=error.value,
        map_version=error.map_version,
        owner=error.owner,
        leader=error.leader,
        position=error.position,
    )


def from_wire_bytes(data: bytes) -> ShoalError:
    """As `from_wire`, from serialized bytes (the metadata form)."""
    return from_wire(wire.Error.FromString(data))
