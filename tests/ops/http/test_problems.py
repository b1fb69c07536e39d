"""Every kind of error is problem+json with the error's type, its subject and its figures; and nothing has happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shoal_contract.errors import ShoalError
from shoal_contract.limits import BODY_BYTES_MAX
from shoal_ops.http import limits, problem
from shoal_runtime.http.problem import answer
from tests.ops.http.calls import ok, problem_of

LONG = "n" * 256


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("GET", "/nowhere", None, 404, "Malformed"),
        ("GET", "/v1/queues/q/nowhere", None, 404, "Malformed"),
        ("GET", "/v1/queues/", None, 404, "Malformed"),
        ("PATCH", "/v1/queues/q", None, 405, "Malformed"),
        ("PUT", f"/v1/queues/{LONG}", None, 400, "InvalidName"),
        ("PUT", "/v1/queues/q", {"expires_after_s": -1}, 400, "Malformed"),
        ("PUT", "/v1/queues/q?expires_after_s=9", None, 400, "Malformed"),
        ("PUT", "/v1/queues/known/bindings/k?begin=now", None, 400, "Malformed"),
        ("GET", "/v1/queues?prefx=a", None, 400, "Malformed"),
        ("POST", "/v1/queues/known/pull?wait_s=1", {}, 400, "Malformed"),
        ("GET", "/v1/queues/known/events?ack=auto", None, 400, "Malformed"),
        ("POST", "/v1/queues", {"queues": []}, 400, "Malformed"),
        ("POST", "/v1/queues", {"queues": ["q"], "nope": 1}, 400, "Malformed"),
        ("POST", "/v1/queues", [], 400, "Malformed"),
        ("GET", "/v1/queues/nobody", None, 404, "NoSuchQueue"),
        ("DELETE", "/v1/queues/nobody", None, 404, "NoSuchQueue"),
        ("DELETE", "/v1/queues/nobody/messages", None, 404, "NoSuchQueue"),
        ("GET", "/v1/queues/nobody/events", None, 404, "NoSuchQueue"),
        ("GET", "/v1/queues/nobody/bindings", None, 404, "NoSuchQueue"),
        ("POST", "/v1/queues/nobody/pull", {"wait_s": 20}, 404, "NoSuchQueue"),
        ("POST", "/v1/queues/nobody/bindings", {"keys": ["k"]}, 404, "NoSuchQueue"),
        ("PUT", "/v1/queues/known/bindings/@known", None, 400, "InvalidName"),
        ("PUT", "/v1/queues/known/bindings/k?start=offset&value=99", None, 400, "OutOfRange"),
        ("PUT", "/v1/queues/known/bindings/k?start=last", None, 400, "Malformed"),
        ("PUT", "/v1/queues/known/bindings/k?start=now&value=7", None, 400, "Malformed"),
        ("PUT", "/v1/queues/known/bindings/k?start=earliest&value=7", None, 400, "Malformed"),
        ("POST", "/v1/queues/known/bindings", {"keys": ["k"], "start": "ago"}, 400, "Malformed"),
        ("PUT", "/v1/queues/known", {"expires_after_s": 9}, 409, "Conflict"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "mandatory": True}, 404, "Unroutable"),
        ("PUT", "/v1/keys/k", None, 400, "Malformed"),
        ("PUT", "/v1/keys/k", {"history": 1}, 400, "Malformed"),
        ("PUT", "/v1/keys/k", {"history_messages": -1}, 400, "Malformed"),
        ("PUT", "/v1/keys/k", {"history_messages": 5, "capacity_messages": 5}, 400, "OutOfRange"),
        ("PUT", "/v1/keys/@known", {}, 400, "InvalidName"),
        ("PUT", "/v1/queues/known/farewell", {"key": "k"}, 400, "Malformed"),
        ("PUT", "/v1/queues/known/farewell", {"body": "x"}, 400, "Malformed"),
        ("PUT", "/v1/queues/known/farewell", {"key": "@", "body": "x"}, 400, "InvalidName"),
        ("PUT", "/v1/queues/known/farewell", {"key": "k", "body": "x", "after_s": 86_401}, 400, "Malformed"),
        ("PUT", "/v1/queues/known/farewell", {"key": "k", "body": "x" * (1 << 16)}, 413, "TooLarge"),
        ("PUT", "/v1/queues/nobody/farewell", {"key": "k", "body": "x"}, 404, "NoSuchQueue"),
        ("DELETE", "/v1/queues/nobody/farewell", None, 404, "NoSuchQueue"),
        ("POST", "/v1/keys/k/messages", {}, 400, "Malformed"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "not_before_ms": -1}, 400, "Malformed"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "not_before_ms": 10_000}, 400, "OutOfRange"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "not_before_ms": 0}, 400, "OutOfRange"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "ttl_ms": 0}, 400, "Malformed"),
        ("POST", "/v1/keys/k/messages/batch", {"messages": [{"body": "x"}], "ttl_ms": 0}, 400, "Malformed"),
        ("POST", "/v1/messages", {"messages": [{"key": "k", "body": "x", "ttl_ms": 0}]}, 400, "Malformed"),
        ("POST", "/v1/queues/q/messages", {"body": "x", "ttl_ms": 0}, 400, "Malformed"),
        ("POST", "/v1/queues/q/bindings", {"keys": ["k"], "start": "now", "value": 7}, 400, "Malformed"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "not_before_ms": 1_790_000_000}, 400, "OutOfRange"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "not_before_ms": "noon"}, 400, "Malformed"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "not_before_ms": 10**14}, 400, "OutOfRange"),
        ("POST", "/v1/keys/k/messages", {"body": "x", "body_base64": "eA=="}, 400, "Malformed"),
        ("POST", "/v1/keys/k/messages", {"body_base64": "not base64"}, 400, "Malformed"),
        ("POST", "/v1/keys/k/messages", {"body": "ä" * (BODY_BYTES_MAX // 2 + 1)}, 413, "TooLarge"),
        ("POST", "/v1/keys/k/messages/batch", {"messages": []}, 400, "Malformed"),
        ("POST", "/v1/queues/known/acks", {"ids": ["k"]}, 400, "Malformed"),
        ("POST", "/v1/queues/known/acks", {"ids": [f"k+{1 << 63}"]}, 400, "Malformed"),
        ("POST", "/v1/queues/known/acks", {"ranges": [{"key": "k", "first": 3, "end": 3}]}, 400, "OutOfRange"),
        ("POST", "/v1/queues/known/acks", {"ranges": [{"first": 3, "end": 4}]}, 400, "Malformed"),
        ("POST", "/v1/queues/known/nacks", {"ids": ["k"]}, 400, "Malformed"),
        ("POST", "/v1/queues/known/nacks", {"ids": ["k+1"], "delay_ms": -1}, 400, "Malformed"),
        ("POST", "/v1/queues/known/nacks", {"ids": ["k+1"], "delay_ms": 86_400_001}, 400, "Malformed"),
        ("POST", "/v1/queues/known/nacks", {"ranges": [{"key": "k", "first": 3, "end": 3}]}, 400, "OutOfRange"),
        ("PUT", "/v1/queues/known", {"dead_letter": "k"}, 400, "OutOfRange"),
        ("PUT", "/v1/queues/known", {"dead_letter": "@", "max_deliveries": 1}, 400, "InvalidName"),
        ("PUT", "/v1/queues/known", {"dead_letter": "k" * 201, "max_deliveries": 1}, 400, "Malformed"),
        ("PUT", "/v1/queues/known", {"max_deliveries": 1_000_001}, 400, "Malformed"),
        ("PUT", "/v1/queues/known", {"ack_timeout_ms": 100}, 409, "Conflict"),
        ("PUT", "/v1/queues/new", {"ack_timeout_ms": 99}, 400, "OutOfRange"),
        ("GET", f"/v1/queues?limit={limits.PAGE_MAX + 1}", None, 400, "Malformed"),
        ("GET", f"/v1/queues?prefix={LONG}", None, 400, "InvalidName"),
        ("GET", "/v1/keys/k/members?after=zz", None, 400, "Malformed"),
        ("GET", "/v1/locate", None, 400, "Malformed"),
        ("GET", "/v1/locate?" + "&".join(["key=k"] * (limits.LOCATE_KEYS_MAX + 1)), None, 413, "TooLarge"),
        ("GET", "/v1/slices/s99", None, 404, "OutOfRange"),
    ],
)
def test_a_refusal_has_its_status_and_its_type(
    http: httpx.Client, method: str, path: str, body: Any, status: int, kind: str
) -> None:
    ok(http.put("/v1/queues/known"))
    response = http.request(method, path, json=body) if body is not None else http.request(method, path)
    found = problem_of(response)
    assert (found["status"], found["type"]) == (status, f"urn:shoal:error:{kind}"), found
    assert found["detail"]
    assert ok(http.get("/v1/queues/known"))["bindings"] == 0, "bad input changes nothing"


def test_a_limit_is_named_with_the_value_that_broke_it(http: httpx.Client) -> None:
    found = problem_of(http.put(f"/v1/queues/{LONG}"))
    assert (found["limit"], found["value"]) == (255, 256)
    assert "queue name is 256 bytes; the limit is 255" in found["detail"]


def test_what_is_missing_or_no_json_is_told_in_plain_words(http: httpx.Client) -> None:
    bad = http.post("/v1/keys/k/messages", content=b"{x", headers={"Content-Type": "application/json"})
    assert problem_of(bad)["detail"].startswith("the body is not JSON: ")
    assert problem_of(bad)["detail"].endswith("(character 1)")
    assert problem_of(http.get("/v1/locate"))["detail"] == "the parameter key is missing"
    ranges = {"ranges": [{"key": "k", "first": 3}]}
    found = problem_of(http.post("/v1/queues/known/acks", json=ranges))
    assert found["detail"] == "the field ranges.0.end is missing"


def test_an_unknown_parameter_is_named_with_the_known_ones(http: httpx.Client) -> None:
    found = problem_of(http.put("/v1/queues/q?expires_after_s=9"))
    assert found["detail"] == "query parameter 'expires_after_s' is not known here: it takes none"
    assert ok(http.get("/v1/queues?prefix=no-such-prefix&limit=1&after="))["queues"] == []
    assert "it takes start, value" in problem_of(http.put("/v1/queues/known/bindings/k?begin=now"))["detail"]
    assert http.get("/v1/queues/q").status_code == 404, "bad input changes nothing"


def test_a_wrong_method_names_the_right_ones(http: httpx.Client) -> None:
    assert http.patch("/v1/queues/q").headers["allow"] == "DELETE, GET, PUT"


def test_a_body_beyond_the_limit_is_not_read(http: httpx.Client) -> None:
    big = b'"' + b"x" * limits.BODY_BYTES_MAX + b'"'

    def in_pieces() -> Iterator[bytes]:
        for start in range(0, len(big), 1 << 16):
            yield big[start : start + (1 << 16)]

    declared = http.post("/v1/keys/k/messages", content=big, headers={"content-type": "application/json"})
    assert problem_of(declared)["value"] == len(big)
    chunked = http.post("/v1/keys/k/messages", content=in_pieces(), headers={"content-type": "application/json"})
    for response in (declared, chunked):
        found = problem_of(response)
        assert (found["status"], found["limit"]) == (413, limits.BODY_BYTES_MAX)


def test_a_body_that_is_not_sent_as_json_is_told_how(http: httpx.Client) -> None:
    found = problem_of(http.post("/v1/keys/k/messages", content=b'{"body": "x"}'))
    assert "Content-Type: application/json" in found["detail"]
    cut = http.post("/v1/keys/k/messages", content=b'{"body', headers={"content-type": "application/json"})
    assert problem_of(cut)["title"] == "Malformed"


def test_every_typed_error_has_its_status() -> None:
    def leaves(base: type[ShoalError]) -> list[type[ShoalError]]:
        below = base.__subclasses__()
        return [leaf for kind in below for leaf in leaves(kind)] if below else [base]

    described = ", ".join(entry["description"] for entry in problem.responses().values())
    for kind in (leaf for leaf in leaves(ShoalError) if leaf.__module__ == ShoalError.__module__):
        assert kind.__name__ in described
        assert answer(kind("x")).status_code in problem.responses()


@pytest.mark.parametrize("value", ["bytes=--5", "bytes=5-1", "bytes", "x=1", "bytes=0-4", "bytes=" + "0-," * 100])
def test_a_range_of_the_page_is_passed_over(http: httpx.Client, value: str) -> None:
    """One that could not be read was answered as text."""
    for path in ("/", "/page/app.js"):
        whole = http.get(path)
        part = http.get(path, headers={"range": value})
        assert (part.status_code, part.content) == (200, whole.content)
        assert "accept-ranges" not in part.headers
