"""The command line as a user meets it: help, errors as one line with their exit code, verbs on a real cluster."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

import shoal as library
from shoal_contract.limits import WINDOW_MESSAGES_DEFAULT
from shoal_contract.version import version
from shoal_ops import exits
from shoal_ops.commands import verbs

from .command_line import WAIT_S, shoal, shoal_json


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[str]:
    """A redirector's address, of `shoal up`, which is then stopped with Ctrl-C."""
    data = str(tmp_path / "data")
    arguments = ["up", "--slices", "2", "--data", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal_ops", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        line = ""
        while "clients connect to" not in line:
            line = (await process.stdout.readline()).decode()
            assert line, "shoal up ended"
    yield line.split()[-1]
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(WAIT_S):
        rest, _ = await process.communicate()
    assert process.returncode == 0
    assert "stopped; the data is kept" in rest.decode()
    code, out, error = await shoal("check", data)
    assert (code, out.splitlines()[-1], error) == (0, "every invariant holds", "")
    node = tmp_path / "data" / "s01"
    journal = await shoal_json("inspect", "journal", str(node), at="")
    assert [one["state"] for one in journal["segments"]] == ["tail"]  # type: ignore[attr-defined]
    store = await shoal_json("inspect", "store", str(node), at="")
    assert {one["name"] for one in store["tables"]} >= {"key", "queue", "log"}  # type: ignore[attr-defined]


async def test_the_version_is_the_packages() -> None:
    assert await shoal("--version") == (0, f"shoal {version()}\n", "")


async def test_help_lists_the_commands_and_the_exit_codes() -> None:
    code, out, _ = await shoal("--help")
    assert code == 0
    for word in ("up", "replay", "demo", "bench", "check", "inspect", "Exit codes"):
        assert word in out


async def test_a_cluster_that_does_not_answer_is_one_line_with_advice() -> None:
    code, out, error = await shoal("locate", "room")
    assert (code, out) == (exits.UNKNOWN, "")
    assert error.count("\n") == 1
    assert "shoal up starts one here" in error


async def test_a_bad_file_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text("1\tjoin\ta\tb\n1\tjoin\n", encoding="utf-8")
    code, _, error = await shoal("replay", str(bad))
    assert code == exits.BAD_CALL
    assert "bad.tsv, line 2: 2 columns" in error


async def test_numbers_that_mean_for_ever_are_left_out_not_zero() -> None:
    for command in (("top",), ("tail", "anna")):
        code, _, error = await shoal(*command, "-n", "0")
        assert code == 2 and "1" in error
        assert "left out: run until Ctrl-C" in " ".join((await shoal(command[0], "--help"))[1].split())


async def test_usage_lines_name_each_argument_once() -> None:
    for command, usage in (
        ("drop", "drop [OPTIONS] {QUEUE}..."),
        ("bind", "bind [OPTIONS] {QUEUE} {KEY}..."),
        ("publish", "publish [OPTIONS] {KEY} [BODY]"),
        ("replay", "replay [OPTIONS] {FILE}..."),
    ):
        assert (await shoal(command, "--help"))[1].splitlines()[0].endswith(f" {usage}")
    assert "default: 0" not in (await shoal("repair", "--help"))[1]


async def test_tail_says_what_becomes_of_the_messages() -> None:
    told = " ".join((await shoal("tail", "--help"))[1].split())
    assert "as they come, and leave them there" in told
    assert "With --ack the printed messages are gone" in told


async def test_ctrl_c_before_the_command_runs_is_no_traceback() -> None:
    lines = (
        "import sys, types",
        "fake = types.ModuleType('shoal_ops.cli')",
        "def main(): raise KeyboardInterrupt",
        "fake.main = main",
        "sys.modules['shoal_ops.cli'] = fake",
        "from shoal_ops.entry import main",
        "main()",
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "\n".join(lines), stderr=asyncio.subprocess.PIPE
    )
    _, error = await process.communicate()
    assert (process.returncode, error) == (exits.INTERRUPTED, b"")


async def test_a_word_that_an_option_does_not_have_is_refused() -> None:
    code, _, error = await shoal("declare", "anna", "--exclusive", "all")
    assert code == 2 and "newest" in error


async def test_up_refuses_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    code, _, error = await shoal("up", "--fresh", "--data", str(tmp_path))
    assert code == exits.BAD_CALL
    assert "is not a Shoal data folder: it has notes.txt" in error
    assert "shoal status" not in error, "no hint of another cause"


@pytest.mark.parametrize("what", ["journal", "store"])
async def test_a_folder_with_nothing_to_inspect_is_a_bad_call_in_one_line(what: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for path, complaint in (
        (tmp_path, f"{tmp_path} has no {what}: a node's folder has a store and a journal"),
        (tmp_path / "none", f"there is no folder {tmp_path / 'none'}"),
    ):
        assert await shoal("inspect", what, str(path)) == (exits.BAD_CALL, "", f"shoal: {complaint}\n")


async def test_what_tail_prints_counts_no_delivery(cluster: str) -> None:
    await shoal("declare", "looked-at", "--max-deliveries", "1", at=cluster)
    for body in ("one", "two"):
        await shoal("publish", "@looked-at", body, at=cluster)
    for _ in range(2):
        code, out, _ = await shoal("tail", "looked-at", "-n", "1", "--json", at=cluster)
        assert (code, json.loads(out)["body"], json.loads(out)["redelivered"]) == (0, "one", 0)
    _, out, _ = await shoal("describe", "looked-at", "--json", at=cluster)
    assert json.loads(out)["messages"] == 2


async def test_tail_says_that_it_holds_as_much_as_it_may(
    cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was silent but for the log of the library, which advised another window: it has no such option."""
    monkeypatch.setattr("shoal.window_look.WINDOW_LOOK_S", 0.01)
    monkeypatch.setattr("shoal.window_look.WINDOW_FULL_S", 0.05)
    async with library.connect(cluster) as broker:
        await broker.declare("held")
        await broker.publish_many("@held", [b"x"] * (WINDOW_MESSAGES_DEFAULT + 1))
    remarks: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr("shoal_ops.output.remark", remarks.put_nowait)
    tail = asyncio.ensure_future(verbs.tail(cluster, ["held"], None, ack=False, as_json=False))
    async with asyncio.timeout(WAIT_S):
        remark = await remarks.get()
    assert remark.endswith("no more of a queue meanwhile: with --ack it goes on, and what it prints is gone")
    assert capsys.readouterr().out.count("\n") == WINDOW_MESSAGES_DEFAULT
    tail.cancel()
    await asyncio.wait([tail])


async def test_each_verb_does_on_a_cluster_what_it_says(cluster: str) -> None:
    async def run(*arguments: str) -> dict[str, object]:
        code, out, error = await shoal(*arguments, "--json", at=cluster)
        assert (code, error) == (0, "")
        found: dict[str, object] = json.loads(out)
        return found

    assert await run("declare", "anna") == {"declared": ["anna"]}
    kept = {
        "history_messages": 5,
        "history_age_s": 0,
        "capacity_messages": 0,
        "capacity_bytes": 900,
        "policy": "reject",
    }
    assert await run("configure", "room-9", "--history-messages", "5", "--capacity-bytes", "900") == {
        "configured": ["room-9"],
        "options": kept,
    }
    assert (await run("describe", "--key", "room-9"))["options"] == kept
    assert await run("declare", "one", "--exclusive", "newest") == {"declared": ["one"]}
    assert (await run("describe", "one"))["options"]["exclusive"] == "newest"  # type: ignore[index]
    assert await run("bind", "anna", "room") == {"queue": "anna", "offsets": {"room": 1}}
    assert await run("bind", "anna", "room", "--start", "last=3") == {"queue": "anna", "offsets": {"room": 1}}
    told = await run("farewell", "anna", "room", "went offline", "--after-s", "600")
    assert told == {"queue": "anna", "key": "room", "after_s": 600}
    bye = (await run("describe", "anna"))["farewell"]
    assert isinstance(bye, dict) and bye.pop("due_ms") > time.time() * 1000
    assert bye == {"key": "room", "after_s": 600}
    _, described, _ = await shoal("describe", "anna", at=cluster)
    assert re.search(r"farewell +to room, 600 s after the last session has left: at 20[-0-9T:]+Z\n", described)
    assert await run("farewell", "anna", "--take-back") == {"queue": "anna", "key": None, "after_s": 0}
    _, taken_back, _ = await shoal("farewell", "anna", "--take-back", at=cluster)
    assert taken_back == "queue anna has no farewell any more\n"
    assert (await run("describe", "anna"))["farewell"] is None
    assert (await run("farewell", "one", "nobody", "bye"))["after_s"] == 0
    watched = await run("watch", "members", "room", "-n", "1")
    assert (watched["event"], watched["members"]) == ("members", {"anna": False})
    assert await run("watch", "counts", "roo", "-n", "1") == {"event": "count", "key": "room", "queues": 1, "online": 0}
    assert (await run("publish", "room", "hello"))["queues"] == 1
    assert (await run("publish", "room", "psst", "--live"))["offset"] == 0
    assert (await run("describe", "anna"))["messages"] == 1
    peeked = await run("pull", "anna", "--peek")
    assert peeked["body"] == "hello" and not {"headers", "expires_ms"} & set(peeked)
    for _ in range(2):
        assert (await run("tail", "anna", "-n", "1"))["offset"] == 1
    assert (await run("describe", "anna"))["messages"] == 1, "tail only watches"
    assert (await run("tail", "anna", "-n", "1", "--ack"))["offset"] == 1
    assert (await run("describe", "anna"))["messages"] == 0
    assert len((await run("status"))["slices"]) == 2  # type: ignore[arg-type]
    assert (await run("locate", "room"))["map_version"] == 1
    assert await run("unbind", "anna", "room") == {"queue": "anna", "offsets": {"room": 2}}
    following = asyncio.create_task(shoal("tail", "anna", at=cluster))
    async with asyncio.timeout(WAIT_S):
        while not (await run("describe", "anna"))["attached_sessions"]:
            assert not following.done()
        assert await run("drop", "anna") == {"dropped": ["anna"]}
        dropped = "shoal: queue anna: dropped while this inbox consumed it; declare it anew\n"
        assert await following == (exits.BAD_CALL, "", dropped)
    code, _, error = await shoal("describe", "anna", at=cluster)
    text = "shoal: queue anna does not exist; declare it first (--key describes a key)\n"
    assert (code, error) == (exits.BAD_CALL, text)


async def test_a_key_lets_go_what_it_may_not_keep(real_redirector: str) -> None:
    run = partial(shoal_json, at=real_redirector)
    await run("configure", "cli-full", "--capacity-messages", "1", "--policy", "drop_oldest")
    await run("declare", "cli-ben")
    await run("bind", "cli-ben", "cli-full")
    for body in ("one", "two", "three"):
        await run("publish", "cli-full", body)
    gone = "cli-ben cli-full 1 to 2 are gone: dropped\n"
    assert await shoal("tail", "cli-ben", "-n", "1", at=real_redirector) == (0, "cli-ben cli-full 3 three\n", gone)
    assert (await run("publish", "cli-full", "an hour", "--ttl", "3600", "--header", "from=cleo"))["offset"] == 4
    peeked = await run("pull", "cli-ben", "--peek")
    assert peeked["headers"] == {"from": "cleo"}
    assert peeked["expires_ms"] == peeked["time_ms"] + 3_600_000  # type: ignore[operator]
    code, out, error = await shoal("configure", "@cli-ben", at=real_redirector)
    assert (code, out) == (exits.BAD_CALL, "") and "@cli-ben" in error
    once = ("publish", "cli-full", "once", "--idempotency-key", "4711")
    assert (await run(*once))["offset"] == (await run(*once))["offset"] == 5
