"""Options of queues, as values: what a queue was declared with, whole.

Belongs here: the values, their bounds, and their form on the wire. Not here: what an option does (slice node).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from shoal_contract import arguments
from shoal_contract.errors import Malformed
from shoal_contract.wire import common_pb2


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Holds the options of a queue. To declare an existing queue with other options is a Conflict.

    `expires_after_s`: 0: the queue is durable. Else it is transient: each slice drops its part of the queue once no
    session there has consumed it for so many seconds.
    `exclusive`: "none": any number of sessions may consume it, and compete. "newest": one session at a time, and a
    newer one ends the consumption of the one before it. "oldest": one at a time; others are refused while it stays.
    """

    expires_after_s: int = 0
    exclusive: str = "none"

    def check(self) -> QueueOptions:
        """Returns these options. Raises TypeError, OutOfRange; the message names the option."""
        return QueueOptions(
            expires_after_s=arguments.EXPIRES_AFTER_S.check(self.expires_after_s),
            exclusive=arguments.EXCLUSIVE.check(self.exclusive),
        )

    @staticmethod
    def of_wire(options: common_pb2.QueueOptions) -> QueueOptions:
        """Returns the options that a frame holds. Raises Malformed for a number that stands for nothing here."""
        if not options.exclusive < len(_EXCLUSIVE):
            raise Malformed(f"exclusive is {options.exclusive}: unknown to this version", subject="exclusive")
        return QueueOptions(expires_after_s=options.expires_after_s, exclusive=_EXCLUSIVE[options.exclusive])

    def to_wire(self) -> common_pb2.QueueOptions:
        """Returns the options as a frame holds them."""
        number = common_pb2.Exclusive.ValueType(_EXCLUSIVE.index(self.exclusive))
        return common_pb2.QueueOptions(expires_after_s=self.expires_after_s, exclusive=number)

    def difference(self, asked: QueueOptions) -> str:
        """Returns in words how the options `asked` for differ from these, option by option."""
        ours, theirs = asdict(self), asdict(asked)
        return ", ".join(f"{name}={ours[name]}, not {theirs[name]}" for name in ours if ours[name] != theirs[name])


_EXCLUSIVE = arguments.EXCLUSIVE.words
"""The words of `exclusive`, by their number on the wire."""

DURABLE = QueueOptions()
"""The options of a queue that is declared without any."""


def check_queue_options(value: object) -> QueueOptions:
    """Returns `value`. Raises TypeError unless it is QueueOptions; else as `QueueOptions.check` does."""
    if not isinstance(value, QueueOptions):
        raise TypeError(f"options must be QueueOptions, not {type(value).__name__}")
    return value.check()
