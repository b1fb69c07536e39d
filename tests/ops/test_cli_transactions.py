"""`shoal transaction FILE` as a user meets it: on a real cluster, and what it says of a bad file."""

from __future__ import annotations

import inspect
import json
import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from shoal_contract.options import KeyOptions
from shoal_ops import exits
from shoal_ops.cli_verbs import commands
from shoal_ops.commands import transactions
from shoal_ops.commands.verbs import DELAYED
from shoal_ops.limits import TRANSACTION_FILE_BYTES_MAX

from .command_line import shoal, shoal_json

COMMANDS = """
# anna enters the room
declare {cli-room}bot '{cli-room}a b'
bind {cli-room}bot {cli-room}talk {cli-room}votes
publish {cli-room}talk "anna is here" --mandatory
publish {cli-room}nobody -- -x
unbind {cli-room}bot {cli-room}votes --discard
configure {cli-room}talk {cli-room}votes --history-messages 3 --capacity-bytes 900
"""


async def test_the_commands_of_a_file_are_done_together(tmp_path: Path, real_redirector: str) -> None:
    file = tmp_path / "commands"
    file.write_text(COMMANDS)
    assert await shoal("transaction", str(file), at=real_redirector) == (
        0,
        "declared {cli-room}bot, {cli-room}a b\n"
        "bound {cli-room}bot: {cli-room}talk from offset 1, {cli-room}votes from offset 1\n"
        "published to {cli-room}talk: offset 1, to 1 queue\n"
        "published to {cli-room}nobody: no queue is bound, the message is not kept\n"
        "unbound {cli-room}bot: {cli-room}votes up to offset 1\n"
        "configured {cli-room}talk, {cli-room}votes\n",
        "",
    )
    file.write_text(
        "ack {cli-room}bot {cli-room}talk 1\npublish {cli-room}talk x\n"
        "bind '{cli-room}a b' {cli-room}talk --start last=1\n"
    )
    found = await shoal_json("transaction", str(file), at=real_redirector)
    assert found == {
        "committed": [
            {"acked": {"queue": "{cli-room}bot", "key": "{cli-room}talk", "messages": 1}},
            {
                "published": {
                    "key": "{cli-room}talk",
                    "offset": 2,
                    "queues": 1,
                    "consumed": 0,
                    "messages": 1,
                    "delayed": False,
                }
            },
            {"bound": {"queue": "{cli-room}a b", "offsets": {"{cli-room}talk": 2}}},
        ]
    }
    _, told, _ = await shoal("describe", "--key", "{cli-room}votes", at=real_redirector)
    assert re.search(r"history messages +3\n", told) and re.search(r"capacity bytes +900\n", told)
    file.write_text("configure {cli-room}votes\n")
    found = await shoal_json("transaction", str(file), at=real_redirector)
    assert found["committed"] == [{"configured": ["{cli-room}votes"], "options": asdict(KeyOptions())}]
    file.write_text("publish {cli-room}talk y\nack {cli-room}bot {cli-room}talk 1-2\n")
    code, out, error = await shoal("transaction", str(file), at=real_redirector)
    assert (code, out) == (exits.BAD_CALL, "")
    assert "does not have all of offsets 1 to 2" in error and "nothing of it was done" in error
    file.write_text("publish {cli-room}talk y\n" + "".join(f"publish cli-far-{n} x\n" for n in range(40)))
    code, out, error = await shoal("transaction", str(file), at=real_redirector)
    assert (code, out) == (exits.BAD_CALL, "")
    assert "cli-far-" in error and "line " in error and "tag in braces" in error
    described = await shoal_json("describe", "{cli-room}bot", at=real_redirector)
    assert described["messages"] == 1


async def test_a_line_takes_what_the_command_takes(tmp_path: Path, real_redirector: str) -> None:
    file = tmp_path / "commands"
    await shoal("declare", "{cli-jobs}graveyard", at=real_redirector)
    await shoal("bind", "{cli-jobs}graveyard", "{cli-jobs}failed", at=real_redirector)
    file.write_text(
        "declare {cli-jobs}q --ack-timeout-ms 30000 --max-deliveries 5 --dead-letter {cli-jobs}failed"
        " --exclusive oldest --expires-after-s 600\n"
        "publish @{cli-jobs}q later --mandatory --not-before "
        f"{time.time() + 86_400}\n"
    )
    code, out, _ = await shoal("transaction", str(file), at=real_redirector)
    assert (code, out) == (
        0,
        f"declared {{cli-jobs}}q\npublished to @{{cli-jobs}}q: {DELAYED}\n",
    )
    found = await shoal_json("describe", "{cli-jobs}q", at=real_redirector)
    assert found["options"] == {
        "expires_after_s": 600,
        "ack_timeout_ms": 30_000,
        "max_deliveries": 5,
        "dead_letter": "{cli-jobs}failed",
        "exclusive": "oldest",
    }
    assert found["messages"] == 0
    file.write_text(
        "bind {cli-jobs}q {cli-jobs}notices\n"
        "configure {cli-jobs}news --capacity-messages 5 --policy drop_oldest\n"
        "publish {cli-jobs}notices gone --ttl 0.001\n"
        "publish {cli-jobs}notices here --ttl 3600 --header from=anna --header 'note=a = b'\n"
    )
    code, _, error = await shoal("transaction", str(file), at=real_redirector)
    assert (code, error) == (0, "")
    gone = "{cli-jobs}q {cli-jobs}notices 1 to 1 are gone: expired\n"
    pulled = (0, "{cli-jobs}q {cli-jobs}notices 2 here\n", gone)
    peeked = await shoal("pull", "{cli-jobs}q", "--peek", "--json", at=real_redirector)
    assert json.loads(peeked[1])["headers"] == {"from": "anna", "note": "a = b"}
    assert await shoal("pull", "{cli-jobs}q", at=real_redirector) == pulled
    _, told, _ = await shoal("describe", "--key", "{cli-jobs}news", at=real_redirector)
    assert re.search(r"policy +drop_oldest\n", told)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no command"),
        ("# nothing\n\n", "has no command"),
        ("publish a", "line 1: Missing argument 'BODY'"),
        (
            "declare q\ndrop q",
            "line 2: drop is no command of a transaction, which has declare, configure, bind, unbind, publish, ack",
        ),
        ("publish a 'x", "line 1: it cannot be read: No closing quotation"),
        ("bind q a --start never", "line 1: Invalid value for '--start': never is not one of now"),
        ("ack q a x", "line 1: Invalid value for 'OFFSETS': x names no offsets"),
        ("ack q a 3-2", "line 1: Invalid value for 'OFFSETS': 3-2 holds no offset"),
        ("ack q a 0", "line 1: Invalid value for 'OFFSETS': 0 holds no offset"),
        (f"ack q a {'9' * 5000}", "names no offsets"),
        ("ack q a 1-9999999999999999999", "line 1: Invalid value for 'OFFSETS': offset"),
        ("declare q --expires-after-s soon", "line 1: Invalid value for '--expires-after-s'"),
        ("configure a --history-messages -1", "line 1: Invalid value for '--history-messages'"),
        ("configure a --history-messages 9 --capacity-messages 9", "line 1: capacity_messages"),
        ("configure", "line 1: Missing argument 'KEY'"),
        ("bind q a --what", "line 1: No such option: --what"),
        ("publish a b --live", "line 1: No such option: --live"),
        ("publish a b --idempotency-key 1", "line 1: No such option: --idempotency-key"),
        ("publish a b --at localhost", "line 1: No such option: --at"),
        ("publish a b --not-before soon", "line 1: Invalid value for '--not-before': 'soon' is no time"),
        ("publish a b --header x", "line 1: Invalid value for '--header': x needs NAME=VALUE"),
        ("publish a b --header x=1 --header x=2", "line 1: Invalid value for '--header': header x is given twice"),
        ("publish a b --header shoal-hops=0", "line 1: header shoal-hops begins with shoal-"),
        ("publish a b --ttl soon", "line 1: Invalid value for '--ttl'"),
        ("publish a b --ttl 0", "line 1: Invalid value for '--ttl': ttl is"),
        ("publish a b --ttl -1", "line 1: Invalid value for '--ttl': ttl is"),
        ("publish a b --ttl nan", "line 1: Invalid value for '--ttl': ttl is"),
        ("publish a b --ttl 1e12", "line 1: Invalid value for '--ttl': ttl is"),
        ("configure a --policy all", "line 1: Invalid value for '--policy'"),
        ("declare q --exclusive yes", "line 1: Invalid value for '--exclusive'"),
        ("declare q --max-deliveries -1", "line 1: Invalid value for '--max-deliveries'"),
        ("declare q --help", "line 1: No such option: --help"),
        ("ack q a", "line 1: Missing argument"),
        ("x" * (TRANSACTION_FILE_BYTES_MAX + 1), "more than 4194304 bytes"),
    ],
)
async def test_a_bad_file_is_told_with_its_line(tmp_path: Path, real_redirector: str, text: str, said: str) -> None:
    file = tmp_path / "commands"
    file.write_text(text)
    code, out, error = await shoal("transaction", str(file), at=real_redirector)
    assert (code, out) == (exits.BAD_CALL, "")
    assert said in error and error.count("\n") == 1


def test_every_option_of_a_line_is_used() -> None:
    """One that a line takes, and that nothing reads, would be forgotten in silence."""
    for verb, parser in transactions._parsers(commands).items():
        done = inspect.getsource(transactions._VERBS[verb])
        assert [one.name for one in parser.params if f"line.{one.name}" not in done] == [], verb


async def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    code, _, error = await shoal("transaction", str(tmp_path / "none"))
    assert code == exits.BAD_CALL and "none: No such file" in error
    (tmp_path / "bytes").write_bytes(b"publish a \xff")
    code, _, error = await shoal("transaction", str(tmp_path / "bytes"))
    assert code == exits.BAD_CALL and "is not UTF-8 text" in error
