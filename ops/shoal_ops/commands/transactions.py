"""Does the commands of a file as one transaction. The commands are those of `shoal`, without those that only read.

Not here: what a transaction is (client/shoal/transactions.py).
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import typer

import shoal
from shoal_ops import output
from shoal_ops.commands.verbs import connect
from shoal_ops.limits import TRANSACTION_FILE_BYTES_MAX
from shoal_ops.starts import checked_start, parse_start

STANDARD_INPUT: Final = "-"


class _Told(NamedTuple):
    """Says what a command did, once it is committed. `values`: returns it as JSON has it; `text`: as people read it."""

    values: Callable[[], dict[str, Any]]
    text: Callable[[], str]


class _Arguments(argparse.ArgumentParser):
    """Parses one line. It raises Malformed where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise shoal.Malformed(f"{message}. {self.format_usage().strip()}", subject=self.prog)


def _verb(name: str, *positional: tuple[str, str | None]) -> _Arguments:
    parser = _Arguments(prog=name, add_help=False, allow_abbrev=False)
    for one, count in positional:
        parser.add_argument(one, nargs=count)
    return parser


def _parsers() -> dict[str, _Arguments]:
    declare = _verb("declare", ("queues", "+"))
    declare.add_argument("--expires-after-s", type=int, default=0, metavar="N")
    configure = _verb("configure", ("keys", "+"))
    for option in ("--history-messages", "--history-age-s", "--capacity-messages", "--capacity-bytes"):
        configure.add_argument(option, type=int, default=0, metavar="N")
    bind = _verb("bind", ("queue", None), ("keys", "+"))
    bind.add_argument("--start", default="now", metavar="FROM")
    unbind = _verb("unbind", ("queue", None), ("keys", "+"))
    unbind.add_argument("--discard", action="store_true")
    publish = _verb("publish", ("key", None), ("body", None))
    publish.add_argument("--mandatory", action="store_true")
    ack = _verb("ack", ("queue", None), ("key", None), ("offsets", "+"))
    return {one.prog: one for one in (declare, configure, bind, unbind, publish, ack)}


async def transact(at: str, file: str, as_json: bool) -> None:
    """Does the commands of a file, or of standard input."""
    lines = (await asyncio.to_thread(_read, file)).splitlines()
    parsed = [found for number, line in enumerate(lines, 1) if (found := _parsed(number, line)) is not None]
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


def _read(file: str) -> str:
    """Returns the text of a file. Raises OSError, Malformed, TooLarge."""
    limit = TRANSACTION_FILE_BYTES_MAX
    if file == STANDARD_INPUT:
        data = sys.stdin.buffer.read(limit + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(limit + 1)
    if len(data) > limit:
        what = f"the commands of a transaction take more than {limit} bytes, which is the limit"
        raise shoal.TooLarge(what, subject="file", limit=limit, value=len(data))
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise shoal.Malformed(f"{output.shown(file)} is not UTF-8 text", subject="file") from None


@contextmanager
def _line(number: int) -> Iterator[None]:
    """Names the line in each error of a block."""
    try:
        yield
    except shoal.ShoalError as error:
        error.message = f"line {number}: {error.message}"
        error.args = (error.message,)
        raise


def _parsed(number: int, line: str) -> tuple[int, argparse.Namespace] | None:
    """Returns a line's number and its arguments; None for an empty line and a remark. Raises Malformed."""
    if not line.strip() or line.lstrip().startswith("#"):
        return None
    with _line(number):
        try:
            verb, *words = shlex.split(line)
        except ValueError as error:
            raise shoal.Malformed(f"it cannot be read: {error}", subject="line") from None
        parser = _PARSERS.get(verb)
        if parser is None:
            known = ", ".join(_PARSERS)
            raise shoal.Malformed(
                f"{output.shown(verb)} is no command of a transaction, which has {known}", subject=verb
            )
        found = parser.parse_args(words)
        found.verb = verb
        return number, found


def _declare(transaction: shoal.Transaction, line: argparse.Namespace) -> _Told:
    transaction.declare(line.queues, shoal.QueueOptions(line.expires_after_s))
    return _Told(lambda: {"declared": line.queues}, lambda: f"declared {_names(line.queues)}")


def _configure(transaction: shoal.Transaction, line: argparse.Namespace) -> _Told:
    options = shoal.KeyOptions(line.history_messages, line.history_age_s, line.capacity_messages, line.capacity_bytes)
    transaction.configure(line.keys, options)
    values = {"configured": line.keys, "options": asdict(options)}
    return _Told(lambda: values, lambda: f"configured {_names(line.keys)}")


def _bind(transaction: shoal.Transaction, line: argparse.Namespace) -> _Told:
    try:
        start = parse_start(checked_start(line.start))
    except typer.BadParameter as error:
        raise shoal.Malformed(f"--start {error}", subject="start") from None
    bound = transaction.bind(line.queue, line.keys, start=start)
    return _offsets("bound", "from offset", line.queue, bound)


def _unbind(transaction: shoal.Transaction, line: argparse.Namespace) -> _Told:
    left = transaction.unbind(line.queue, line.keys, discard=line.discard)
    return _offsets("unbound", "up to offset", line.queue, left)


def _publish(transaction: shoal.Transaction, line: argparse.Namespace) -> _Told:
    result = transaction.publish(line.key, line.body.encode(), mandatory=line.mandatory)

    def text() -> str:
        key, receipt = output.shown(line.key), result.value
        if not receipt.offset:
            return f"published to {key}: no queue is bound, the message is not kept"
        return f"published to {key}: offset {receipt.offset}, to {output.count(receipt.queues, 'queue')}"

    return _Told(lambda: {"published": result.value._asdict()}, text)


def _ack(transaction: shoal.Transaction, line: argparse.Namespace) -> _Told:
    done = [shoal.Done(line.key, *_range(text)) for text in line.offsets]
    transaction.ack_done(line.queue, done)
    messages = sum(one.end - one.first for one in done)
    values = {"queue": line.queue, "key": line.key, "messages": messages}
    return _Told(
        lambda: {"acked": values}, lambda: f"acked {output.count(messages, 'message')} of {_names([line.key])}"
    )


def _range(text: str) -> tuple[int, int]:
    """Returns the first offset of OFFSET or FIRST-LAST, and the one behind the last. Raises Malformed."""
    first, dash, last = text.partition("-")
    if not all(one.isascii() and one.isdigit() for one in (first, last if dash else first)):
        raise shoal.Malformed(f"{output.shown(text)} names no offsets: give OFFSET or FIRST-LAST", subject="offsets")
    return int(first), int(last if dash else first) + 1


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


_PARSERS: Final = _parsers()
_VERBS: Final[dict[str, Callable[[shoal.Transaction, argparse.Namespace], _Told]]] = {
    "declare": _declare,
    "configure": _configure,
    "bind": _bind,
    "unbind": _unbind,
    "publish": _publish,
    "ack": _ack,
}
