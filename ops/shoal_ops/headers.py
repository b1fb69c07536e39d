"""Headers of messages on the command line: given as NAME=VALUE, shown as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from shoal_contract.names import OWN_HEADERS, printable


def parse_headers(texts: Sequence[str] | None) -> dict[str, bytes] | None:
    """Returns the headers that texts name; None for none. Raises typer's BadParameter (exit code 2) for a text without
    a name, and for a name that comes twice."""
    found: dict[str, bytes] = {}
    for one in texts or ():
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{printable(one)} needs NAME=VALUE, as in from=anna")
        if name in found:
            raise typer.BadParameter(f"header {printable(name)} is given twice")
        found[name] = value.encode("utf-8", "surrogateescape")
    return found or None


def _checked(texts: list[str] | None) -> list[str] | None:
    parse_headers(texts)
    return texts


Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=VALUE",
        callback=_checked,
        help="A header of the message; may be given several times.",
    ),
]


def headers_json(headers: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Returns headers as text where they are UTF-8, the others as hexadecimal digits; nothing where there are none."""
    texts: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in headers.items():
        try:
            texts[name] = value.decode()
        except UnicodeDecodeError:
            others[name] = value.hex()
    return ({"headers": texts} if texts else {}) | ({"headers_hex": others} if others else {})


def dead_letter_text(headers: Mapping[str, bytes]) -> str:
    """Returns what the headers of a dead letter say, in brackets and printable; "" for another message."""
    told = [
        f"{name}={printable(value.decode('utf-8', 'backslashreplace'))}"
        for name, value in headers.items()
        if name.startswith(OWN_HEADERS)
    ]
    return f"[{' '.join(told)}] " if told else ""
