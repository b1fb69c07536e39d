"""The commands that look into a cluster, as a user calls them, on a real cluster of two slices."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

import shoal as client
from shoal_local.cluster import LocalCluster
from shoal_ops import exits
from shoal_ops.commands.top import COLUMNS, RATES
from shoal_ops.commands.verbs import DELAYED
from tests.folders import NewFolder

from .command_line import shoal, shoal_json

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUEUES = [f"inbox-{number}" for number in range(6)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(module_folder: NewFolder) -> AsyncIterator[LocalCluster]:
    """Six queues bound to three rooms; one message in one of them."""
    async with LocalCluster(module_folder("cli") / "data", slices=2) as cluster:
        async with client.connect(cluster.redirector) as broker:
            await broker.declare([*QUEUES, "empty"])
            for queue in QUEUES:
                await broker.bind(queue, ["room a", "room b", "room c"])
            await broker.publish("room b", b"hello")
        yield cluster


async def test_lists_come_in_pages(cluster: LocalCluster) -> None:
    at = cluster.redirector
    first = await shoal_json("queues", "--prefix", "inbox-", "--limit", "4", at=at)
    rest = await shoal_json("queues", "--prefix", "inbox-", "--after", str(first["next"]), at=at)
    assert (first["queues"], rest) == (QUEUES[:4], {"queues": QUEUES[4:], "next": ""})
    assert await shoal_json("keys", "--prefix", "room", "--limit", "2", at=at) == {
        "keys": [{"key": "room a", "queues": 6}, {"key": "room b", "queues": 6}],
        "next": "room%20b",
    }
    code, out, error = await shoal("keys", "--prefix", "room", "--limit", "2", at=at)
    assert (code, error) == (0, "there is more: --after room%20b\n")
    assert [line.split() for line in out.splitlines()] == [["key", "queues"], ["room", "a", "6"], ["room", "b", "6"]]
    code, out, error = await shoal("queues", "--after", "inbox-3", at=at)
    assert (code, out, error) == (0, "inbox-4\ninbox-5\n", "")


async def test_members_of_a_key_and_bindings_of_a_queue(cluster: LocalCluster) -> None:
    at = cluster.redirector
    first = await shoal_json("members", "room a", "--limit", "4", at=at)
    rest = await shoal_json("members", "room a", "--after", str(first["next"]), at=at)
    assert [*first["members"], *rest["members"]] == QUEUES  # type: ignore[misc]
    found = await shoal_json("bindings", "inbox-0", at=at)
    backlog = {one["key"]: one["messages"] for one in found["bindings"]}  # type: ignore[attr-defined]
    assert backlog == {"room a": 0, "room b": 1, "room c": 0}
    code, out, _ = await shoal("bindings", "inbox-0", at=at)
    assert code == 0 and out.splitlines()[0].split()[-2:] == ["backlog", "unacked"] and len(out.splitlines()) == 4


async def test_a_second_bind_at_an_offset_says_so(cluster: LocalCluster) -> None:
    at = cluster.redirector
    async with client.connect(at) as broker:
        await broker.configure("history", client.KeyOptions(history_messages=10))
        for _ in range(3):
            await broker.publish("history", b"old")
        await broker.declare("bound-twice")
    assert (await shoal("bind", "bound-twice", "history", at=at))[0] == 0
    code, _, error = await shoal("bind", "bound-twice", "history", "--start", "offset=1", at=at)
    assert (code, error) == (0, "history: bound before, from offset 4: it stays as it is\n")


async def test_peek_leaves_what_purge_drops(cluster: LocalCluster) -> None:
    at = cluster.redirector
    for _ in range(2):
        assert (await shoal_json("peek", "inbox-1", at=at))["body"] == "hello"
    code, out, _ = await shoal("purge", "inbox-1", "empty", at=at)
    assert (code, out) == (0, "inbox-1: 1 message dropped\nempty: 0 messages dropped\n")
    assert await shoal_json("purge", "inbox-1", at=at) == {"purged": {"inbox-1": 0}}
    assert (await shoal("peek", "inbox-1", at=at))[1] == ""


async def test_one_queue_that_is_not_there_does_not_keep_the_others(cluster: LocalCluster) -> None:
    at = cluster.redirector
    async with client.connect(at) as broker:
        await broker.declare(["going", "gone too"])
    code, out, error = await shoal("purge", "going", "nope", "gone too", at=at)
    assert (code, out) == (exits.BAD_CALL, "going: 0 messages dropped\ngone too: 0 messages dropped\n")
    assert error == "shoal: queue nope does not exist\n"
    code, out, error = await shoal("drop", "going", "nope", "gone too", at=at)
    assert (code, out) == (exits.BAD_CALL, "going: dropped\ngone too: dropped\n")
    assert error == "shoal: queue nope does not exist\n"
    code, out, _ = await shoal("drop", "going", "--json", at=at)
    failed = {"going": "queue going does not exist"}
    assert (code, json.loads(out)) == (exits.BAD_CALL, {"dropped": [], "failed": failed})


async def test_queues_are_dropped_on_conditions(cluster: LocalCluster) -> None:
    at = cluster.redirector
    async with client.connect(at) as broker:
        await broker.declare(["kept", "used", "over"])
        await broker.send("kept", b"x")
        async with broker.consume("used"):
            code, out, error = await shoal("drop", "kept", "used", "over", "--if-empty", "--if-unused", at=at)
    assert (code, out) == (exits.BAD_CALL, "over: dropped\n")
    kept, used = error.splitlines()
    assert "queue kept is not empty, and not dropped" in kept and "queue used is in use, and not dropped" in used
    assert (await shoal("purge", "kept", "nope", at=at))[:2] == (exits.BAD_CALL, "kept: 1 message dropped\n")
    assert (await shoal("drop", "kept", "--if-empty", at=at))[:2] == (0, "kept: dropped\n")


@pytest.mark.parametrize("command", [("bind", "nope", "k"), ("unbind", "nope", "k"), ("peek", "nope")])
async def test_a_queue_that_is_not_there_has_one_text(command: tuple[str, ...], cluster: LocalCluster) -> None:
    code, _, error = await shoal(*command, at=cluster.redirector)
    assert (code, error) == (exits.BAD_CALL, "shoal: queue nope does not exist; declare it first\n")


async def test_what_comes_to_nothing_is_said(cluster: LocalCluster) -> None:
    at = cluster.redirector
    assert await shoal("publish", "lonely", "x", at=at) == (
        0, "no queue is bound to lonely: the message is not kept\n", ""
    )  # fmt: skip
    for when in ("2030-12-24T18:00+01:00", "1000000000"):
        if when == "1000000000":
            assert await shoal("publish", "lonely", "x", "--not-before", when, at=at) == (
                0, f"{DELAYED}\n", ""
            )  # fmt: skip
        else:
            code, _, error = await shoal("publish", "lonely", "x", "--not-before", when, at=at)
            assert code == exits.BAD_CALL and "366 days" in error
    code, _, error = await shoal("publish", "lonely", "x", "--not-before", "10", at=at)
    assert code == 2 and "not_before is 10.0; it is Unix time, not seconds from now" in error
    for when in ("tomorrow", "2030-12-24T18:00", "1e40", "nan"):
        assert (await shoal("publish", "lonely", "x", "--not-before", when, at=at))[0] == 2, "as other wrong options"
    for ttl in ("0", "-1", "nan", "1e12"):
        code, _, error = await shoal("publish", "lonely", "x", "--ttl", ttl, at=at)
        assert code == 2 and "'--ttl': ttl is " in error
    assert await shoal("members", "lonely", at=at) == (0, "", "no queue is bound to lonely\n")
    assert await shoal_json("members", "lonely", at=at) == {"members": [], "next": ""}


async def gone(queue: str, at: str) -> None:
    """Returns once there is no such queue."""
    async with asyncio.timeout(60):
        while (await shoal("describe", queue, at=at))[0] == 0:
            pass
    assert "does not exist" in (await shoal("describe", queue, at=at))[2]


async def test_transient_queues_go_when_nothing_consumes_them(cluster: LocalCluster) -> None:
    at = cluster.redirector
    assert await shoal("declare", "stays", "--expires-after-s", "600", at=at) == (0, "stays: declared\n", "")
    assert "expires after 600 s" in re.sub(" +", " ", (await shoal("describe", "stays", at=at))[1])
    async with client.connect(at) as broker, asyncio.timeout(60), AsyncExitStack() as consuming:
        await broker.declare(["consumed", "left"], client.QueueOptions(expires_after_s=5))
        inbox = await consuming.enter_async_context(broker.consume("consumed"))
        await broker.bind("consumed", "some room")
        await gone("left", at)
        await broker.publish("some room", b"still here")
        assert (await anext(aiter(inbox))).body == b"still here"
    await gone("consumed", at)
    assert await shoal_json("members", "some room", at=at) == {"members": [], "next": ""}


async def test_options_of_deliveries_are_declared_and_told(cluster: LocalCluster) -> None:
    at = cluster.redirector
    options = ("--ack-timeout-ms", "30000", "--max-deliveries", "5", "--dead-letter", "failed")
    unbound = "no queue is bound to the dead-letter key failed: messages that come there are not kept\n"
    assert await shoal("declare", "jobs", *options, at=at) == (0, "jobs: declared\n", unbound)
    assert (await shoal("describe", "jobs", at=at))[2] == unbound
    await shoal("declare", "graveyard", at=at)
    await shoal("bind", "graveyard", "failed", at=at)
    assert await shoal("declare", "jobs", *options, at=at) == (0, "jobs: declared\n", "")
    told = re.sub(" +", " ", (await shoal("describe", "jobs", at=at))[1])
    assert "ack timeout 30000 ms" in told and "deliveries at most 5" in told and "dead-letter key failed" in told
    expected = {"expires_after_s": 0, "ack_timeout_ms": 30_000, "max_deliveries": 5, "dead_letter": "failed"}
    expected |= {"exclusive": "none"}
    assert (await shoal_json("describe", "jobs", at=at))["options"] == expected
    code, _, error = await shoal("declare", "other", "--dead-letter", "failed", at=at)
    assert code == exits.BAD_CALL and "max_deliveries is 0: no message would ever go there" in error
    code, _, error = await shoal("declare", "own", "--max-deliveries", "2", "--dead-letter", "@own", at=at)
    assert code == exits.BAD_CALL and "queue own: its dead_letter is its own direct key @own" in error


async def test_numbers_and_nouns_agree(cluster: LocalCluster) -> None:
    at = cluster.redirector
    async with client.connect(at) as broker:
        await broker.declare("single")
        await broker.bind("single", "duet")
    out = (await shoal("publish", "duet", "x", at=at))[1]
    assert out.endswith(", to 1 queue, 0 consumed now\n")
    out = (await shoal("publish", "duet", "x", "--live", at=at))[1]
    assert out == "live, to 1 queue, 0 of them consumed now\n"
    out = (await shoal("publish", "room c", "x", at=at))[1]
    assert out.endswith(", to 6 queues, 0 consumed now\n")


async def test_top_shows_every_slice_and_its_rates(cluster: LocalCluster) -> None:
    at = cluster.redirector
    code, out, error = await shoal("top", "--once", "--interval-s", "0.2", at=at)
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == list(COLUMNS) and COLUMNS[-1] == "trouble"
    assert [line.split()[0] for line in lines[1:]] == ["s01", "s02"]
    async with client.connect(at) as broker:
        watching = asyncio.create_task(shoal("top", "--json", "-n", "4", "--interval-s", "0.5", at=at))
        while not watching.done():
            await broker.publish_many("room c", [b"x"] * 10)
    code, out, _ = watching.result()
    samples = [json.loads(line)["slices"] for line in out.splitlines()]
    assert (code, len(samples)) == (0, 4)
    assert sum(one["counters"]["publishes"] for one in samples[-1]) > 10
    assert max(sum(one["rates_per_s"]["publishes"] for one in sample) for sample in samples) > 1
    assert set(RATES) <= set(samples[0][0]["rates_per_s"])


async def test_what_is_not_there_or_out_of_bounds_is_one_line(cluster: LocalCluster) -> None:
    at = cluster.redirector
    for arguments, code, said in (
        (("purge", "nobody"), exits.BAD_CALL, "queue nobody does not exist\n"),
        (("bindings", "nobody"), exits.BAD_CALL, "queue nobody does not exist; declare it first"),
        (("members", "room a", "--after", "zz"), exits.BAD_CALL, "is not of this list"),
        (("queues", "--limit", "1001"), 2, "less than or equal to 1000"),
    ):
        found, out, error = await shoal(*arguments, at=at)
        assert (found, out) == (code, "") and said in error


async def test_top_says_which_slice_is_silent(cluster: LocalCluster) -> None:
    await cluster.kill("s02")
    code, out, _ = await shoal("top", "--once", "--interval-s", "0.2", at=cluster.redirector)
    assert code == exits.UNKNOWN
    lines = out.splitlines()
    assert lines[1].split()[0] == "s01" and lines[2].startswith("s02: ")
    await cluster.restart("s02")


async def test_completion_knows_the_commands() -> None:
    words = {**os.environ, "COMP_WORDS": "shoal q", "COMP_CWORD": "1", "_SHOAL_COMPLETE": "complete_bash"}
    program = str(Path(sys.executable).parent / "shoal")
    process = await asyncio.create_subprocess_exec(program, env=words, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode().split() == ["queues"]
    code, script, _ = await shoal("--show-completion", "bash")
    assert code == 0 and "complete_bash" in script


async def test_names_cannot_steer_the_terminal(cluster: LocalCluster) -> None:
    """Names are their users': an operator's terminal shows them, and does nothing else (security M4)."""
    at = cluster.redirector
    queue, key = "esc\x1b]0;pwned\x07\x1b[2J\nfake-queue\u202e", "room\x9b1m\r"
    for arguments in (
        ("declare", queue),
        ("bind", queue, key),
        ("publish", key, "hello"),
        ("queues", "--prefix", "esc"),
        ("keys", "--prefix", "room"),
        ("members", key),
        ("bindings", queue),
        ("locate", key),
        ("describe", queue),
        ("describe", key, "--key"),
        ("peek", queue),
        ("purge", queue),
        ("unbind", queue, key),
        ("drop", queue),
        ("describe", queue),
        ("drop", queue),
    ):
        _, out, error = await shoal(*arguments, at=at)
        if arguments[0] in ("queues", "keys", "peek", "locate"):
            out += (await shoal(*arguments, "--json", at=at))[1]
        assert all(char.isprintable() or char == "\n" for char in out + error), arguments
        assert "fake-queue" not in (out + error).splitlines(), arguments
    assert (await shoal_json("queues", "--prefix", "esc", at=at))["queues"] == []


async def test_a_sweep_of_a_sound_cluster_drops_nothing(cluster: LocalCluster) -> None:
    at = cluster.redirector
    found = await shoal_json("sweep", "--pause-s", "0", at=at)
    assert (found["dropped"], found["left_behind"], found["doubtful"], found["unknown"], found["problems"]) == (
        0,
        [],
        0,
        0,
        {},
    )
    assert isinstance(found["looked_at"], int) and found["looked_at"] > 0, "queues have parts on two slices"
    code, out, error = await shoal("sweep", "--dry-run", at=at)
    assert (code, error) == (0, "") and out.endswith("0 left behind by drops; nothing was dropped\n")
    code, out, error = await shoal("sweep", "--pause-s", "0", at=at)
    assert (code, error) == (0, "") and out.endswith("looked at, 0 left behind by drops\n")
    assert (await shoal_json("describe", QUEUES[0], at=at))["exists"]
