"""What `shoal watch` prints, and its bad arguments."""

from __future__ import annotations

import json

import pytest

import shoal
from shoal_ops import exits
from shoal_ops.commands import watching

from .command_line import shoal as run


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_events_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    place = "1.2.3"
    for event in (
        shoal.Members({b"anna": True, b"\x1bben": False}, place),
        shoal.Joined(b"carl", place, True),
        shoal.Online(b"ben", place),
        shoal.Left(b"anna", place),
        shoal.MemberCount(2000, 7, place),
    ):
        watching._tell(event, True, False)
    assert told(capsys) == [
        "2 queues, 1 online",
        "anna is a member, online",
        "\\x1bben is a member",
        "carl joined, online",
        "ben online",
        "anna left",
        "2,000 queues, 7 online",
    ]
    watching._tell_count(shoal.KeyCount(b"room", 1, 0), False, False)
    watching._tell_count(shoal.Complete(), False, False)
    assert told(capsys) == ["room: 1 queue", "all told; changes follow"]


def test_events_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    place = "1.2.3"
    watching._tell(shoal.Joined(b"carl", place, True), True, True)
    watching._tell(shoal.Offline(b"carl", place), True, True)
    watching._tell(shoal.MemberCount(2000, 7, place), True, True)
    watching._tell_count(shoal.Complete(), True, True)
    assert [json.loads(line) for line in told(capsys)] == [
        {"event": "joined", "queue": "carl", "position": place, "online": True},
        {"event": "offline", "queue": "carl", "position": place},
        {"event": "member_count", "queues": 2000, "online": 7, "position": place},
        {"event": "complete"},
    ]


async def test_bad_arguments_are_refused() -> None:
    assert (await run("watch", "members"))[0] == 2
    assert (await run("watch", "members", "room", "-n", "0"))[0] == 2
    code, _, error = await run("watch", "counts", "room")
    assert code == exits.UNKNOWN
    assert "shoal: no cluster answers at 127.0.0.1:1" in error
