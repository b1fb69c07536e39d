"""Checks frames that are not journaled, before anything is done: attach, detach, acks, nacks, pull, describe.

A frame comes as bytes, so that the cost of parsing it is known first. A frame that fails is refused whole, and the
error names the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shoal_contract.arguments import NACK_DELAY_MS
from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import Malformed, TooLarge, check_at_most
from shoal_contract.limits import NAME_BYTES_MAX, PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.names import check_key, check_name
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire_count import Shape, count_fields
from shoal_slice_node.core.limits import (
    ACK_BYTES_PER_FRAME_MAX,
    ACK_KEPT_BYTES,
    ACKED_CONSUMERS_PER_FRAME_MAX,
    ACKS_PER_FRAME_MAX,
    ATTACHED_NAME_KEPT_BYTES,
    DESCRIBE_NAMES_MAX,
    DESCRIBED_NAME_KEPT_BYTES,
    DETACH_HANDLES_MAX,
    FRAME_ITEM_BYTES_MIN,
    FRAME_KEPT_BYTES,
    HANDLE_KEPT_BYTES,
    NACKS_NUMBER_MAX,
    OPERATION_KEPT_BYTES,
    QUEUES_PER_ATTACH_MAX,
)

REQUEST_SHAPE: Final[Shape] = {
    3: {},
    5: {2: None},
    6: {1: None},
    7: {1: {4: None, 6: None}},
    8: {},
    9: {},
    10: {1: {4: None, 6: None}, 4: None},
}
"""The shape of a SessionRequest: open, attach, detach, acks, pull, describe, nacks. A change is bytes, counted
elsewhere."""

_CHARGED_BY_BYTES: Final = frozenset((None, "open", "pull"))
"""The kinds of frames without repeated fields: parsed, they take about their bytes."""

_FIELDS_MAX: Final = 2 * ACKED_CONSUMERS_PER_FRAME_MAX
_CHANGE: Final = 4
_READS: Final = frozenset((8, 9))
"""Pull and describe."""
_FIELDS_LOOKED_AT: Final = 4
_VARINT: Final = 0
_DELIMITED: Final = 2
_LONGEST_VARINT: Final = 10
"""Protobuf's wire format: https://protobuf.dev/programming-guides/encoding."""


def parse_request(data: bytes) -> wire.SessionRequest:
    """Parses a frame. Raises Malformed, TooLarge: the stream must end then, as it is not known which frame it was."""
    if len(data) > PARSED_AT_ONCE_BYTES_MAX and count_fields(data, REQUEST_SHAPE, _FIELDS_MAX) > _FIELDS_MAX:
        raise TooLarge(
            f"frame of {len(data)} bytes has more than {_FIELDS_MAX} fields", subject="fields", limit=_FIELDS_MAX
        )
    try:
        return wire.SessionRequest.FromString(data)
    except DecodeError:
        raise Malformed(f"frame of {len(data)} bytes cannot be read", subject="frame") from None


def is_read(data: bytes) -> bool:
    """Returns whether a frame asks for an answer that may be large: a pull or a describe. Looks at its first fields
    only, and parses nothing. A frame with more fields than any needs counts as such a one, too."""
    position, kind = 0, 0
    for _ in range(_FIELDS_LOOKED_AT):
        if position >= len(data):
            return kind in _READS
        tag, position = _varint(data, position)
        if tag & 7 == _DELIMITED:
            size_bytes, position = _varint(data, position)
            position += size_bytes
            if tag >> 3 in REQUEST_SHAPE or tag >> 3 == _CHANGE:
                kind = tag >> 3  # Of several, the last counts.
        elif tag & 7 == _VARINT:
            _, position = _varint(data, position)
        else:
            return True
    return position < len(data) or kind in _READS


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number of protobuf's wire format, and where it ends; beyond the end of `data` if that is cut off."""
    value = shift = 0
    for byte in data[position : position + _LONGEST_VARINT]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, len(data) + 1


def kept_bytes_of_change(size_bytes: int, operations: int) -> int:
    """Returns about how much memory a parsed change takes while it waits for its turn."""
    return FRAME_KEPT_BYTES + 2 * size_bytes + OPERATION_KEPT_BYTES * operations


def kept_bytes(request: wire.SessionRequest) -> int:
    """Returns about how much memory another parsed frame takes while it waits for its turn."""
    kind, size_bytes = request.WhichOneof("frame"), request.ByteSize()
    if kind == "acks":
        size_bytes += ACK_KEPT_BYTES * len(request.acks.acks)
    elif kind == "nacks":
        size_bytes += ACK_KEPT_BYTES * len(request.nacks.messages) + HANDLE_KEPT_BYTES * len(request.nacks.stop)
    elif kind == "attach":  # Its names are kept a second time: AskedAttaches.
        size_bytes += size_bytes + ATTACHED_NAME_KEPT_BYTES * len(request.attach.queues)
    elif kind == "detach":
        size_bytes += HANDLE_KEPT_BYTES * len(request.detach.handles)
    elif kind == "describe":
        size_bytes += DESCRIBED_NAME_KEPT_BYTES * (len(request.describe.queues) + len(request.describe.keys))
    else:
        assert kind in _CHARGED_BY_BYTES, f"{kind}: it is not said how much memory such a frame takes"
    return FRAME_KEPT_BYTES + size_bytes


def kept_bytes_most(size_bytes: int) -> int:
    """Returns how much memory a frame of so many bytes may take once it is parsed."""
    return (
        FRAME_KEPT_BYTES + 2 * size_bytes + ACK_KEPT_BYTES * min(ACKS_PER_FRAME_MAX, size_bytes // FRAME_ITEM_BYTES_MIN)
    )


def check_attach(request: wire.Attach) -> None:
    """Checks an attach. Raises Malformed, TooLarge, InvalidName."""
    if len(request.queues) != len(request.handles):
        raise Malformed(f"attach has {len(request.queues)} queues but {len(request.handles)} handles")
    check_at_most("queues per attach", len(request.queues), QUEUES_PER_ATTACH_MAX)
    check_queue_names(request.queues)
    if len(set(request.handles)) < len(request.handles) or len(set(request.queues)) < len(request.queues):
        raise Malformed("attach names a queue or a handle twice", subject="attach")


def check_detach(request: wire.Detach) -> None:
    """Checks a detach. Raises TooLarge."""
    check_at_most("handles per detach", len(request.handles), DETACH_HANDLES_MAX)


def count_acks(acks: Sequence[wire.Ack]) -> int:
    """Returns how many consumers the acks name; each counts once for each ack. Raises TooLarge."""
    check_at_most("acks per frame", len(acks), ACKS_PER_FRAME_MAX)
    consumers = size_bytes = 0
    for ack in acks:
        consumers += len(ack.handles) + len(ack.queues)
        size_bytes += ack.ByteSize()
    check_at_most("handles and queues of the acks of a frame", consumers, ACKED_CONSUMERS_PER_FRAME_MAX)
    check_at_most("bytes of the acks of a frame", size_bytes, ACK_BYTES_PER_FRAME_MAX)
    return consumers


def check_nacks(nacks: wire.Nacks, everyone: bool) -> int:
    """Checks all of nacks but their messages. Returns their delay, in milliseconds. Raises OutOfRange, Malformed,
    TooLarge."""
    if nacks.unseen and nacks.delay_ms:
        raise Malformed(
            "what no program was given is given again at once: unseen nacks have no delay_ms", subject="unseen"
        )
    check_at_most("number of nacks", nacks.number, NACKS_NUMBER_MAX)
    if nacks.number and (everyone or not nacks.unseen):
        raise Malformed("only unseen nacks of a session have a number", subject="number")
    if nacks.stop and everyone:
        raise Malformed("handles belong to sessions; a unary nack stops none", subject="stop")
    check_at_most("handles per nacks to stop", len(nacks.stop), QUEUES_PER_ATTACH_MAX)
    return NACK_DELAY_MS.check(nacks.delay_ms)


def check_ack(ack: wire.Ack) -> int:
    """Checks an ack. Returns how many names were checked besides the key's. Raises InvalidName, Malformed."""
    check_key(ack.key)
    check_queue_names(ack.queues)
    if ack.lives and len(ack.lives) != len(ack.queues):
        raise Malformed(f"ack has {len(ack.queues)} queues but {len(ack.lives)} lives", subject="lives")
    return len(ack.queues)


def check_describe(request: wire.Describe) -> None:
    """Checks a describe. Raises TooLarge, InvalidName, Malformed."""
    check_at_most("names per describe", len(request.queues) + len(request.keys), DESCRIBE_NAMES_MAX)
    check_queue_names(request.queues)
    for key in request.keys:
        check_key(key)
    if len(set(request.queues)) < len(request.queues) or len(set(request.keys)) < len(request.keys):
        raise Malformed("describe names a queue or a key twice", subject="describe")


def check_queue_names(names: Iterable[bytes]) -> None:
    """Checks names of queues. Raises InvalidName."""
    for name in names:
        if not 0 < len(name) <= NAME_BYTES_MAX:
            check_name(name, "queue")
