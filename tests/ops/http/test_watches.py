"""Watches as server-sent events on a real cluster: the state, changes, going on after a break, and their bound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

import shoal
from shoal_ops.http.watches import shown
from tests.ops.http.calls import ok, streaming

Event = tuple[str, str, dict[str, Any]]
"""Word, id, data."""


@contextmanager
def watching(http: httpx.Client, path: str, after: str = "") -> Iterator[Iterator[Event]]:
    """Events of a watch, once it stands."""
    with http.stream("GET", path, headers={"last-event-id": after} if after else {}) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        lines = response.iter_lines()
        assert next(lines) == ": watching"
        yield _events(lines)


def _events(lines: Iterator[str]) -> Iterator[Event]:
    event_id = word = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        elif name == "event":
            word = value
        elif name == "data":
            yield word, event_id, json.loads(value)
            event_id = ""


def test_members_are_told_and_a_reader_that_comes_back_goes_on(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/watch-a"))
    ok(http.put("/v1/queues/watch-a/bindings/watched"))
    with watching(http, "/v1/keys/watched/members/events") as events:
        word, place, data = next(events)
        assert (word, data) == ("members", {"members": [{"queue": "watch-a", "online": False}]})
        ok(http.put("/v1/queues/%FF"))
        ok(http.put("/v1/queues/%FF/bindings/watched"))
        name = {"queue": "\\xff", "queue_encoded": "%FF"}
        joined = next(events)
        assert (joined[0], joined[2]) == ("joined", name | {"online": False})
    with streaming(http, "watch-a"), watching(http, "/v1/keys/watched/members/events", place) as events:
        assert next(events) == joined
        online = next(events)
        assert (online[0], online[2]) == ("online", {"queue": "watch-a"})
    ok(http.delete("/v1/queues/%FF"))
    with watching(http, "/v1/keys/watched/members/events", online[1]) as events:
        found = {next(events)[0], next(events)[0]}
        assert found == {"offline", "left"}


def test_counts_are_told(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/count-a"))
    keys = [f"counted/{number}" for number in range(8)]
    ok(http.post("/v1/queues/count-a/bindings", json={"keys": keys}))
    with watching(http, "/v1/counts/events?prefix=counted%2F&presence=false") as events:
        counts = {}
        while (event := next(events))[0] != "complete":
            counts[event[2]["key"]] = event[2]
        assert counts == {key: {"key": key, "queues": 1, "online": 0} for key in keys}
        ok(http.delete("/v1/queues/count-a/bindings/counted%2F3"))
        assert next(events) == ("count", "", {"key": "counted/3", "queues": 0, "online": 0})


def test_wrong_watches_are_refused_before_the_stream_begins(http: httpx.Client) -> None:
    for path, kind in (
        ("/v1/keys/@/members/events", "InvalidName"),
        ("/v1/counts/events?prefix=" + "x" * 256, "InvalidName"),
        ("/v1/counts/events?prefx=x", "Malformed"),
        ("/v1/keys/k/members/events?presence=perhaps", "Malformed"),
    ):
        refused = http.get(path)
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2].rpartition("/")[2]) == (400, kind), path
    refused = http.get("/v1/keys/k/members/events", headers={"last-event-id": "room-7+1"})
    assert refused.status_code == 400
    assert "no position of a watch" in refused.json()["detail"]


def test_watches_that_ended_are_not_counted(http: httpx.Client) -> None:
    def open_now() -> float:
        (line,) = [line for line in ok_text(http) if line.startswith("shoal_admin_watches ")]
        return float(line.split()[1])

    with watching(http, "/v1/keys/k/members/events") as events:
        assert next(events)[0] == "members"
        assert open_now() == 1
    while open_now():
        pass


def ok_text(http: httpx.Client) -> list[str]:
    return http.get("/metrics").raise_for_status().text.splitlines()


def test_every_event_has_a_word() -> None:
    place = "1.2.3"
    found = [
        shown(event)
        for event in (
            shoal.MemberCount(2000, 7, place),
            shoal.Offline(b"q", place),
            shoal.Left(b"q", place),
            shoal.Complete(),
        )
    ]
    assert found == [
        ("member_count", {"queues": 2000, "online": 7}),
        ("offline", {"queue": "q"}),
        ("left", {"queue": "q"}),
        ("complete", {}),
    ]
