"""`shoal watch` on the command line. Arguments and help only."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal_ops import exits
from shoal_ops.arguments import AT_DEFAULT, At, Json, Key

commands = typer.Typer(help="Print members of a key, or counts of keys, as they change.", no_args_is_help=True)

Presence = Annotated[
    bool, typer.Option("--presence/--no-presence", help="Tell also which members are attached by a session.")
]
Events = Annotated[
    int | None,
    typer.Option(
        "--events", "-n", min=1, help="Stop after this many events; left out: run until Ctrl-C.", show_default=False
    ),
]


@commands.command()
def members(
    key: Key,
    presence: Presence = True,
    after: Annotated[
        str,
        typer.Option(metavar="POSITION", help="Go on after this position, as --json prints it.", show_default=False),
    ] = "",
    events: Events = None,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Print the queues bound to a key, and then each change. Of over 1,000, how many they are."""
    from shoal_ops.commands import watching

    exits.run(watching.members(at, key, presence, after, events, as_json))


@commands.command()
def counts(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help='What the keys begin with; "": all keys.')],
    presence: Presence = True,
    events: Events = None,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Print how many queues are bound to each key under a prefix, and then each change."""
    from shoal_ops.commands import watching

    exits.run(watching.counts(at, prefix, presence, events, as_json))
