"""Event files: both forms, packed or plain; a bad line is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from shoal_contract.errors import Malformed
from shoal_ops.replay.events import Event, Join, Leave, Say, count_events, read_events

DATA = Path(__file__).parents[1] / "data"
CHANNEL = "2026-01-01\t10:00\tnet\t#room\t"


def read(folder: Path, text: str, publish_after_churn: bool = False) -> list[Event]:
    path = folder / "events.tsv"
    path.write_text(text, encoding="utf-8")
    return list(read_events(path, publish_after_churn))


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("msg\tanna\thello\tthere", (Say(b"#room", b"hello\tthere"),)),
        ("msg\tanna\t", (Say(b"#room", b""),)),
        ("join\tanna\t", (Join(b"#room", b"anna"),)),
        ("part\tanna\t", (Leave(b"#room", b"anna"),)),
        ("quit\tanna", (Leave(b"#room", b"anna"),)),
        ("nick\tanna\tanne", (Join(b"#room", b"anne"), Leave(b"#room", b"anna"))),
        ("mode\t\t", ()),
    ],
)
def test_a_line_of_a_channel_log_becomes_its_event(tmp_path: Path, line: str, event: Event) -> None:
    assert read(tmp_path, f"{CHANNEL}{line}\n") == [event]


def test_churn_may_be_followed_by_a_message_that_says_it(tmp_path: Path) -> None:
    text = "12\tjoin\tteam\tanna\n13\tpart\tteam\tanna"
    assert read(tmp_path, text) == [(Join(b"team", b"anna"),), (Leave(b"team", b"anna"),)]
    assert read(tmp_path, text, publish_after_churn=True) == [
        (Join(b"team", b"anna"), Say(b"team", b"12 join team anna")),
        (Leave(b"team", b"anna"), Say(b"team", b"13 part team anna")),
    ]


def test_the_real_logs_are_read_whole() -> None:
    counts = {path.name: count_events(path) for path in sorted(DATA.glob("*.tsv.gz"))}
    assert counts == {
        "k8s-org.churn.tsv.gz": 22_421,
        "linux-channel.events.tsv.gz": 2_601,
        "rust-team.churn.tsv.gz": 3_603,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("root:x:0\n", "line 1: it is neither a channel log"),
        ("1\tjoin\ta\tb\n2\tleave\ta\tb\n", "line 2: 'leave' is neither join nor part"),
        ("1\tjoin\ta\tb\n\n2\tjoin\t\tb\n", "line 3: group or user is empty"),
        (f"{CHANNEL}msg\ta\tb\n{CHANNEL}shout\ta\tb\n", "line 2: 'shout' is not one of msg, join"),
        (f"{CHANNEL}nick\ta\t\n", "line 1: the new nick is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        read(tmp_path, text)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"1\tjoin\ta\tb\n" * 10_000)[:-20])
    with pytest.raises(Malformed, match="is damaged after line"):
        count_events(path)
