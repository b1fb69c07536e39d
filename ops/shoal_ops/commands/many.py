"""`shoal drop`, `shoal purge`, `shoal configure`: one verb for many queues or keys, in one call. An error for one of
them is reported, and the others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict

import shoal
from shoal_contract.names import Name
from shoal_ops import exits, output
from shoal_ops.commands.verbs import connect


async def drop(at: str, queues: Sequence[str], if_unused: bool, if_empty: bool, as_json: bool) -> int:
    """Drops queues. Returns the exit code."""

    async def work(broker: shoal.Broker, some: Sequence[str]) -> dict[Name, int]:
        await broker.drop(some, if_unused=if_unused, if_empty=if_empty)
        return dict.fromkeys(some, 0)

    done, problems = await _all(at, queues, work)
    if as_json:
        output.say_json({"dropped": list(done)} | _failed(problems))
    else:
        for queue in done:
            output.say(f"{queue}: dropped")
    return _code(problems)


async def configure(at: str, keys: Sequence[str], options: shoal.KeyOptions, as_json: bool) -> int:
    """Configures keys. Returns the exit code."""

    async def work(broker: shoal.Broker, some: Sequence[str]) -> dict[Name, int]:
        await broker.configure(some, options)
        return dict.fromkeys(some, 0)

    done, problems = await _all(at, keys, work)
    if as_json:
        output.say_json({"configured": list(done), "options": asdict(options)} | _failed(problems))
    elif done:
        output.say(f"configured {output.count(len(done), 'key')}")
    return _code(problems)


async def purge(at: str, queues: Sequence[str], as_json: bool) -> int:
    """Purges queues. Returns the exit code."""

    async def work(broker: shoal.Broker, some: Sequence[str]) -> dict[Name, int]:
        return await broker.purge(some)

    done, problems = await _all(at, queues, work)
    if as_json:
        output.say_json({"purged": done} | _failed(problems))
    else:
        for queue, messages in done.items():
            output.say(f"{queue}: {output.count(messages, 'message')} dropped")
    return _code(problems)


async def _all(
    at: str, given: Sequence[str], work: Callable[[shoal.Broker, Sequence[str]], Awaitable[Mapping[Name, int]]]
) -> tuple[dict[str, int], dict[str, shoal.ShoalError]]:
    """Returns what was done, with its value, and the errors, by name. Each error that the caller can mend has a line;
    of the others one stands for all: if the cluster is away, all have the same."""
    names = list(dict.fromkeys(given))
    problems: Mapping[Name, shoal.ShoalError] = {}
    async with connect(at) as broker:
        try:
            done = await work(broker, names)
        except shoal.ShoalError as error:
            done = error.done
            problems = error.failed or dict.fromkeys(names, error)
    grave = {name: one for name, one in problems.items() if not isinstance(one, shoal.BadCall)}
    for one in problems.values():
        if isinstance(one, shoal.BadCall):
            exits.tell(one)
    if grave:
        name, first = next(iter(grave.items()))
        rest = [output.plain(other) for other in grave if other != name]
        also = f"; and so for: {' '.join(rest)}" if rest else ""
        exits.tell(type(first)(f"{output.plain(name)}: {first.message}{also}"), {exits.UNKNOWN: exits.CLUSTER_AWAY})
    return (
        {output.plain(name): value for name, value in done.items()},
        {output.plain(name): one for name, one in problems.items()},
    )


def _failed(problems: Mapping[str, shoal.ShoalError]) -> dict[str, dict[str, str]]:
    return {"failed": {queue: error.message for queue, error in problems.items()}} if problems else {}


def _code(problems: Mapping[str, shoal.ShoalError]) -> int:
    return max((exits.code_of(error) for error in problems.values()), default=exits.DONE)
