"""`shoal`: arguments and their help. What a command does is in `commands/`, imported only when it is called."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported
from shoal_contract.version import version
from shoal_local.limits import SLICES_MAX
from shoal_ops import cli_admin, cli_verbs, cli_watch, exits
from shoal_ops.addresses import host_port, host_port_or_none, loopback, optional_host_port
from shoal_ops.arguments import AT_DEFAULT, At, Etcd, Folder, Json, archive_folder, with_ports
from shoal_ops.limits import CLIENTS_MAX

EPILOG = (
    "Exit codes: 0 done; 1 a comparison or check found something; 2 bad arguments; 3 fix the call; 4 outcome unknown,"
    " nothing answered; 5 slow down; 6 no rights; 7 data is damaged; 130 interrupted;"
    " 141 nothing reads the output any more, as behind head."
)
app = typer.Typer(
    name="shoal",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
inspection = typer.Typer(help="Show what a node's files hold.", no_args_is_help=True)
app.add_typer(inspection, name="inspect")
app.add_typer(cli_verbs.commands)
app.add_typer(cli_watch.commands, name="watch")
app.add_typer(cli_admin.commands)


def main() -> None:
    app()


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shoal {version()}")
        raise typer.Exit


@app.callback()
def shoal(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the version and end.")
    ] = False,
) -> None:
    """Partitioned routing broker for massive queue counts."""


@app.command()
def up(
    slices: Annotated[
        int | None,
        typer.Option(
            min=1, max=SLICES_MAX, help="Slice nodes to run; left out: as many as before, or 3.", show_default=False
        ),
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder for all data and logs.")] = Path(".shoal"),
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", callback=loopback, help="Where clients connect.")
    ] = AT_DEFAULT,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", callback=loopback, help="Where the redirector serves HTTP.")
    ] = "127.0.0.1:7401",
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the folder's earlier cluster first.")] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", parser=archive_folder, help="Folder to archive every change to.", show_default=False
        ),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            "--admin",
            metavar="HOST:PORT",
            callback=optional_host_port,
            help="Serve the HTTP gateway and its page there too.",
            show_default=False,
        ),
    ] = None,
    etcd: Etcd = None,
    accept_empty: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-empty",
            metavar="SLICE",
            help="Let this slice begin, this once, without its missing data, or with an old copy: what is missing is"
            " then gone. Once for each slice.",
            show_default=False,
        ),
    ] = None,
    rebuild_etcd: Annotated[
        bool, typer.Option("--rebuild-etcd", help="Make etcd's records anew, if etcd's folder is gone for good.")
    ] = False,
) -> None:
    """Run a local cluster until Ctrl-C: etcd, a redirector, slice nodes."""
    from shoal_local.cluster import LocalCluster
    from shoal_ops.commands.cluster import run_cluster

    make = partial(
        LocalCluster, data, slices=slices, listen=listen, http=http, admin=admin or "", fresh=fresh, archive=archive,
        etcd=etcd, accept_empty=accept_empty or (), rebuild_etcd=rebuild_etcd, partly=True,
    )  # fmt: skip
    exits.run(run_cluster(make, data, archive, admin), exits.SERVING)


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False)],
    at: Annotated[
        str,
        typer.Option(
            "--redirector",
            "--at",
            envvar="SHOAL_REDIRECTOR",
            metavar="HOST[:PORT]",
            callback=with_ports,
            help="Address of the redirector; of several, with commas between them.",
        ),
    ] = AT_DEFAULT,
    clients: Annotated[int, typer.Option(min=1, max=CLIENTS_MAX, help="Number of connections.")] = 4,
    publish_after_churn: Annotated[
        bool,
        typer.Option("--publish-after-churn", help="For churn logs: publish a message to the group after each change."),
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
    slices: Annotated[int, typer.Option(min=1, max=SLICES_MAX)] = 3,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Replay real chat and churn through a local cluster that loses a node, and check every message."""
    from shoal_ops.commands.demo import run_demo

    raise typer.Exit(exits.run(run_demo(data, slices, as_json, etcd), exits.SERVING))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def bench(context: typer.Context) -> None:
    """Measure: churn, publish, fanout, restart, idle, latency, neighbours, storm, all of these, or bulk.

    `shoal bench --help` lists the options.
    """
    from shoal_ops.commands.benching import run_bench

    raise typer.Exit(exits.run(run_bench(context.args), exits.SERVING))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def pipeline(context: typer.Context) -> None:
    """Run Spark jobs over archives, stores and clusters. `shoal pipeline --help` lists them."""
    from shoal_ops.commands.pipeline import run_job

    with exits.told():
        code = run_job(context.args)
    raise typer.Exit(code)


@app.command()
def admin(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", callback=host_port, help="Where to serve HTTP.")
    ] = "127.0.0.1:7402",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", help="File with the bearer token, read again when it changes; else SHOAL_ADMIN_TOKEN."
        ),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=host_port_or_none,
            help="Serve health and metrics there too, without the token: for probes and Prometheus.",
        ),
    ] = "",
    drain_s: Annotated[
        float,
        typer.Option("--drain-s", min=0, help="On SIGTERM: seconds to serve on, not ready, before the port closes."),
    ] = 0.0,
    at: At = AT_DEFAULT,
    as_json: Json = False,
) -> None:
    """Serve the broker over HTTP, its administration and a page, until Ctrl-C."""
    from shoal_ops.commands.gateway import run_admin

    exits.run(run_admin(at, listen, token_file, as_json, metrics, drain_s), exits.SERVING)


@app.command()
def check(
    path: Folder,
    checksum: Annotated[
        bool,
        typer.Option(
            "--checksum",
            help="Print a checksum of each table and partition: equal for two copies of the same state.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Walk every invariant of a stopped node's files, or of all of a local cluster."""
    from shoal_ops.commands import offline

    with exits.told(exits.OFFLINE):
        code = offline.check(path, checksum, as_json)
    raise typer.Exit(code)


@app.command()
def repair(
    path: Folder,
    skip: Annotated[
        int | None,
        typer.Option("--skip", metavar="LSN", min=1, help="Set this record of the journal aside.", show_default=False),
    ] = None,
    cut: Annotated[bool, typer.Option("--cut", help="Give up the journal from its first damaged record on.")] = False,
    confirmed: Annotated[bool, typer.Option("--yes", help="Do it. Without this, only say what would be lost.")] = False,
) -> None:
    """Make a stopped node's journal readable again. It names first what would be lost. A copy is kept."""
    from shoal_ops.commands import repair as commands

    if cut == bool(skip):
        raise typer.BadParameter("say what to repair: --skip LSN, or --cut", param_hint=["--skip", "--cut"])
    with exits.told(exits.OFFLINE):
        code = commands.skip(path, skip, confirmed) if skip else commands.cut(path, confirmed)
    raise typer.Exit(code)


@inspection.command("journal")
def inspect_journal(path: Folder, as_json: Json = False) -> None:
    """Show the segments of a journal, their records and state."""
    from shoal_ops.commands import offline

    with exits.told(exits.OFFLINE):
        code = offline.journal(path, as_json)
    raise typer.Exit(code)


@inspection.command("store")
def inspect_store(path: Folder, as_json: Json = False) -> None:
    """Show the tables of a store, their rows and pages."""
    from shoal_ops.commands import offline

    with exits.told(exits.OFFLINE):
        offline.store(path, as_json)
