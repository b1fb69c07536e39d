"""The gate before an application that does nothing: requests under way, paths, what every answer carries."""

from __future__ import annotations

import asyncio
import re
import time

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from shoal_ops.http import (
    limits,
    routes_admin,
    routes_messages,
    routes_process,
    routes_queues,
    routes_transactions,
    routes_watches,
)
from shoal_ops.http.gate import Gate, _is_stream
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.token import Token


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def client(gate: Gate) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://localhost")


async def test_too_many_requests_are_asked_to_slow_down() -> None:
    gate = Gate(application, Token(), Metrics())
    async with client(gate) as http:
        gate.guard.active = limits.REQUESTS_MAX - 1
        assert (await http.get("/v1/cluster")).status_code == 200
        gate.guard.active = limits.REQUESTS_MAX
        refused = await http.get("/v1/cluster")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["limit"] == limits.REQUESTS_MAX
        assert gate.guard.active == limits.REQUESTS_MAX, "a refused request is not under way"


async def test_the_path_is_passed_on_as_it_came() -> None:
    async with client(Gate(application, Token(), Metrics())) as http:
        assert (await http.get("/v1/queues/a%2Fb%FF")).text == "/v1/queues/a%2Fb%FF"


async def test_every_answer_forbids_scripts_of_others_and_keeping() -> None:
    async with client(Gate(application, Token(), Metrics())) as http:
        headers = (await http.get("/")).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_wrong_tokens_are_held_and_logged_and_take_no_place_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "REFUSAL_S", 3600.0)
    monkeypatch.setattr(limits, "REFUSALS_HELD_MAX", 20)
    gate = Gate(application, Token(lambda: ("0123456789abcdef",)), Metrics())
    wrong, right = ({"authorization": f"Bearer {token}"} for token in ("not-the-right-one", "0123456789abcdef"))
    async with client(gate) as http:
        for _ in range(2):  # The second time it shows that places are given back.
            async with asyncio.timeout(30):
                assert (await http.get("/v1/cluster")).status_code == 401, "no token is no guess"
            held = {asyncio.ensure_future(http.get("/v1/cluster", headers=wrong)) for _ in range(25)}
            done: set[asyncio.Task[httpx.Response]] = set()
            async with asyncio.timeout(30):
                while len(done) < 5:  # Beyond the bound they are answered at once.
                    answered, held = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
                    done |= answered
            assert len(held) == limits.REFUSALS_HELD_MAX
            assert {guess.result().status_code for guess in done} == {401}
            assert gate.guard.active == 0
            assert (await http.get("/v1/cluster", headers=right)).status_code == 200
            for guess in held:
                guess.cancel()
            await asyncio.wait(held)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["a wrong token was refused, from 127.0.0.1 port 123"]


async def test_a_wrong_token_is_refused_late_however_many_were_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as many as may be held at a time had been refused, guesses were as fast as the network."""
    monkeypatch.setattr(limits, "REFUSAL_S", 0.02)
    monkeypatch.setattr(limits, "REFUSALS_HELD_MAX", 3)
    gate = Gate(application, Token(lambda: ("0123456789abcdef",)), Metrics())
    async with client(gate) as http:
        for _ in range(5):
            began = time.monotonic()
            assert (await http.get("/v1/cluster", headers={"authorization": "Bearer no"})).status_code == 401
            assert time.monotonic() - began >= 0.019


async def test_health_is_answered_at_the_bound_of_requests() -> None:
    gate = Gate(application, Token(), Metrics())
    gate.guard.active = limits.REQUESTS_MAX
    async with client(gate) as http:
        for path in ("/healthz", "/readyz"):
            assert (await http.get(path)).status_code == 200
        assert (await http.get("/")).status_code == 429


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/queues/events"),
        ("GET", "/v1/queues/events"),
        ("PUT", "/v1/queues/q/bindings/events"),
        ("PUT", "/v1/keys/events"),
        ("POST", "/v1/queues/q/events"),
        ("GET", "/v1/keys/k/events"),
    ],
)
async def test_a_request_for_a_queue_or_key_named_events_counts(method: str, path: str) -> None:
    """Thousands at a time were let in beside the bound."""
    gate = Gate(application, Token(), Metrics())
    gate.guard.active = limits.REQUESTS_MAX
    async with client(gate) as http:
        assert (await http.request(method, path)).status_code == 429


def test_the_streams_that_do_not_count_are_those_of_the_routes() -> None:
    routers = (routes_queues, routes_messages, routes_watches, routes_admin, routes_transactions, routes_process)
    streams = 0
    for route in (one for module in routers for one in module.router.routes):
        assert isinstance(route, APIRoute)
        path = re.sub(r"\{\w+\}", "events", route.path)
        for method in route.methods or ():
            opens = "text/event-stream" in route.responses.get(200, {}).get("content", {})
            assert _is_stream({"method": method, "path": path}) is opens, (method, path)
            streams += opens
    assert streams == 3


async def test_a_stream_has_no_body() -> None:
    """It stayed in memory, and kept its place, for as long as the stream was open."""
    gate = Gate(application, Token(), Metrics())
    async with client(gate) as http:
        found = await http.request("GET", "/v1/queues/q/events", content=b"x")
        assert (found.status_code, found.json()["detail"]) == (400, "an event stream takes no body")
        assert gate.guard.bodies.held_bytes == 0
        assert (await http.get("/v1/queues/q/events")).status_code == 200
