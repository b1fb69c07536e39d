"""Does the commands of a file as one transaction. The commands are declare, configure, bind, unbind, publish and ack.

Not here: what a transaction is (client/shoal/transactions.py).
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

import shoal
from shoal_ops import output
from shoal_ops.commands.verbs import DELAYED, connect
from shoal_ops.headers import parse_headers
from shoal_ops.limits import TRANSACTION_FILE_BYTES_MAX
from shoal_ops.offsets import parse_offsets
from shoal_ops.standard_input import read_standard_input
from shoal_ops.starts import parse_start
from shoal_ops.times import checked_time

STANDARD_INPUT: Final = "-"
_NOT_IN_FILES: Final = ("at", "as_json", "live", "idempotency_key")
"""Parameters of the commands that a line of a file cannot have. A transaction publishes nothing live, and has no place
where a repeat would be known: one without acks is done again."""


class _Told(NamedTuple):
    """Says what a command did, once it is committed. `values`: returns it as JSON has it; `text`: as people read it."""

    values: Callable[[], dict[str, Any]]
    text: Callable[[], str]


def _parsers(commands: typer.Typer) -> dict[str, TyperCommand]:
    """Returns the parser of each verb of a file: that of the command, without the options that say how it is called,
    and without what a transaction does not do."""
    group = typer.main.get_command(commands)
    assert isinstance(group, TyperGroup)
    parsers: dict[str, TyperCommand] = {}
    for verb in _VERBS:
        parser = group.commands[verb]
        assert isinstance(parser, TyperCommand)
        parser.params = [param for param in parser.params if param.name not in _NOT_IN_FILES]
        parser.add_help_option = False
        parsers[verb] = parser
    return parsers


async def transact(at: str, file: str, commands: typer.Typer, as_json: bool) -> None:
    """Does the commands of a file, or of standard input. `commands`: those of the command line, which say what a line
    may have."""
    parsers = _parsers(commands)
    lines = (await _read(file)).splitlines()
    parsed = [found for number, line in enumerate(lines, 1) if (found := _parsed(parsers, number, line)) is not None]
    if not parsed:
        raise shoal.Malformed(f"{output.shown(file)} has no command", subject="file")
    async with connect(at) as broker:
        told: list[_Told] = []
        async with broker.transaction() as transaction:
            for number, line in parsed:
                with _line(number):
                    told.append(_VERBS[line.verb](transaction, line))
    if as_json:
        output.say_json({"committed": [one.values() for one in told]})
        return
    for one in told:
        output.say(one.text())


async def _read(file: str) -> str:
    """Returns the text of a file. Raises OSError, Malformed, TooLarge."""
    limit = TRANSACTION_FILE_BYTES_MAX
    if file == STANDARD_INPUT:
        data = await read_standard_input("the commands of a transaction", limit)
    else:
        data = await asyncio.to_thread(_read_file, Path(file), limit + 1)
    if len(data) > limit:
        what = f"the commands of a transaction take more than {limit} bytes, which is the limit"
        raise shoal.TooLarge(what, subject="file", limit=limit, value=len(data))
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise shoal.Malformed(f"{output.shown(file)} is not UTF-8 text", subject="file") from None


def _read_file(path: Path, bytes_max: int) -> bytes:
    with path.open("rb") as opened:
        return opened.read(bytes_max)


@contextmanager
def _line(number: int) -> Iterator[None]:
    """Names the line in each error of a block."""
    try:
        yield
    except shoal.ShoalError as error:
        error.message = f"line {number}: {error.message}"
        error.args = (error.message,)
        raise


def _parsed(parsers: Mapping[str, TyperCommand], number: int, line: str) -> tuple[int, SimpleNamespace] | None:
    """Returns a line's number and its arguments; None for an empty line and a remark. Raises Malformed."""
    if not line.strip() or line.lstrip().startswith("#"):
        return None
    with _line(number):
        try:
            verb, *words = shlex.split(line)
        except ValueError as error:
            raise shoal.Malformed(f"it cannot be read: {error}", subject="line") from None
        parser = parsers.get(verb)
        if parser is None:
            known = ", ".join(parsers)
            raise shoal.Malformed(
                f"{output.shown(verb)} is no command of a transaction, which has {known}", subject=verb
            )
        try:
            given = parser.make_context(verb, words).params
        except TyperException as error:
            raise shoal.Malformed(" ".join(error.format_message().split()), subject=verb) from None
        return number, SimpleNamespace(verb=verb, **given)


def _declare(transaction: shoal.Transaction, line: SimpleNamespace) -> _Told:
    options = shoal.QueueOptions(
        line.expires_after_s, line.ack_timeout_ms, line.max_deliveries, line.dead_letter, line.exclusive.value
    )
    transaction.declare(line.queues, options)
    return _Told(lambda: {"declared": line.queues}, lambda: f"declared {_names(line.queues)}")


def _configure(transaction: shoal.Transaction, line: SimpleNamespace) -> _Told:
    options = shoal.KeyOptions(
        line.history_messages, line.history_age_s, line.capacity_messages, line.capacity_bytes, line.policy.value
    )
    transaction.configure(line.keys, options)
    values = {"configured": line.keys, "options": asdict(options)}
    return _Told(lambda: values, lambda: f"configured {_names(line.keys)}")


def _bind(transaction: shoal.Transaction, line: SimpleNamespace) -> _Told:
    bound = transaction.bind(line.queue, line.keys, start=parse_start(line.start))
    return _offsets("bound", "from offset", line.queue, bound)


def _unbind(transaction: shoal.Transaction, line: SimpleNamespace) -> _Told:
    left = transaction.unbind(line.queue, line.keys, discard=line.discard)
    return _offsets("unbound", "up to offset", line.queue, left)


def _publish(transaction: shoal.Transaction, line: SimpleNamespace) -> _Told:
    if line.body is None:
        raise shoal.Malformed("Missing argument 'BODY'.", subject="publish")
    try:
        not_before = checked_time(line.not_before)
    except typer.BadParameter as error:
        raise shoal.Malformed(error.format_message(), subject="not_before") from None
    result = transaction.publish(
        line.key,
        line.body.encode(),
        headers=parse_headers(line.header),
        mandatory=line.mandatory,
        not_before=not_before,
        ttl=line.ttl,
    )

    def text() -> str:
        key, receipt = output.shown(line.key), result.value
        if receipt.delayed:
            return f"published to {key}: {DELAYED}"
        if not receipt.offset:
            return f"published to {key}: no queue is bound, the message is not kept"
        return f"published to {key}: offset {receipt.offset}, to {output.count(receipt.queues, 'queue')}"

    return _Told(lambda: {"published": result.value._asdict()}, text)


def _ack(transaction: shoal.Transaction, line: SimpleNamespace) -> _Told:
    done = parse_offsets(line.key, line.offsets)
    transaction.ack_done(line.queue, done)
    messages = sum(one.end - one.first for one in done)
    values = {"queue": line.queue, "key": line.key, "messages": messages}
    return _Told(
        lambda: {"acked": values}, lambda: f"acked {output.count(messages, 'message')} of {_names([line.key])}"
    )


def _offsets(verb: str, what: str, queue: str, result: shoal.TransactionResult[dict[Any, int]]) -> _Told:
    def values() -> dict[str, Any]:
        return {verb: {"queue": queue, "offsets": {output.plain(key): at for key, at in result.value.items()}}}

    def text() -> str:
        told = (
            f"{output.shown(key)} {what} {at}" if at else f"{output.shown(key)} was not"
            for key, at in result.value.items()
        )
        return f"{verb} {output.shown(queue)}: {', '.join(told)}"

    return _Told(values, text)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(output.shown, names))


_VERBS: Final[dict[str, Callable[[shoal.Transaction, SimpleNamespace], _Told]]] = {
    "declare": _declare,
    "configure": _configure,
    "bind": _bind,
    "unbind": _unbind,
    "publish": _publish,
    "ack": _ack,
}
