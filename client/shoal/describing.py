"""Asks slices to describe many queues, in questions as large as they take.

A slice refuses a Describe whose queues have too many bindings together. Then the question is halved, and how many
queues fit is remembered for a while, so that the next look is not refused first. One question at a time goes to a slice
for each call, and a slice never does more for one than its own bound. Not here: what descriptions mean, and which looks
wait for which (looks.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from shoal.limits import DESCRIBE_QUEUES_MAX, DESCRIBE_SIZES_KEPT_S, DESCRIBE_SIZES_MAX, DESCRIBE_TOLD_S
from shoal_contract.errors import OutcomeUnknown, ResourceExhausted, ShoalError
from shoal_contract.limits import DESCRIBE_BINDINGS_SUBJECT
from shoal_contract.wire import slice_pb2 as wire

Described = wire.QueueDescription | ShoalError
"""What a slice says of a queue: its description, or why there is none."""

_log = logging.getLogger("shoal")


class Describing:
    """Asks slices. `ask`: asks the slice of this name one question, until a deadline."""

    def __init__(self, ask: Callable[[str, wire.Describe, float], Awaitable[wire.Description]]) -> None:
        self._ask = ask
        self._sizes: dict[str, _Sizes] = {}
        self._told_at: dict[str, float] = {}
        """Slice -> when the log was last told that it refuses."""

    async def describe(self, slice_name: str, queues: Sequence[bytes], deadline: float) -> list[Described]:
        """Returns what a slice says of each of these different queues, in order. A queue that the slice does not even
        describe alone has that refusal (`is_too_large`), and the others their descriptions. After any other error the
        queues that are not described yet have that error."""
        sizes = self._sizes.setdefault(slice_name, _Sizes())
        found: dict[bytes, Described] = {}
        line = list(sizes.pieces(queues, asyncio.get_running_loop().time()))[::-1]
        refused: ShoalError | None = None
        while line:
            some = line.pop()
            try:
                description = await self._ask(slice_name, wire.Describe(queues=some), deadline)
            except ShoalError as error:
                if is_too_large(error):
                    half = (len(some) + 1) // 2
                    sizes.refused(some, half, asyncio.get_running_loop().time())
                    if len(some) > 1:
                        line += (some[half:], some[:half])
                        continue
                refused = error
                found.update(dict.fromkeys(some, error))
                if not is_too_large(error):
                    found.update((queue, error) for rest in line for queue in rest)
                    break
            else:
                found.update(zip(some, description.queues, strict=True))
        if refused is not None and not isinstance(refused, OutcomeUnknown):
            self._tell(slice_name, refused)
        return [found[queue] for queue in queues]

    def _tell(self, slice_name: str, refused: ShoalError) -> None:
        """Logs a refusal, once a minute while they last. (That a slice does not answer is told elsewhere.)"""
        now = asyncio.get_running_loop().time()
        if now >= self._told_at.get(slice_name, float("-inf")) + DESCRIBE_TOLD_S:
            self._told_at[slice_name] = now
            _log.warning("slice %s does not describe some queues: %s", slice_name, refused)


class _Sizes:
    """Remembers of queues of one slice, whose question was refused, how many of them fit together."""

    def __init__(self) -> None:
        self._fits: dict[bytes, int] = {}
        self._forget_at = 0.0

    def pieces(self, queues: Sequence[bytes], now: float) -> Iterator[Sequence[bytes]]:
        """Yields the queues in pieces that are likely to fit: those of one size together, so that one large queue makes
        the pieces of its former neighbours smaller only."""
        if now >= self._forget_at:
            self._fits.clear()
        by_size: dict[int, list[bytes]] = {}
        for queue in queues:
            by_size.setdefault(self._fits.get(queue, DESCRIBE_QUEUES_MAX), []).append(queue)
        for size, alike in by_size.items():
            for start in range(0, len(alike), size):
                yield alike[start : start + size]

    def refused(self, queues: Sequence[bytes], size: int, now: float) -> None:
        """Takes that these queues were refused together; `size` of them are tried next."""
        if len(self._fits) + len(queues) > DESCRIBE_SIZES_MAX:
            self._fits.clear()
        if not self._fits:
            self._forget_at = now + DESCRIBE_SIZES_KEPT_S
        self._fits.update(dict.fromkeys(queues, size))


def is_too_large(error: ShoalError) -> bool:
    """Returns whether a slice refused a Describe because of the bindings of its queues: fewer queues may be described.
    One queue is beyond the bound by itself only with many done ranges, or with many bindings that ended."""
    return isinstance(error, ResourceExhausted) and error.subject == DESCRIBE_BINDINGS_SUBJECT
