"""`shoal pull --lease-ms`, `shoal ack` and `shoal nack` as a user calls them, on a real cluster."""

from __future__ import annotations

import asyncio
import json
import time
from typing import cast

import pytest

import shoal as client
from shoal_contract.limits import KEY_UNACKED_MAX
from shoal_ops import exits
from shoal_ops.commands import verbs
from shoal_ops.limits import BINDINGS_LISTED_MAX, OFFSET_RANGES_MAX

from .command_line import into_closed_pipe, shoal, shoal_json

LEASE_MS = "600000"
BRIEF_LEASE_MS = "1000"
"""The answer leaves before it is over, however busy the machine is: else it is no delivery."""


async def pulled(at: str, *arguments: str, queue: str = "cli-jobs") -> list[tuple[int, int]]:
    """Offset, and how often it was delivered before, of each message that a pull prints."""
    code, out, error = await shoal("pull", queue, "--json", *arguments, at=at)
    assert (code, error) == (0, "")
    return [(one["offset"], one["redelivered"]) for one in map(json.loads, out.splitlines())]


async def test_one_command_takes_messages_and_others_are_done_with_them(real_redirector: str) -> None:
    at = real_redirector
    async with client.connect(at) as broker:
        await broker.declare("cli-jobs")
        await broker.bind("cli-jobs", "cli jobs")
        for body in (b"1", b"2", b"3", b"4", b"5"):
            await broker.publish("cli jobs", body)
        assert await pulled(at, "--lease-ms", LEASE_MS, "-n", "4") == [(1, 0), (2, 0), (3, 0), (4, 0)]
        told = "asked to ack 2 messages of cli jobs; the backlog was 5 and is 3\n"
        assert await shoal("ack", "cli-jobs", "cli jobs", "1", "3", at=at) == (0, told, "")
        told = "asked to ack 2 messages of cli jobs; the backlog was 3 and is 3: it seems that none was given out\n"
        assert await shoal("ack", "cli-jobs", "cli jobs", "99-100", at=at) == (0, told, ""), "there are none"
        code, out, error = await shoal("ack", "cli-jobs", "cli other", "1", at=at)
        assert (code, out) == (exits.BAD_CALL, "")
        assert "queue cli-jobs is not bound to cli other: there is nothing to ack" in error
        assert (await broker.describe("cli-jobs")).messages == 3
        began = time.monotonic()
        assert await shoal_json("nack", "cli-jobs", "cli jobs", "4", "--delay-s", "3", at=at) == {
            "nacked": {"queue": "cli-jobs", "key": "cli jobs", "messages": 1, "delay_s": 3.0}
        }
        told = "asked to nack 2 messages of cli jobs; what was not given out stays as it is\n"
        assert await shoal("nack", "cli-jobs", "cli jobs", "1-2", at=at) == (0, told, "")
        # 1 was acked, so it does not come again; 4 comes later.
        found: list[tuple[int, int]] = []
        while len(found) < 3:
            found += await pulled(at, "--lease-ms", LEASE_MS)
            assert (4, 1) not in found or time.monotonic() - began >= 3
        assert sorted(found) == [(2, 1), (4, 1), (5, 0)]
        assert await shoal_json("ack", "cli-jobs", "cli jobs", "2-5", "1", at=at) == {
            "acked": {"queue": "cli-jobs", "key": "cli jobs", "messages": 5, "backlog_before": 3, "backlog_after": 0}
        }
        assert (await broker.describe("cli-jobs")).messages == 0
        await broker.publish("cli jobs", b"6")
        (found,) = [await pulled(at, "--lease-ms", BRIEF_LEASE_MS)]
        while not (again := await pulled(at)):
            pass
        assert (found, again) == ([(6, 0)], [(6, 1)]), "a lease that is over gives its messages again"
        assert (await broker.describe("cli-jobs")).messages == 0, "without a lease, a pull acks what it prints"


async def test_a_queue_of_more_bindings_than_a_slice_lists_is_acked(real_redirector: str) -> None:
    at = real_redirector
    async with client.connect(at) as broker:
        await broker.declare("cli-many")
        keys = [f"{{one slice}} {number}" for number in range(BINDINGS_LISTED_MAX + 500)]
        for first in range(0, len(keys), 1000):
            await broker.bind("cli-many", keys[first : first + 1000])
        listed = {one.key for one in (await broker.describe("cli-many", bindings=True)).bindings}
        key = next(key for key in keys if key not in listed)
        await broker.publish(key, b"1")
        assert await pulled(at, "--lease-ms", LEASE_MS, queue="cli-many") == [(1, 0)]
        told = f"asked to ack 1 message of {key}; what was not given out stays as it is\n"
        assert await shoal("ack", "cli-many", key, "1", at=at) == (0, told, "")
        assert not (await broker.describe("cli-many")).messages
        await broker.drop("cli-many")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ack", "cli-nobody", "k", "1"), exits.BAD_CALL, "queue cli-nobody does not exist"),
        (("nack", "cli-nobody", "k", "1"), exits.BAD_CALL, "queue cli-nobody does not exist"),
        (("ack", "q", "k" * 256, "1"), exits.BAD_CALL, "the limit is 255"),
        (("ack", "q", "k"), 2, "Missing argument"),
        (("ack", "q", "k", "x"), 2, "x names no offsets: give OFFSET or FIRST-LAST"),
        (("ack", "q", "k", "0"), 2, "0 holds no offset"),
        (("nack", "q", "k", "3-2"), 2, "3-2 holds no offset"),
        (("ack", "q", "k", "1-9999999999999999999"), 2, "offset is 9999999999999999999"),
        (("nack", "q", "k", "9" * 5000), 2, "names no offsets"),
        (("nack", "q", "k", *["1"] * (OFFSET_RANGES_MAX + 1)), 2, f"the limit is {OFFSET_RANGES_MAX}"),
        (("nack", "q", "k", "1", "--delay-s", "-1"), 2, "delay_s"),
        (("nack", "q", "k", "1", "--delay-s", "nan"), 2, "delay_s"),
        (("nack", "q", "k", "1", "--delay-s", "86401"), 2, "86400"),
        (("nack", "q", "k", "1", "--delay-s", "soon"), 2, "--delay-s"),
        (("pull", "q", "--peek", "--lease-ms", "5"), 2, "--peek takes nothing"),
        (("pull", "q", "--lease-ms", "0"), 2, "--lease-ms"),
        (("pull", "q", "--lease-ms", "3600001"), 2, "--lease-ms"),
        (("pull", "cli-nobody", "--lease-ms", "5"), exits.BAD_CALL, "queue cli-nobody does not exist"),
    ],
)
async def test_what_is_refused_says_why(
    real_redirector: str,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    found, out, error = await shoal(*arguments, at=real_redirector)
    assert (found, out) == (code, "") and said in error, error


async def test_describe_names_keys_that_give_no_more_as_so_much_is_unacked(real_redirector: str) -> None:
    """Consumers that hold all of a key left nothing of it to others, and nothing told which key it was."""
    queue = "cli-held"
    async with client.connect(real_redirector) as broker:
        await broker.declare(queue)
        for some in (KEY_UNACKED_MAX - 10, 20):
            await broker.publish_many(f"@{queue}", [b"x"] * some)
        async with broker.consume(queue, window_messages=10_000) as inbox:
            for _ in range(KEY_UNACKED_MAX):
                await inbox.get()
            code, output, remarks = await shoal("describe", queue, at=real_redirector)
            assert code == 0 and "unacked messages   4,096" in output
            assert "as much is unacked as may be of one key (4,096 messages;" in remarks
            assert f"gets more of: @{queue}. It goes on once" in remarks
            described = await shoal_json("describe", queue, at=real_redirector)
            (binding,) = cast(list[dict[str, object]], described["bindings"])
            assert (binding["unacked"], binding["full"]) == (KEY_UNACKED_MAX, True)
            code, output, listed = await shoal("bindings", queue, at=real_redirector)
            assert code == 0 and output.split()[-1] == f"{KEY_UNACKED_MAX:,}" and listed == remarks
    code, _, remarks = await shoal("describe", queue, at=real_redirector)
    assert (code, remarks) == (0, "")


async def test_describe_tells_that_messages_given_back_for_later_fill_a_key(real_redirector: str) -> None:
    """It told of 0 unacked, and of consumers that were to ack or end: nothing of it would have helped."""
    queue = "cli-later"
    async with client.connect(real_redirector) as broker:
        await broker.declare(queue)
        for some in (KEY_UNACKED_MAX - 10, 20):
            await broker.publish_many(f"@{queue}", [b"x"] * some)
        async with broker.consume(queue) as inbox:
            for _ in range(KEY_UNACKED_MAX):
                await (await inbox.get()).nack(delay_s=3600)
            await inbox.flush()
        code, output, remarks = await shoal("describe", queue, at=real_redirector)
        assert code == 0 and "unacked messages   4,096" in output
        assert "those that were given back with a delay that is not over count, too" in remarks
        assert "It goes on once" in remarks and "or the delay with which they were given back" in remarks
        found = await broker.describe(queue, bindings=True)
        assert found.unacked == sum(one.unacked for one in found.bindings) == KEY_UNACKED_MAX
        await broker.drop(queue)


async def test_a_pull_takes_as_much_as_it_is_asked_for(real_redirector: str) -> None:
    """It ended behind what one answer brings, 4,096 messages of a key at most, without a word."""
    async with client.connect(real_redirector) as broker:
        await broker.declare("cli-long")
        for some in (KEY_UNACKED_MAX, 304):
            await broker.publish_many("@cli-long", [b"x"] * some)
        found = await pulled(real_redirector, "-n", "4300", queue="cli-long")
        assert found == [(offset, 0) for offset in range(1, 4301)]
        assert await pulled(real_redirector, "-n", "4300", queue="cli-long") == [
            (offset, 0) for offset in range(4301, 4401)
        ]


async def test_what_a_pull_could_not_print_is_given_back(real_redirector: str) -> None:
    """It stayed taken until its lease ended, and was counted as delivered."""
    async with client.connect(real_redirector) as broker:
        await broker.declare("cli-unprinted")
        await broker.bind("cli-unprinted", "cli unprinted")
        for body in (b"1", b"2", b"3"):
            await broker.publish("cli unprinted", body)
        for form in (("--lease-ms", LEASE_MS), ("--lease-ms", LEASE_MS, "--json"), (), ("--json",)):
            arguments = ("pull", "cli-unprinted", "-n", "9", *form)
            assert await into_closed_pipe(*arguments, at=real_redirector) == (exits.READER_GONE, "")
        found = await pulled(real_redirector, "--lease-ms", LEASE_MS, "-n", "9", queue="cli-unprinted")
        assert found == [(1, 0), (2, 0), (3, 0)]


class Printed:
    """A message that is printed or given back."""

    def __init__(self, offset: int, given_back: list[int]) -> None:
        self.offset = offset
        self._given_back = given_back

    def give_back(self) -> None:
        self._given_back.append(self.offset)


async def test_what_an_interrupted_pull_did_not_print_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt was taken only where the connection closes, and ended what gave the rest back. (Printing waits for
    the reader, and hears of no interrupt meanwhile.)"""
    printed: list[int] = []
    given_back: list[int] = []
    found = [Printed(offset, given_back) for offset in range(5)]
    pulling = asyncio.create_task(verbs.tell_pulled(cast("list[client.Message]", found), as_json=False))

    def prints(message: Printed, as_json: bool) -> None:
        printed.append(message.offset)
        if message.offset == 1:
            pulling.cancel()

    monkeypatch.setattr(verbs, "tell_message", prints)
    with pytest.raises(asyncio.CancelledError):
        await pulling
    assert (printed, given_back) == ([0, 1], [2, 3, 4])
    assert pulling.cancelling() == 1
