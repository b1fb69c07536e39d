"""`shoal`: arguments and their help. What a command does is in `commands/`, imported only when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import shoal_contract.without_forks  # noqa: F401 - before gRPC is imported
from shoal_ops import cli_admin, exits
from shoal_ops.addresses import host_port, loopback, optional_host_port
from shoal_ops.arguments import AT_DEFAULT, At, Etcd, Folder, Json, Key, Keys, Queue, Queues
from shoal_ops.limits import CLIENTS_MAX

EPILOG = (
    "Exit codes: 0 done; 1 a comparison or check found something; 2 bad arguments; 3 fix the call; 4 outcome unknown,"
    " nothing answered; 5 slow down; 6 no rights; 7 data is damaged; 130 interrupted."
)
app = typer.Typer(
    name="shoal",
    help="Partitioned routing broker for massive queue counts.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
inspection = typer.Typer(help="Show what a node's files hold.", no_args_is_help=True)
app.add_typer(inspection, name="inspect")
app.add_typer(cli_admin.commands)


def main() -> None:
    app()


@app.command()
def up(
    slices: Annotated[int | None, typer.Option(help="Slice nodes to run; as before, or 3.", show_default=False)] = None,
    data: Annotated[Path, typer.Option(help="Folder for all data and logs.")] = Path(".shoal"),
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", callback=loopback, help="Where clients connect.")
    ] = AT_DEFAULT,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", callback=loopback, help="The redirector's HTTP.")
    ] = "127.0.0.1:7401",
    fresh: Annotated[bool, typer.Option("--fresh", help="Wipe the folder's earlier cluster first.")] = False,
    archive: Annotated[Path | None, typer.Option(help="Folder for all changes ever made.", show_default=False)] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            "--admin",
            metavar="HOST:PORT",
            callback=optional_host_port,
            help="Serve HTTP and the page there, too.",
            show_default=False,
        ),
    ] = None,
    etcd: Etcd = None,
) -> None:
    """Run a local cluster until Ctrl-C: etcd, a redirector, slice nodes."""
    from shoal_ops.commands.cluster import run_cluster

    exits.run(run_cluster(slices, data, listen, http, fresh, archive, admin, etcd))


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)],
    at: Annotated[str, typer.Option("--redirector", "--at", envvar="SHOAL_REDIRECTOR", metavar="HOST:PORT")] = (
        AT_DEFAULT
    ),
    clients: Annotated[int, typer.Option(min=1, max=CLIENTS_MAX, help="Connections.")] = 4,
    publish_after_churn: Annotated[
        bool, typer.Option("--publish-after-churn", help="In churn logs, a message to the group after each change.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the queues in the cluster.")] = False,
    as_json: Json = False,
) -> None:
    """Drive event logs through a cluster and compare every queue, message by message."""
    from shoal_ops.commands.replaying import run_replay

    raise typer.Exit(exits.run(run_replay(files, at, clients, publish_after_churn, keep, as_json)))


@app.command()
def demo(
    data: Annotated[Path | None, typer.Option(help="Folder of the event logs.", show_default=False)] = None,
    slices: Annotated[int, typer.Option(min=1, max=64)] = 3,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """A local cluster replays real chat and churn, loses a node, and every message is checked."""
    from shoal_ops.commands.demo import run_demo

    raise typer.Exit(exits.run(run_demo(data, slices, as_json, etcd)))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def bench(context: typer.Context) -> None:
    """Measure: churn, publish, fanout, restart, idle, latency, or all. `shoal bench --help` lists the options."""
    from shoal_ops.commands.benching import run_bench

    raise typer.Exit(exits.run(run_bench(context.args)))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def pipeline(context: typer.Context) -> None:
    """Spark jobs over archives, stores and clusters. `shoal pipeline --help` lists them."""
    from shoal_ops.commands.pipeline import run_job

    with exits.told():
        code = run_job(context.args)
    raise typer.Exit(code)


@app.command()
def status(at: At = AT_DEFAULT, as_json: Json = False) -> None:
    """The map's version, and whether every slice answers."""
    from shoal_ops.commands import places

    raise typer.Exit(exits.run(places.status(at, as_json)))


@app.command()
def locate(keys: Keys, at: At = AT_DEFAULT, as_json: Json = False) -> None:
    """Which slice owns a key."""
    from shoal_ops.commands import places

    exits.run(places.locate(at, keys, as_json))


@app.command()
def declare(
    queues: Queues,
    expires_after_s: Annotated[
        int, typer.Option("--expires-after-s", min=0, help="Seconds without a consumer until dropped; 0: durable.")
    ] = 0,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Make queues exist."""
    from shoal_ops.commands import verbs

    exits.run(verbs.declare(at, queues, expires_after_s, as_json))


@app.command()
def bind(
    queue: Queue,
    keys: Keys,
    earliest: Annotated[bool, typer.Option("--earliest", help="From all that is still kept.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Bind a queue to keys."""
    from shoal import EARLIEST, NOW
    from shoal_ops.commands import verbs

    exits.run(verbs.bind(at, queue, keys, EARLIEST if earliest else NOW, as_json))


@app.command()
def unbind(
    queue: Queue,
    keys: Keys,
    discard: Annotated[bool, typer.Option("--discard", help="Drop their backlog too.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """End bindings; what was published before stays until consumed."""
    from shoal_ops.commands import verbs

    exits.run(verbs.unbind(at, queue, keys, discard, as_json))


@app.command()
def publish(
    key: Key,
    body: Annotated[str | None, typer.Argument(metavar="[BODY]", help="Left out: standard input.")] = None,
    mandatory: Annotated[bool, typer.Option("--mandatory", help="Fail where no queue is bound.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Publish one message; durable when this returns."""
    from shoal_ops.commands import verbs

    exits.run(verbs.publish(at, key, body, mandatory, as_json))


@app.command()
def pull(
    queue: Queue,
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, max=10_000)] = 10,
    peek: Annotated[bool, typer.Option("--peek", help="Look, don't take.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Take messages of a queue, print and ack them."""
    from shoal_ops.commands import verbs

    exits.run(verbs.pull(at, queue, messages, peek, as_json))


@app.command()
def tail(
    queues: Queues,
    messages: Annotated[int, typer.Option("--messages", "-n", min=0, help="Stop after so many; 0: never.")] = 0,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Take them, or only watch.")] = True,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Print messages of queues as they come."""
    from shoal_ops.commands import verbs

    exits.run(verbs.tail(at, queues, messages, ack, as_json))


@app.command()
def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    key: Annotated[bool, typer.Option("--key", help="It is a key, not a queue.")] = False,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """A queue's bindings and exact backlog, or a key."""
    from shoal_ops.commands import verbs

    exits.run((verbs.describe_key if key else verbs.describe)(at, name, as_json))


@app.command()
def drop(queues: Queues, at: At = AT_DEFAULT, as_json: Json = False) -> None:
    """End queues with their bindings and backlog."""
    from shoal_ops.commands import verbs

    exits.run(verbs.drop(at, queues, as_json))


@app.command()
def admin(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", callback=host_port, help="Where HTTP is served.")
    ] = "127.0.0.1:7402",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the bearer token; else SHOAL_ADMIN_TOKEN.")
    ] = None,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Serve the broker over HTTP, its administration and a page, until Ctrl-C."""
    from shoal_ops.commands.gateway import run_admin

    exits.run(run_admin(at, listen, token_file, as_json))


@app.command()
def check(path: Folder, as_json: Json = False) -> None:
    """Walk every invariant of a stopped node's files, or of all of a local cluster."""
    from shoal_ops.commands import offline

    with exits.told():
        code = offline.check(path, as_json)
    raise typer.Exit(code)


@inspection.command("journal")
def inspect_journal(path: Folder, as_json: Json = False) -> None:
    """Segments, their records and state."""
    from shoal_ops.commands import offline

    with exits.told():
        code = offline.journal(path, as_json)
    raise typer.Exit(code)


@inspection.command("store")
def inspect_store(path: Folder, as_json: Json = False) -> None:
    """Tables, their rows and pages."""
    from shoal_ops.commands import offline

    with exits.told():
        offline.store(path, as_json)
