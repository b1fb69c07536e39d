"""The part of `shoal` that looks into a cluster: lists in pages, peek, purge, top. Arguments and help only."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal_ops import exits
from shoal_ops.arguments import AT_DEFAULT, LIMIT_DEFAULT, After, At, Json, Key, Limit, Messages, Prefix, Queue, Queues
from shoal_ops.limits import SWEEP_PAUSE_S

commands = typer.Typer()


@commands.command()
def queues(
    prefix: Prefix = "",
    after: After = "",
    limit: Limit = LIMIT_DEFAULT,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """List names of queues, in order, a page at a time."""
    from shoal_ops.commands import lists

    exits.run(lists.queues(at, prefix, after, limit, as_json))


@commands.command()
def keys(
    prefix: Prefix = "",
    after: After = "",
    limit: Limit = LIMIT_DEFAULT,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """List names of keys, in order, with how many queues are bound. A queue's own key, @QUEUE, is listed from the first
    message sent to it on."""
    from shoal_ops.commands import lists

    exits.run(lists.keys(at, prefix, after, limit, as_json))


@commands.command()
def members(
    key: Key, after: After = "", limit: Limit = LIMIT_DEFAULT, at: At = AT_DEFAULT, as_json: Json = False
) -> None:
    """List the queues that are bound to a key."""
    from shoal_ops.commands import lists

    exits.run(lists.members(at, key, after, limit, as_json))


@commands.command()
def bindings(
    queue: Queue, after: After = "", limit: Limit = LIMIT_DEFAULT, at: At = AT_DEFAULT, as_json: Json = False
) -> None:
    """List the keys of a queue, with cursors, backlog and what is unacked."""
    from shoal_ops.commands import lists

    exits.run(lists.bindings(at, queue, after, limit, as_json))


@commands.command()
def peek(
    queue: Queue,
    messages: Messages = 10,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Print the first messages of a queue and leave them there."""
    from shoal_ops.commands import verbs

    exits.run(verbs.pull(at, queue, messages, True, as_json))


@commands.command()
def purge(queues: Queues, at: At = AT_DEFAULT, as_json: Json = False) -> None:
    """Drop the backlog of queues; they stay bound. A queue that does not exist does not stop the others."""
    from shoal_ops.commands import many

    raise typer.Exit(exits.run(many.purge(at, queues, as_json)))


@commands.command()
def sweep(
    pause_s: Annotated[
        float,
        typer.Option("--pause-s", min=0, max=3600, help="Seconds between the two looks at what seems left behind."),
    ] = SWEEP_PAUSE_S,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be dropped.")] = False,
    unknown_too: Annotated[
        bool,
        typer.Option(
            "--unknown-too",
            help="Drop also parts of queues that their home does not know. Never after a slice began with"
            " --accept-empty: they may hold the only copy of acknowledged messages.",
        ),
    ] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Drop the parts of queues that interrupted drops left behind on other slices. `shoal admin` drops by itself,
    slowly, parts of an older life of a queue that was declared again."""
    from shoal_ops.commands import sweeping

    raise typer.Exit(exits.run(sweeping.sweep(at, pause_s, dry_run, unknown_too, as_json)))


@commands.command()
def top(
    interval_s: Annotated[
        float, typer.Option("--interval-s", min=0.2, max=60, help="Seconds between two samples.")
    ] = 1.0,
    samples: Annotated[
        int | None,
        typer.Option("--samples", "-n", min=1, help="Stop after this many samples; left out: run until Ctrl-C."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take one sample and stop.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Watch the slices: rates, queues, bindings, backlog, journal, memory, and trouble."""
    from shoal_ops.commands import top

    raise typer.Exit(exits.run(top.run_top(at, interval_s, 1 if once else samples, as_json)))
