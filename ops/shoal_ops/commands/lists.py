"""`shoal queues`, `keys`, `members`, `bindings`: each prints one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

import shoal
from shoal_ops import output
from shoal_ops.commands.verbs import connect, tell_full

Item = TypeVar("Item")


async def queues(at: str, prefix: str, after: str, limit: int, as_json: bool) -> None:
    async with connect(at) as broker:
        page = await shoal.Admin(broker).queues(prefix, after, limit)
    _tell_names("queues", page, as_json)


async def keys(at: str, prefix: str, after: str, limit: int, as_json: bool) -> None:
    async with connect(at) as broker:
        page = await shoal.Admin(broker).keys(prefix, after, limit)
    if as_json:
        found = [{"key": output.plain(entry.key), "queues": entry.queues} for entry in page.items]
        output.say_json({"keys": found, "next": page.next})
        return
    _tell_rows(("key", "queues"), page, lambda entry: (output.shown(entry.key), entry.queues))


async def members(at: str, key: str, after: str, limit: int, as_json: bool) -> None:
    async with connect(at) as broker:
        page = await shoal.Admin(broker).members(key, after, limit)
    _tell_names("members", page, as_json)
    if not page.items and not after and not as_json:
        output.remark(f"no queue is bound to {key}")


async def bindings(at: str, queue: str, after: str, limit: int, as_json: bool) -> None:
    async with connect(at) as broker:
        page = await shoal.Admin(broker).bindings(queue, after, limit)
    if as_json:
        found = [asdict(entry) | {"key": output.plain(entry.key)} for entry in page.items]
        output.say_json({"bindings": found, "next": page.next})
        return
    columns = ("key", "slice", "start", "cursor", "end", "head", "backlog", "unacked")
    _tell_rows(
        columns,
        page,
        lambda one: (
            *(output.shown(one.key), one.slice, one.start, one.cursor, one.end or "bound"),
            *(one.head, one.messages, one.unacked),
        ),
    )
    tell_full([one.key for one in page.items if one.full])


def _tell_names(what: str, page: shoal.Page[str | bytes], as_json: bool) -> None:
    if as_json:
        output.say_json({what: [output.plain(name) for name in page.items], "next": page.next})
        return
    for name in page.items:
        output.say(output.shown(name))
    _tell_next(page.next)


def _tell_rows(columns: Sequence[str], page: shoal.Page[Item], row: Callable[[Item], Sequence[object]]) -> None:
    if page.items:
        output.table(columns, [row(item) for item in page.items])
    _tell_next(page.next)


def _tell_next(following: str) -> None:
    """Writes the page's `next` to stderr, so that a program that reads names from a pipe does not take it for a
    name."""
    if following:
        output.remark(f"there is more: --after {following}")
