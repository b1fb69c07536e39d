"""`shoal status`: what answers, which versions run, what troubles a slice; exit codes that a script can go by."""

from __future__ import annotations

import asyncio
import json
from io import StringIO

from rich.console import Console

from shoal_contract.version import version
from shoal_contract.wire.admin_pb2 import FiguresResponse
from shoal_ops import exits
from shoal_ops.commands.top import Sample, _table

from .command_line import shoal
from .fake_slices import FakeSlice, served

SOUND = FiguresResponse(version="0.0.9", core="compiled")
FULL = FiguresResponse(version="0.1.0", trouble="no disk space for /data/journal: \x1b[2J 3 MB are free")


async def test_every_slice_tells_its_version_and_its_trouble() -> None:
    async with served(FakeSlice("s01", SOUND), FakeSlice("s02", FULL)) as at:
        code, out, error = await shoal("status", at=at)
        as_json = json.loads((await shoal("status", "--json", at=at))[1])
    assert (code, error) == (exits.FOUND, "")
    head, columns, first, second = out.splitlines()
    assert f"redirector {at}: map version 7, 8 partitions" in head and f"this is shoal {version()}" in head
    assert columns.split()[-4:] == ["version", "core", "state", "trouble"]
    assert first.split()[5:7] == ["0.0.9", "compiled"] and second.split()[6] == "?"
    assert first.rstrip().endswith("none") and "answers in" in first
    assert second.rstrip().endswith("no disk space for /data/journal: \\x1b[2J 3 MB are free")
    assert as_json["version"] == version()
    assert [one["core"] for one in as_json["slices"]] == ["compiled", ""]
    assert [one["trouble"] for one in as_json["slices"]] == ["", FULL.trouble]
    assert all(one["admin_address"] not in ("", one["address"]) for one in as_json["slices"])


async def test_a_slice_whose_administration_is_closed_to_us_still_counts_as_answering() -> None:
    async with served(FakeSlice("s01", SOUND), FakeSlice("s02")) as at:
        code, out, error = await shoal("status", at=at)
    assert code == exits.DONE
    assert out.splitlines()[3].split()[-1] == "?"
    assert error == "?: the administration of s02 does not answer from here; clients are served\n"


async def test_why_a_slice_does_not_answer_stands_below_the_table() -> None:
    async with served(FakeSlice("s01", SOUND), FakeSlice("s02", SOUND, answers=False)) as at:
        code, out, error = await shoal("status", at=at)
    assert code == exits.UNKNOWN
    state = out.splitlines()[3]
    assert "does not answer" in state and len(state) < 120
    assert error.startswith("slice s02 does not answer: UNAVAILABLE: ") and error.count("\n") == 1


def test_the_live_table_says_below_it_why_a_slice_does_not_answer() -> None:
    problem = "slice s02 does not answer: UNAVAILABLE: failed to connect to all addresses; last error: refused"
    console = Console(width=150, file=StringIO())
    console.print(_table([Sample("s02", None, {}, problem)], "title"))
    _, columns, row, *below = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert row.split() == ["s02", "silent"]
    assert "queues" in columns and "".join(below).startswith(f"s02: {problem}"[:60])


async def test_a_slices_port_is_named_as_the_mistake() -> None:
    async with served(FakeSlice("s01", SOUND), slice_only=True) as at:
        told = "this is no redirector, perhaps a slice; clients connect to the redirector's gRPC port, 7400 unless"
        for command in (("status",), ("publish", "room", "hello")):
            code, _, error = await shoal(*command, at=at)
            assert code == exits.BAD_CALL
            assert f"shoal: redirector {at}: {told}" in error or f"shoal: {at}: {told}" in error


async def test_a_slice_without_a_leader_is_an_unknown_outcome() -> None:
    async with served(FakeSlice("s01", FULL), FakeSlice("s02", leads=False)) as at:
        code, out, _ = await shoal("status", at=at)
    assert code == exits.UNKNOWN and "has no leader" in out


async def test_the_first_of_several_redirectors_that_answers_is_taken() -> None:
    async with served(FakeSlice("s01", SOUND)) as at:
        code, out, _ = await shoal("status", "--at", f"127.0.0.1:1,{at}")
        located, _, _ = await shoal("locate", "--at", "127.0.0.1:1,127.0.0.1:2", "room")
    assert code == exits.DONE and f"redirector {at}:" in out
    assert located == exits.UNKNOWN


async def test_nothing_there_is_one_hint_and_never_to_ask_status() -> None:
    code, out, error = await shoal("status")
    assert (code, out) == (exits.UNKNOWN, "")
    assert error.endswith("(shoal up starts one here; --at names another)\n") and error.count("(") == 1
    code, _, error = await shoal("top", "--once")
    assert code == exits.UNKNOWN and error.endswith(f"({exits.CLUSTER_AWAY})\n")


async def test_an_http_port_is_named_as_the_mistake() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        code, _, error = await shoal("status", at=f"127.0.0.1:{port}")
    assert code == exits.UNKNOWN
    assert "that is an HTTP port" in error and "shoal up" not in error


async def test_a_port_that_is_none_is_a_bad_argument() -> None:
    code, _, error = await shoal("status", "--at", "localhost:http")
    assert code == 2 and "localhost:http" in error and "its port is" in error
