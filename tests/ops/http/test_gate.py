"""The gate before an application that does nothing: requests under way, paths, what every answer carries."""

from __future__ import annotations

import httpx
from starlette.types import Receive, Scope, Send

from shoal_ops.http import limits
from shoal_ops.http.gate import Gate
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
