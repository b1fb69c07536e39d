"""Transactions by plain HTTP on a real cluster."""

from __future__ import annotations

import asyncio
import base64
import time
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from shoal_contract.errors import TooLarge
from shoal_contract.limits import TTL_MS_MAX
from shoal_ops.http import routes_transactions
from shoal_ops.http.models_transactions import Transaction
from tests.ops.http.calls import ok, pull


def transact(http: httpx.Client, *steps: dict[str, Any]) -> httpx.Response:
    return http.post("/v1/transactions", json={"steps": list(steps)})


def test_all_steps_are_done_and_answered(http: httpx.Client) -> None:
    ok(http.post("/v1/queues", json={"queues": ["tx-anna"]}))
    found = ok(
        transact(
            http,
            {"declare": {"queues": ["{tx-1}bot"], "queues_encoded": ["%7Btx-1%7D%FF"]}},
            {"bind": {"queue": "{tx-1}bot", "keys": ["{tx-1}talk", "{tx-1}votes"]}},
            {"bind": {"queue": "tx-anna", "keys": ["{tx-1}talk"]}},
            {"publish": {"key": "{tx-1}talk", "body": "hello", "headers": {"from": "anna"}, "mandatory": True}},
            {"publish": {"key_encoded": "%7Btx-1%7Dtalk", "body_base64": base64.b64encode(b"\xff").decode()}},
            {"unbind": {"queue": "{tx-1}bot", "keys": ["{tx-1}votes"], "discard": True}},
            {"configure": {"keys": ["{tx-1}votes"], "keys_encoded": ["%7Btx-1%7D%FF"], "history_messages": 7}},
        )
    )
    receipt = {"key": "{tx-1}talk", "offset": 1, "queues": 2, "consumed": 0, "messages": 1, "delayed": False}
    assert found["steps"] == [
        {"declared": 2},
        {"offsets": [{"key": "{tx-1}talk", "offset": 1}, {"key": "{tx-1}votes", "offset": 1}]},
        {"offsets": [{"key": "{tx-1}talk", "offset": 1}]},
        {"receipt": receipt},
        {"receipt": receipt | {"offset": 2}},
        {"offsets": [{"key": "{tx-1}votes", "offset": 1}]},
        {"configured": 2},
    ]
    limits = {"history_messages": 7, "history_age_s": 0, "capacity_messages": 0, "capacity_bytes": 0}
    options = limits | {"policy": "reject"}
    assert ok(http.get("/v1/keys/%7Btx-1%7D%FF"))["options"] == options
    ids = [one["id"] for one in pull(http, "tx-anna")]
    answer = {"publish": {"key": "{tx-1}talk", "body": "done"}}
    acked = ok(transact(http, answer, {"ack": {"queue": "tx-anna", "ids": ids}}))
    assert acked["steps"][1] == {"acked": 2}
    again = transact(http, answer, {"ack": {"queue": "tx-anna", "ids": ids[:1]}})
    assert (again.status_code, again.json()["type"]) == (409, "urn:shoal:error:Conflict")
    assert [one["body"] for one in pull(http, "tx-anna")] == ["done"]


def test_a_publish_waits_for_its_time(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/%7Btx-3%7Dq"))
    ok(http.put("/v1/queues/%7Btx-3%7Dq/bindings/%7Btx-3%7Dtalk"))
    in_a_year, in_a_moment = [int(time.time() * 1000) + ms for ms in (31_536_000_000, 300)]
    found = ok(
        transact(
            http,
            {"publish": {"key": "{tx-3}talk", "body": "later", "not_before_ms": in_a_year}},
            {"publish": {"key": "{tx-3}talk", "body": "soon", "not_before_ms": in_a_moment}},
            {"publish": {"key": "{tx-3}talk", "body": "now"}},
        )
    )
    receipts = [one["receipt"] for one in found["steps"]]
    assert [(one["offset"] > 0, one["delayed"]) for one in receipts] == [(False, True), (False, True), (True, False)]
    assert [one["body"] for one in pull(http, "{tx-3}q")] == ["now"]
    soon = pull(http, "{tx-3}q", wait_s=20)
    assert [one["body"] for one in soon] == ["soon"]
    assert soon[0]["time_ms"] >= in_a_moment


def test_a_publish_expires_when_its_ttl_is_over(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/%7Btx-4%7Dq"))
    ok(http.put("/v1/queues/%7Btx-4%7Dq/bindings/%7Btx-4%7Dtalk"))
    in_a_moment = int(time.time() * 1000) + 300
    found = ok(
        transact(
            http,
            {"publish": {"key": "{tx-4}talk", "body": "an hour", "ttl_ms": 3_600_000}},
            {"publish": {"key": "{tx-4}talk", "body": "a moment", "ttl_ms": 1}},
            {"publish": {"key": "{tx-4}talk", "body": "for ever"}},
            {"publish": {"key": "{tx-4}talk", "body": "soon", "not_before_ms": in_a_moment, "ttl_ms": 3_600_000}},
        )
    )
    first, *others = [one["receipt"]["offset"] for one in found["steps"]]
    assert others == [first + 1, first + 2, 0]
    peeked = ["an hour", "a moment", "for ever"]
    while "a moment" in peeked:
        peeked = [one["body"] for one in ok(http.get("/v1/queues/%7Btx-4%7Dq/messages"))["messages"]]
    shown: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    while len(shown) < 3:
        answer = ok(http.post("/v1/queues/%7Btx-4%7Dq/pull", json={"wait_s": 20, "lease_ms": 600_000}))
        shown += answer["messages"]
        gaps += answer.get("gaps", [])
    assert [one["body"] for one in shown] == ["an hour", "for ever", "soon"]
    assert [one.get("expires_ms", 0) - one["time_ms"] for one in (shown[0], shown[2])] == [3_600_000] * 2
    assert "expires_ms" not in shown[1]
    assert gaps == [{"key": "{tx-4}talk", "first": first + 1, "end": first + 2, "why": "expired"}]


REFUSED = {
    "two slices": ([{"publish": {"key": f"tx-far-{n}", "body": "x"}} for n in range(40)], 400, "CrossSlice"),
    "no such queue": ([{"bind": {"queue": "{tx-2}none", "keys": ["{tx-2}a"]}}], 404, "NoSuchQueue"),
    "unroutable": ([{"publish": {"key": "{tx-2}a", "body": "", "mandatory": True}}], 404, "Unroutable"),
    "two verbs": ([{"publish": {"key": "a", "body": ""}, "bind": {"queue": "q", "keys": ["a"]}}], 400, "Malformed"),
    "no verb": ([{}], 400, "Malformed"),
    "no steps": ([], 400, "Malformed"),
    "nothing acked": ([{"ack": {"queue": "q"}}], 400, "Malformed"),
    "an empty range": ([{"ack": {"queue": "q", "ranges": [{"key": "a", "first": 3, "end": 3}]}}], 400, "OutOfRange"),
    "no queue": ([{"bind": {"keys": ["a"]}}], 400, "Malformed"),
    "no keys": ([{"bind": {"queue": "q"}}], 400, "Malformed"),
    "drop": ([{"drop": {"queue": "q"}}], 400, "Malformed"),
    "live": ([{"publish": {"key": "{tx-2}a", "body": "", "live": True}}], 400, "Malformed"),
    "not live": ([{"publish": {"key": "{tx-2}a", "body": "", "live": False}}], 400, "Malformed"),
    "a time too far ahead": (
        [{"publish": {"key": "{tx-2}a", "body": "", "not_before_ms": 10**14}}],
        400,
        "OutOfRange",
    ),
    "a ttl below nothing": ([{"publish": {"key": "{tx-2}a", "body": "", "ttl_ms": -1}}], 400, "Malformed"),
    "no time to live": ([{"publish": {"key": "{tx-2}a", "body": "", "ttl_ms": 0}}], 400, "Malformed"),
    "a time of nothing": ([{"publish": {"key": "{tx-2}a", "body": "", "not_before_ms": 0}}], 400, "OutOfRange"),
    "a start with a value that it has not": (
        [{"bind": {"queue": "q", "keys": ["{tx-2}a"], "start": "earliest", "value": 5}}],
        400,
        "Malformed",
    ),
    "a ttl too long": ([{"publish": {"key": "{tx-2}a", "body": "", "ttl_ms": TTL_MS_MAX + 1}}], 400, "Malformed"),
    "a ttl of a word": ([{"publish": {"key": "{tx-2}a", "body": "", "ttl_ms": "1"}}], 400, "Malformed"),
    "no key to configure": ([{"configure": {"history_messages": 7}}], 400, "Malformed"),
    "capacity below the history": (
        [{"configure": {"keys": ["a"], "history_messages": 7, "capacity_messages": 7}}],
        400,
        "OutOfRange",
    ),
    "a direct key": ([{"configure": {"keys": ["@a"], "history_messages": 7}}], 400, "InvalidName"),
    "no body": ([{"publish": {"key": "a"}}], 400, "Malformed"),
    "far too many": ([{"publish": {"key": "a", "body": ""}}] * 1001, 400, "Malformed"),
}
REFUSED["too many"] = (
    [{"bind": {"queue": "{tx-2}q", "keys": [f"{{tx-2}}{n}-{k}" for k in range(600)]}} for n in range(2)],
    413,
    "TooLarge",
)
REFUSED["far too many queues"] = (
    [{"declare": {"queues": [f"{{tx-2}}d{n}" for n in range(55)]}}] * 999,
    413,
    "TooLarge",
)


def test_steps_that_name_too_much_are_refused_before_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a step gives twice count once, as in the library."""

    def made(*_: Any) -> None:
        raise AssertionError("a step is made")

    monkeypatch.setattr(routes_transactions, "_take", made)
    gateway: Any = SimpleNamespace()
    wanted = Transaction(steps=[{"declare": {"queues": [f"{{t}}{n}" for n in range(55)]}}] * 19)  # type: ignore[list-item]
    with pytest.raises(TooLarge, match="keys and queues of a transaction: 1045; the limit is 1000"):
        asyncio.run(routes_transactions.transact(gateway, gateway, wanted))
    routes_transactions._check_names(wanted.steps[:18])
    twice = Transaction(steps=[{"bind": {"queue": "q", "keys": ["{t}a"] * 55}}] * 19)  # type: ignore[list-item]
    routes_transactions._check_names(twice.steps)


@pytest.mark.parametrize(("steps", "status", "error"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_refused_whole(
    http: httpx.Client, steps: list[dict[str, Any]], status: int, error: str
) -> None:
    ok(http.put("/v1/queues/%7Btx-2%7Dq"))
    before = ok(http.get("/v1/queues/%7Btx-2%7Dq"))
    probe = {"bind": {"queue": "{tx-2}q", "keys": ["{tx-2}probe"]}}
    found = transact(http, *([probe, *steps] if steps else steps))
    assert (found.status_code, found.json()["type"]) == (status, f"urn:shoal:error:{error}"), found.text
    assert ok(http.get("/v1/queues/%7Btx-2%7Dq")) == before
