"""The verbs of the broker on the command line, and where things are. Arguments and help only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from shoal_contract.arguments import (
    ACK_TIMEOUT_MS,
    CAPACITY_BYTES,
    CAPACITY_MESSAGES,
    EXPIRES_AFTER_S,
    FAREWELL_AFTER_S,
    HISTORY_AGE_S,
    HISTORY_MESSAGES,
    LEASE_MS,
    MAX_DELIVERIES,
)
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_ops import exits
from shoal_ops.arguments import AT_DEFAULT, At, Json, Key, Keys, Messages, Queue, Queues, key_names, queue_names
from shoal_ops.headers import Headers
from shoal_ops.offsets import Offsets
from shoal_ops.starts import checked_start
from shoal_ops.times import checked_ack_timeout, checked_delay, checked_time, checked_ttl

commands = typer.Typer()


class Exclusive(StrEnum):
    """Names the values of the option `exclusive`."""

    NONE = "none"
    NEWEST = "newest"
    OLDEST = "oldest"


class Policy(StrEnum):
    """Names the values of the option `policy`."""

    REJECT = "reject"
    DROP_OLDEST = "drop_oldest"


@commands.command()
def status(at: At = AT_DEFAULT, as_json: Json = False) -> None:
    """Show the map's version and, for every slice, whether it answers, its version, its core and its trouble."""
    from shoal_ops.commands import status

    hints = {exits.UNKNOWN: "shoal up starts one here; --at names another"}
    raise typer.Exit(exits.run(status.tell_status(at, as_json), hints))


@commands.command()
def locate(keys: Keys, at: At = AT_DEFAULT, as_json: Json = False) -> None:
    """Say which slice owns a key."""
    from shoal_ops.commands import places

    exits.run(places.locate(at, keys, as_json))


@commands.command()
def declare(
    queues: Queues,
    expires_after_s: Annotated[
        int,
        typer.Option(
            "--expires-after-s",
            min=EXPIRES_AFTER_S.low,
            max=EXPIRES_AFTER_S.high,
            help="0: durable. Else they are dropped when no session has consumed them for so many seconds.",
        ),
    ] = 0,
    ack_timeout_ms: Annotated[
        int,
        typer.Option(
            "--ack-timeout-ms",
            min=ACK_TIMEOUT_MS.low,
            max=ACK_TIMEOUT_MS.high,
            callback=checked_ack_timeout,
            help="0: none. Else what a session has not acked for so long, at least 100, is given again.",
        ),
    ] = 0,
    max_deliveries: Annotated[
        int,
        typer.Option(
            "--max-deliveries",
            min=MAX_DELIVERIES.low,
            max=MAX_DELIVERIES.high,
            help="0: no bound. Else a message that was delivered so often and comes back goes to --dead-letter.",
        ),
    ] = 0,
    dead_letter: Annotated[
        str, typer.Option("--dead-letter", metavar="KEY", help="Where such messages go; without it they are dropped.")
    ] = "",
    exclusive: Annotated[
        Exclusive,
        typer.Option(
            "--exclusive", help="One session at a time consumes it: a newer one takes over, or the oldest stays."
        ),
    ] = Exclusive.NONE,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Make queues exist."""
    from shoal_ops.commands import verbs

    options = QueueOptions(expires_after_s, ack_timeout_ms, max_deliveries, dead_letter, exclusive.value)
    exits.run(verbs.declare(at, queues, options, as_json))


@commands.command()
def configure(
    keys: Keys,
    history_messages: Annotated[
        int,
        typer.Option("--history-messages", min=0, max=HISTORY_MESSAGES.high, help="Keep the last so many messages."),
    ] = 0,
    history_age_s: Annotated[
        int,
        typer.Option("--history-age-s", min=0, max=HISTORY_AGE_S.high, help="Keep those of the last so many seconds."),
    ] = 0,
    capacity_messages: Annotated[
        int,
        typer.Option(
            "--capacity-messages",
            min=0,
            max=CAPACITY_MESSAGES.high,
            help="At most so many messages are kept; 0: no limit. --policy says what becomes of a publish beyond.",
        ),
    ] = 0,
    capacity_bytes: Annotated[
        int,
        typer.Option(
            "--capacity-bytes",
            min=0,
            max=CAPACITY_BYTES.high,
            help="At most so many bytes of bodies are kept; 0: no limit.",
        ),
    ] = 0,
    policy: Annotated[
        Policy,
        typer.Option("--policy", help="Beyond the capacity: refuse the publish, or let the oldest messages go."),
    ] = Policy.REJECT,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Give keys a history and a capacity, in the place of what they have; without options, take them away."""
    from shoal_ops.commands import many

    options = KeyOptions(history_messages, history_age_s, capacity_messages, capacity_bytes, policy.value)
    raise typer.Exit(exits.run(many.configure(at, keys, options, as_json)))


@commands.command()
def bind(
    queue: Queue,
    keys: Keys,
    start: Annotated[
        str,
        typer.Option(
            metavar="FROM",
            callback=checked_start,
            help="Where to begin: now, earliest (all still kept), last=N messages, ago=SECONDS, offset=N.",
        ),
    ] = "now",
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Bind a queue to keys."""
    from shoal_ops.commands import verbs

    exits.run(verbs.bind(at, queue, keys, start, as_json))


@commands.command()
def unbind(
    queue: Queue,
    keys: Keys,
    discard: Annotated[bool, typer.Option("--discard", help="Drop the backlog of these bindings too.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """End bindings; what was published before stays until consumed."""
    from shoal_ops.commands import verbs

    exits.run(verbs.unbind(at, queue, keys, discard, as_json))


@commands.command()
def publish(
    key: Key,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Text of the message; left out: read from standard input.")
    ] = None,
    mandatory: Annotated[bool, typer.Option("--mandatory", help="Fail if no queue is bound to the key.")] = False,
    not_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Publish it at this time, 366 days ahead at most: YYYY-MM-DDT18:00+01:00, or seconds since 1970.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Only to those that consume now: nothing is stored, and it may be lost.")
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option(
            "--ttl",
            metavar="SECONDS",
            callback=checked_ttl,
            help="It is valid for so long; then it is not delivered any more.",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A repeat of the same publish with this text is stored once; up to 255 bytes, for a day.",
        ),
    ] = None,
    header: Headers = None,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Publish one message; durable when this returns, unless it is live."""
    from shoal_ops.commands import verbs

    time = checked_time(not_before)
    exits.run(verbs.publish(at, key, body, mandatory, live, time, ttl, idempotency_key, header, as_json))


@commands.command()
def farewell(
    queue: Queue,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Where it is published.")] = None,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Text of the message; left out: read from standard input.")
    ] = None,
    after_s: Annotated[
        int,
        typer.Option(
            "--after-s",
            min=0,
            max=FAREWELL_AFTER_S.high,
            help="Publish it once no session has consumed the queue for so many seconds.",
        ),
    ] = 0,
    take_back: Annotated[bool, typer.Option("--take-back", help="Take the queue's farewell back.")] = False,
    header: Headers = None,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Keep a message with a queue, to be published when its last session has been gone for a time."""
    from shoal_ops.commands import verbs

    if take_back == (key is not None) or (take_back and (after_s or header)):
        raise typer.BadParameter("name the KEY of a farewell, or give --take-back alone", param_hint=["KEY"])
    exits.run(verbs.farewell(at, queue, key, body, after_s, header, as_json))


@commands.command()
def pull(
    queue: Queue,
    messages: Messages = 10,
    peek: Annotated[bool, typer.Option("--peek", help="Show the messages without taking them.")] = False,
    lease_ms: Annotated[
        int | None,
        typer.Option(
            "--lease-ms",
            min=1,
            max=LEASE_MS.high,
            help="Do not ack them: what `shoal ack` does not name in this time is given again. It takes what one answer"
            " of each slice brings, though more may wait.",
        ),
    ] = None,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Take messages of a queue, print and ack them."""
    from shoal_ops.commands import leases, verbs

    if lease_ms is None:
        exits.run(verbs.pull(at, queue, messages, peek, as_json))
    elif peek:
        raise typer.BadParameter("--peek takes nothing, and so nothing has a lease", param_hint=["--lease-ms"])
    else:
        exits.run(leases.pull(at, queue, messages, lease_ms, as_json))


@commands.command()
def ack(queue: Queue, key: Key, offsets: Offsets, at: At = AT_DEFAULT, as_json: Json = False) -> None:
    """Ack messages of a queue that any consumer was given. What was not given out stays as it is."""
    from shoal_ops.commands import leases

    exits.run(leases.ack(at, queue, key, offsets, as_json))


@commands.command()
def nack(
    queue: Queue,
    key: Key,
    offsets: Offsets,
    delay_s: Annotated[
        float,
        typer.Option(
            "--delay-s",
            metavar="SECONDS",
            callback=checked_delay,
            help="Give them again no earlier than after so long.",
        ),
    ] = 0,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Give messages of a queue back that any consumer was given: they are delivered again."""
    from shoal_ops.commands import leases

    exits.run(leases.nack(at, queue, key, offsets, delay_s, as_json))


@commands.command()
def tail(
    queues: Queues,
    messages: Annotated[
        int | None,
        typer.Option("--messages", "-n", min=1, help="Stop after this many messages; left out: run until Ctrl-C."),
    ] = None,
    ack: Annotated[
        bool,
        typer.Option("--ack/--no-ack", help="Ack the messages that are printed, so that they leave the queue."),
    ] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Print messages of queues as they come, and leave them there.

    While it runs, no other consumer of the queues gets what it has printed; when it ends, they do, and this counts as
    no delivery. It holds up to 1,000 messages of each queue on each slice, and then prints no more. With --ack the
    printed messages are gone.
    """
    from shoal_ops.commands import verbs

    exits.run(verbs.tail(at, queues, messages, ack, as_json))


@commands.command()
def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    key: Annotated[bool, typer.Option("--key", help="The name is that of a key, not of a queue.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show a queue's bindings and exact backlog, or a key."""
    from shoal_ops.commands import verbs

    (key_names if key else queue_names)(name)
    exits.run((verbs.describe_key if key else verbs.describe)(at, name, as_json))


@commands.command()
def transaction(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", show_default=False, help="A file with one command in each line; - is standard input."
        ),
    ],
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Do several commands in one record of one slice: all of them, or none.

    The file has one command in each line, written as for a shell; lines that begin with # are left out:

    declare QUEUE..., configure KEY..., bind QUEUE KEY..., unbind QUEUE KEY..., publish KEY BODY, ack QUEUE KEY
    OFFSETS, each with the options of the command of this name (but --live).

    All keys must be on one slice. Those that begin with the same tag in braces are: {room-7}talk, {room-7}votes.
    """
    from shoal_ops.commands import transactions

    exits.run(transactions.transact(at, file, commands, as_json))


@commands.command()
def drop(
    queues: Queues,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Keep a queue that a session consumes.")] = False,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Keep a queue that has a backlog.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """End queues with their bindings and backlog. A queue that does not exist does not stop the others."""
    from shoal_ops.commands import many

    raise typer.Exit(exits.run(many.drop(at, queues, if_unused, if_empty, as_json)))
