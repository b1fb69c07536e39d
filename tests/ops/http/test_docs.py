"""docs/http.md: its group chat, run with curl as it stands there, does what it says; its limits are in use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shoal_ops.http import limits
from shoal_runtime.http import limits as shared
from tests.ops.http.conftest import Running

DOCUMENT = (Path(__file__).parent.parent.parent.parent / "docs" / "http.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_guides_group_chat_runs_with_curl(running: Running) -> None:
    script = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)[0]
    found = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"SHOAL": running.url, "no_proxy": "*"},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    answers = [json.loads(line) for line in found.stdout.splitlines() if line]
    declared, joined, _, sent, pulled, left, again, anna = answers
    assert declared == {"declared": 2}
    assert [one["key"] for one in joined["offsets"]] == ["room-7", "news"]
    assert sent == {"key": "room-7", "offset": 1, "queues": 2, "consumed": 0, "messages": 1, "delayed": False}
    assert [(one["id"], one["body"], one["headers"]) for one in pulled["messages"]] == [
        ("room-7+1", "hello", {"from": "anna"})
    ]
    assert left["offsets"] == [{"key": "room-7", "offset": 2}]
    assert (again["offset"], again["queues"]) == (2, 1)
    assert (anna["messages"], anna["bindings"]) == (2, 2)


ROWS = [
    ("request body", f"{limits.BODY_BYTES_MAX >> 20} MiB"),
    (
        "values in a request body",
        f"{limits.BODY_VALUES_MAX:,}; {limits.DIGITS_MAX}; {limits.PULL_BODY_BYTES_MAX >> 10} KiB",
    ),
    ("queues in a declare", f"{limits.QUEUES_PER_CALL_MAX:,}; {limits.KEYS_PER_CALL_MAX:,}"),
    ("messages in a batch", f"{limits.MESSAGES_PER_CALL_MAX:,} and 2 MiB; {limits.KEYS_PER_PUBLISH_MAX:,}"),
    (
        "messages of a pull",
        f"{limits.PULL_MESSAGES_MAX:,} and 2 MiB ({limits.PULL_BYTES_CROWDED >> 10} KiB while pulls wait for each"
        f" other); {limits.PULL_WAIT_S_MAX:g} s; 1 hour",
    ),
    ("names in a page", f"{limits.PAGE_MAX:,}"),
    ("event streams", f"{limits.STREAMS_MAX}; {limits.STREAMS_PER_QUEUE_MAX}"),
    ("requests under way", f"{limits.REQUESTS_MAX:,}; {limits.WAITING_PULLS_MAX}; {limits.WAITING_LARGE_WORK_MAX}"),
    ("request line and headers", f"{limits.HEAD_BYTES_MAX >> 10} KiB"),
    ("connections", f"{limits.CONNECTIONS_MAX:,}"),
    ("request bodies under way", f"{shared.BODIES_BYTES_MAX >> 20} MiB; {shared.ANSWERS_BYTES_MAX >> 20} MiB"),
]


def test_the_patience_is_that_in_use() -> None:
    assert f"{shared.HEAD_S:g} s for a head, and {limits.IDLE_S} s between requests" in DOCUMENT
    assert f"bring {shared.STEP_BYTES >> 10} KiB each {shared.STEP_S:g} s" in DOCUMENT
    assert (shared.SLOW_S, shared.OBJECT_BYTES, shared.VALUE_BYTES) == (2, 256, 64), "as the text says in words"
    assert (shared.CROWDED_BODY_S, shared.SMALL_BODIES_PARTS, shared.SMALL_BODY_BYTES) == (10, 4, 64 << 10)


@pytest.mark.parametrize(
    ("row", "said"),
    ROWS,
)
def test_the_limits_are_those_in_use(row: str, said: str) -> None:
    assert re.search(rf"^\| {row}.* \| {re.escape(said)} \|$", DOCUMENT, re.MULTILINE)
