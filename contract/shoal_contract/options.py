"""Options of queues and of keys, as values: what a queue was declared with, what a key was configured with, whole.

Belongs here: the values, their bounds, and their form on the wire. Not here: what an option does (slice node).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from shoal_contract import arguments
from shoal_contract.errors import OutOfRange
from shoal_contract.wire import common_pb2


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Holds the options of a queue. To declare an existing queue with other options is a Conflict.

    `expires_after_s`: 0: the queue is durable. Else it is transient: each slice drops its part of the queue once no
    session there has consumed it for so many seconds.
    """

    expires_after_s: int = 0

    def check(self) -> QueueOptions:
        """Returns these options. Raises TypeError, OutOfRange; the message names the option."""
        return QueueOptions(arguments.EXPIRES_AFTER_S.check(self.expires_after_s))

    @staticmethod
    def of_wire(options: common_pb2.QueueOptions) -> QueueOptions:
        """Returns the options that a frame holds."""
        return QueueOptions(options.expires_after_s)

    def to_wire(self) -> common_pb2.QueueOptions:
        """Returns the options as a frame holds them."""
        return common_pb2.QueueOptions(expires_after_s=self.expires_after_s)

    def difference(self, asked: QueueOptions) -> str:
        """Returns in words how the options `asked` for differ from these, option by option."""
        ours, theirs = asdict(self), asdict(asked)
        return ", ".join(f"{name}={ours[name]}, not {theirs[name]}" for name in ours if ours[name] != theirs[name])


DURABLE = QueueOptions()
"""The options of a queue that is declared without any."""


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """Holds the options of a key. To configure a key replaces them all.

    `history_messages`, `history_age_s`: the key keeps its last so many messages, and those of the last so many seconds,
    even if every queue has them, or none is bound. `capacity_messages`, `capacity_bytes`: at most so much is kept, with
    what queues still have to get; a publish beyond is refused with ResourceExhausted. 0 each: none, or no limit.
    """

    history_messages: int = 0
    history_age_s: int = 0
    capacity_messages: int = 0
    capacity_bytes: int = 0

    def check(self) -> KeyOptions:
        """Returns these options. Raises TypeError, OutOfRange; the message names the option."""
        checked = KeyOptions(
            arguments.HISTORY_MESSAGES.check(self.history_messages),
            arguments.HISTORY_AGE_S.check(self.history_age_s),
            arguments.CAPACITY_MESSAGES.check(self.capacity_messages),
            arguments.CAPACITY_BYTES.check(self.capacity_bytes),
        )
        if 0 < checked.capacity_messages <= checked.history_messages:
            raise OutOfRange(
                f"capacity_messages is {checked.capacity_messages}; it needs more than history_messages,"
                f" {checked.history_messages}: else nothing could be published once the history is full",
                subject="capacity_messages",
                limit=checked.history_messages + 1,
                value=checked.capacity_messages,
            )
        return checked

    @property
    def keeps_history(self) -> bool:
        """Returns whether messages stay that every queue has."""
        return bool(self.history_messages or self.history_age_s)

    @staticmethod
    def of_wire(options: common_pb2.KeyOptions) -> KeyOptions:
        """Returns the options that a frame holds."""
        return KeyOptions(
            options.history_messages, options.history_age_s, options.capacity_messages, options.capacity_bytes
        )

    def to_wire(self) -> common_pb2.KeyOptions:
        """Returns the options as a frame holds them."""
        return common_pb2.KeyOptions(**asdict(self))


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
