"""`shoal drop` and `shoal purge`: one verb for many queues. An error for one queue is reported, and the others go
on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import shoal
from shoal_ops import exits, output
from shoal_ops.commands.verbs import connect

Found = TypeVar("Found")


async def drop(at: str, queues: Sequence[str], as_json: bool) -> int:
    """Drops queues. Returns the exit code."""

    async def one(broker: shoal.Broker, queue: str) -> None:
        await broker.drop(queue)

    done, problems = await _each(at, queues, one)
    if as_json:
        output.say_json({"dropped": list(done)} | _failed(problems))
    else:
        for queue in done:
            output.say(f"{queue}: dropped")
    return _code(problems)


async def purge(at: str, queues: Sequence[str], as_json: bool) -> int:
    """Purges queues. Returns the exit code."""

    async def one(broker: shoal.Broker, queue: str) -> int:
        return await broker.purge(queue)

    done, problems = await _each(at, queues, one)
    if as_json:
        output.say_json({"purged": done} | _failed(problems))
    else:
        for queue, messages in done.items():
            output.say(f"{queue}: {output.count(messages, 'message')} dropped")
    return _code(problems)


async def _each(
    at: str, queues: Sequence[str], work: Callable[[shoal.Broker, str], Awaitable[Found]]
) -> tuple[dict[str, Found], dict[str, shoal.ShoalError]]:
    """Returns the results and the errors, by queue. After an error other than BadCall the rest is not tried: if the
    cluster is away, each further call would wait as long."""
    done: dict[str, Found] = {}
    problems: dict[str, shoal.ShoalError] = {}
    async with connect(at) as broker:
        for queue in dict.fromkeys(queues):
            try:
                done[queue] = await work(broker, queue)
            except shoal.BadCall as error:
                problems[queue] = error
                exits.tell(error)
            except shoal.ShoalError as error:
                problems[queue] = error
                left = [one for one in queues if one not in done and one not in problems]
                rest = f"; not tried: {' '.join(left)}" if left else ""
                exits.tell(type(error)(f"{queue}: {error.message}{rest}"), {exits.UNKNOWN: exits.CLUSTER_AWAY})
                break
    return done, problems


def _failed(problems: dict[str, shoal.ShoalError]) -> dict[str, dict[str, str]]:
    return {"failed": {queue: error.message for queue, error in problems.items()}} if problems else {}


def _code(problems: dict[str, shoal.ShoalError]) -> int:
    return max((exits.code_of(error) for error in problems.values()), default=exits.DONE)
