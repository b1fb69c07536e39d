"""Options of queues and of keys, as values: what a queue was declared with, what a key was configured with, whole.

Belongs here: the values, their bounds, and their form on the wire. Not here: what an option does (slice node).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass

from shoal_contract import arguments
from shoal_contract.errors import InvalidName, Malformed, OutOfRange
from shoal_contract.limits import ACK_TIMEOUT_MS_MIN, DEAD_LETTER_BYTES_MAX
from shoal_contract.names import DIRECT_PREFIX, Name, check_key, show
from shoal_contract.wire import common_pb2


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Holds the options of a queue. To declare an existing queue with other options is a Conflict.

    `expires_after_s`: 0: the queue is durable. Else it is transient: each slice drops its part of the queue once no
    session there has consumed it for so many seconds.

    `ack_timeout_ms`: 0: a session keeps what it was given until it acks it, or ends. Else what it has not acked for so
    long is given again, to whichever session has room: ACK_TIMEOUT_MS_MIN (100) at least.

    `max_deliveries`: 0: no bound. Else a message that was delivered so often and comes back (nack, ack timeout, end of
    a lease or a session) is not delivered again: it is published to the key `dead_letter`, once, or dropped if there is
    none.

    `exclusive`: "none": any number of sessions may consume it, and compete. "newest": one session at a time, and a
    newer one ends the consumption of the one before it. "oldest": one at a time; others are refused while it stays.
    """

    expires_after_s: int = 0
    ack_timeout_ms: int = 0
    max_deliveries: int = 0
    dead_letter: Name = b""
    exclusive: str = "none"

    def check(self) -> QueueOptions:
        """Returns these options, with names as bytes. Raises TypeError, OutOfRange, InvalidName; the message names the
        option."""
        expires_after_s = arguments.EXPIRES_AFTER_S.check(self.expires_after_s)
        ack_timeout_ms = arguments.ACK_TIMEOUT_MS.check(self.ack_timeout_ms)
        if 0 < ack_timeout_ms < ACK_TIMEOUT_MS_MIN:
            raise OutOfRange(
                f"ack_timeout_ms is {ack_timeout_ms}; it needs at least {ACK_TIMEOUT_MS_MIN}, or 0 for none",
                subject="ack_timeout_ms",
                limit=ACK_TIMEOUT_MS_MIN,
                value=ack_timeout_ms,
            )
        max_deliveries = arguments.MAX_DELIVERIES.check(self.max_deliveries)
        exclusive = arguments.EXCLUSIVE.check(self.exclusive)
        return QueueOptions(expires_after_s, ack_timeout_ms, max_deliveries, self._dead_letter(), exclusive)

    def _dead_letter(self) -> bytes:
        """Returns the dead-letter key as bytes; b"": there is none."""
        if not isinstance(self.dead_letter, str | bytes):
            raise TypeError(f"dead_letter must be str or bytes, not {type(self.dead_letter).__name__}")
        if not self.dead_letter:
            return b""
        key = self.dead_letter
        key = key if isinstance(key, bytes) else arguments.check_text("dead_letter", key).encode()
        if len(key) > DEAD_LETTER_BYTES_MAX:
            raise InvalidName(
                f"dead_letter is {len(key)} bytes; the limit is {DEAD_LETTER_BYTES_MAX}",
                subject="dead_letter",
                limit=DEAD_LETTER_BYTES_MAX,
                value=len(key),
            )
        check_key(key)
        if not self.max_deliveries:
            raise OutOfRange(
                f"dead_letter is {show(key)} and max_deliveries is 0: no message would ever go there; give both",
                subject="max_deliveries",
                limit=1,
            )
        return key

    def check_dead_letter(self, queues: Collection[bytes]) -> None:
        """Raises Malformed if the dead-letter key is the direct key of one of these queues, which are declared so: a
        message does not come again to a key where it was, so it would be lost."""
        key = self.dead_letter if isinstance(self.dead_letter, bytes) else self.dead_letter.encode()
        if key.startswith(DIRECT_PREFIX) and key[len(DIRECT_PREFIX) :] in queues:
            queue = show(key[len(DIRECT_PREFIX) :])
            raise Malformed(
                f"queue {queue}: its dead_letter is its own direct key {show(key)}, to which no message comes a second"
                " time; name another key, and bind a queue to it",
                subject=queue,
            )

    @staticmethod
    def of_wire(options: common_pb2.QueueOptions) -> QueueOptions:
        """Returns the options that a frame holds. Raises Malformed for a number that stands for nothing here."""
        if not 0 <= options.exclusive < len(_EXCLUSIVE):
            raise Malformed(f"exclusive is {options.exclusive}: unknown to this version", subject="exclusive")
        return QueueOptions(
            options.expires_after_s,
            options.ack_timeout_ms,
            options.max_deliveries,
            options.dead_letter,
            _EXCLUSIVE[options.exclusive],
        )

    def to_wire(self) -> common_pb2.QueueOptions:
        """Returns the options as a frame holds them."""
        dead_letter = self.dead_letter
        return common_pb2.QueueOptions(
            expires_after_s=self.expires_after_s,
            ack_timeout_ms=self.ack_timeout_ms,
            max_deliveries=self.max_deliveries,
            dead_letter=dead_letter if isinstance(dead_letter, bytes) else dead_letter.encode(),
            exclusive=common_pb2.Exclusive.ValueType(_EXCLUSIVE.index(self.exclusive)),
        )

    def difference(self, asked: QueueOptions) -> str:
        """Returns in words how the options `asked` for differ from these, option by option."""
        ours, theirs = asdict(self), asdict(asked)
        return ", ".join(
            f"{name}={_shown(ours[name])}, not {_shown(theirs[name])}" for name in ours if ours[name] != theirs[name]
        )


def _shown(value: int | Name) -> str:
    return show(value) or '""' if isinstance(value, bytes) else str(value)


_EXCLUSIVE = arguments.EXCLUSIVE.words
"""The words of `exclusive`, by their number on the wire."""

_POLICIES = arguments.POLICY.words
"""The words of `policy`, by their number on the wire."""

DURABLE = QueueOptions()
"""The options of a queue that is declared without any."""


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """Holds the options of a key. To configure a key replaces them all.

    `history_messages`, `history_age_s`: the key keeps its last so many messages, and those of the last so many seconds,
    even if every queue has them, or none is bound. `capacity_messages`, `capacity_bytes`: at most so much is kept, with
    what queues still have to get. 0 each: none, or no limit.

    `policy`: what becomes of a publish beyond the capacity. "reject": it is refused with ResourceExhausted; the history
    has at most half of `capacity_bytes`, so that it does not fill them for ever.
    "drop_oldest": the key's oldest messages make room, whole chunks; queues that still had to get them are told of a
    gap.
    """

    history_messages: int = 0
    history_age_s: int = 0
    capacity_messages: int = 0
    capacity_bytes: int = 0
    policy: str = "reject"

    def check(self) -> KeyOptions:
        """Returns these options. Raises TypeError, OutOfRange; the message names the option."""
        checked = KeyOptions(
            arguments.HISTORY_MESSAGES.check(self.history_messages),
            arguments.HISTORY_AGE_S.check(self.history_age_s),
            arguments.CAPACITY_MESSAGES.check(self.capacity_messages),
            arguments.CAPACITY_BYTES.check(self.capacity_bytes),
            arguments.POLICY.check(self.policy),
        )
        if 0 < checked.capacity_messages <= checked.history_messages:
            raise OutOfRange(
                f"capacity_messages is {checked.capacity_messages}; it needs more than history_messages,"
                f" {checked.history_messages}: else the history would not fit",
                subject="capacity_messages",
                limit=checked.history_messages + 1,
                value=checked.capacity_messages,
            )
        if checked.drops_oldest and not (checked.capacity_messages or checked.capacity_bytes):
            raise OutOfRange(
                "policy is drop_oldest and the key has no capacity: nothing would ever be dropped; give"
                " capacity_messages or capacity_bytes",
                subject="policy",
                limit=1,
            )
        return checked

    @property
    def drops_oldest(self) -> bool:
        """Returns whether the oldest messages make room for a publish beyond the capacity."""
        return self.policy == "drop_oldest"

    @property
    def keeps_history(self) -> bool:
        """Returns whether messages stay that every queue has."""
        return bool(self.history_messages or self.history_age_s)

    @staticmethod
    def of_wire(options: common_pb2.KeyOptions) -> KeyOptions:
        """Returns the options that a frame holds. Raises Malformed for a number that stands for nothing here."""
        if not 0 <= options.policy < len(_POLICIES):
            raise Malformed(f"policy is {options.policy}: unknown to this version", subject="policy")
        return KeyOptions(
            options.history_messages,
            options.history_age_s,
            options.capacity_messages,
            options.capacity_bytes,
            _POLICIES[options.policy],
        )

    def to_wire(self) -> common_pb2.KeyOptions:
        """Returns the options as a frame holds them."""
        return common_pb2.KeyOptions(
            history_messages=self.history_messages,
            history_age_s=self.history_age_s,
            capacity_messages=self.capacity_messages,
            capacity_bytes=self.capacity_bytes,
            policy=common_pb2.Policy.ValueType(_POLICIES.index(self.policy)),
        )


PLAIN = KeyOptions()
"""The options of a key that was not configured."""


def check_key_options(value: object) -> KeyOptions:
    """Returns `value`. Raises TypeError unless it is KeyOptions; else as `KeyOptions.check` does."""
    if not isinstance(value, KeyOptions):
        raise TypeError(f"options must be KeyOptions, not {type(value).__name__}")
    return value.check()


def check_queue_options(value: object) -> QueueOptions:
    """Returns `value`. Raises TypeError unless it is QueueOptions; else as `QueueOptions.check` does."""
    if not isinstance(value, QueueOptions):
        raise TypeError(f"options must be QueueOptions, not {type(value).__name__}")
    return value.check()
