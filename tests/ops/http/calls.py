"""What tests of the gateway share: answers that must be good, pulls, and streams of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from shoal_runtime.http.problem import MEDIA_TYPE


def ok(response: httpx.Response) -> Any:
    """What a good answer says."""
    assert response.status_code in (200, 204), response.text
    return response.json() if response.content else None


def pull(http: httpx.Client, queue: str, **wanted: Any) -> list[dict[str, Any]]:
    """The messages of a pull."""
    found: list[dict[str, Any]] = ok(http.post(f"/v1/queues/{queue}/pull", json=wanted))["messages"]
    return found


@contextmanager
def streaming(http: httpx.Client, queue: str, ack: str = "explicit") -> Iterator[Iterator[dict[str, Any]]]:
    """Events of a queue, once the stream stands."""
    headers = {"x-shoal": "1"} if ack == "auto" else {}
    with http.stream("GET", f"/v1/queues/{queue}/events?ack={ack}", headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        lines = response.iter_lines()
        assert next(lines).startswith(": queue ")
        yield _events(lines)


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    event_id = ""
    for line in lines:
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        if line.startswith("data: "):
            found = json.loads(line.removeprefix("data: "))
            assert found.get("id", "") == event_id
            event_id = ""
            yield found


def problem_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == MEDIA_TYPE
    found: dict[str, Any] = response.json()
    assert set(found) == {"type", "title", "status", "detail", "subject", "limit", "value"}
    assert found["status"] == response.status_code
    return found
