"""Queues, bindings and messages by plain HTTP on a real cluster: group chat, names of any bytes, receipts, leases."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.ops.http.calls import ok, pull
from tests.ops.http.conftest import Running

ODD_NAMES = (b"a/b", b"a b+c%", "ü-日本".encode(), b"?x#y", b"@home", b"\xff", b"\x00", b"\xe9t\xc3", b"../x")


def test_headers_that_only_shoal_sets_are_refused(http: httpx.Client) -> None:
    for form in ({"headers": {"shoal-hops": "8"}}, {"headers_base64": {"shoal-key": "OA=="}}):
        found = http.post("/v1/keys/own-headers/messages", json={"body": "x", **form})
        assert (found.status_code, found.json()["type"]) == (400, "urn:shoal:error:InvalidName"), found.text
        assert "begins with shoal-" in found.json()["detail"]


def test_nacked_messages_come_again_and_poison_goes_to_the_dead_letter_key(http: httpx.Client) -> None:
    options = {"ack_timeout_ms": 60_000, "max_deliveries": 3, "dead_letter": "jobs-failed"}
    ok(http.put("/v1/queues/jobs-dead"))
    ok(http.put("/v1/queues/jobs-dead/bindings/jobs-failed"))
    ok(http.put("/v1/queues/jobs", json=options))
    ok(http.put("/v1/queues/jobs/bindings/jobs-new"))
    ok(http.put("/v1/queues/jobs", json=options))
    assert ok(http.get("/v1/queues/jobs"))["options"] == {"expires_after_s": 0, "exclusive": "none", **options}
    ok(http.post("/v1/keys/jobs-new/messages", json={"body": "poison"}))
    (found,) = pull(http, "jobs", lease_ms=600_000)
    assert pull(http, "jobs") == []
    ok(http.post("/v1/queues/jobs/nacks", json={"ids": [found["id"]]}))
    (found,) = pull(http, "jobs", lease_ms=600_000, wait_s=20)
    assert found["redelivered"] == 1
    began = time.monotonic()
    back = {"ranges": [{"key": "jobs-new", "first": 1, "end": 2}], "delay_ms": 700}
    ok(http.post("/v1/queues/jobs/nacks", json=back))
    (found,) = pull(http, "jobs", lease_ms=600_000, wait_s=20)
    assert found["redelivered"] == 2 and time.monotonic() - began >= 0.7
    ok(http.post("/v1/queues/jobs/nacks", json={"ids": [found["id"]], "delay_ms": 86_400_000}))
    (dead,) = pull(http, "jobs-dead", wait_s=20)
    assert (dead["body"], dead["key"]) == ("poison", "jobs-failed")
    assert dead["headers"]["shoal-queue"] == "jobs" and dead["headers"]["shoal-deliveries"] == "3"
    ok(http.post("/v1/queues/jobs/nacks", json={"ids": [found["id"]]}))
    assert pull(http, "jobs") == []


def test_a_dead_letter_key_of_any_bytes_is_named_percent_encoded(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/odd-jobs", json={"max_deliveries": 1, "dead_letter_encoded": "%FF%00"}))
    options = ok(http.get("/v1/queues/odd-jobs"))["options"]
    assert (options["dead_letter"], options["dead_letter_encoded"]) == ("\\xff\x00", "%FF%00")


def test_a_group_chat_works_over_http(http: httpx.Client) -> None:
    assert ok(http.post("/v1/queues", json={"queues": ["chat-anna", "chat-ben", "chat-cleo"]})) == {"declared": 3}
    for queue in ("chat-anna", "chat-ben"):
        bound = ok(http.post(f"/v1/queues/{queue}/bindings", json={"keys": ["chat-7", "chat-news"]}))
        assert {one["key"]: one["offset"] for one in bound["offsets"]} == {"chat-7": 1, "chat-news": 1}
    receipt = ok(http.post("/v1/keys/chat-7/messages", json={"body": "hello", "headers": {"from": "anna"}}))
    assert receipt == {"key": "chat-7", "offset": 1, "queues": 2, "consumed": 0, "messages": 1, "delayed": False}
    batch = {"messages": [{"body": "two"}, {"body_base64": base64.b64encode(b"\xff").decode()}]}
    assert ok(http.post("/v1/keys/chat-7/messages/batch", json=batch))["offset"] == 2
    assert ok(http.put("/v1/queues/chat-cleo/bindings/chat-7?start=last&value=1"))["offsets"][0]["offset"] == 3
    again = ok(http.put("/v1/queues/chat-cleo/bindings/chat-7?start=offset&value=1"))
    assert again["offsets"] == [{"key": "chat-7", "offset": 3, "recovered": True, "bound_before": True}]

    found = pull(http, "chat-ben", messages=10)
    assert [(one["id"], one.get("body"), one.get("body_base64")) for one in found] == [
        ("chat-7+1", "hello", None),
        ("chat-7+2", "two", None),
        ("chat-7+3", None, "/w=="),
    ]
    assert found[0]["headers"] == {"from": "anna"}
    assert pull(http, "chat-ben") == [], "they are leased"
    ok(http.post("/v1/queues/chat-ben/acks", json={"ids": ["chat-7+1", "chat-7+2"]}))
    assert ok(http.get("/v1/queues/chat-ben"))["messages"] == 1
    ok(http.post("/v1/queues/chat-ben/acks", json={"ranges": [{"key": "chat-7", "first": 3, "end": 4}]}))
    assert ok(http.get("/v1/queues/chat-ben"))["messages"] == 0
    assert len(ok(http.get("/v1/queues/chat-anna/messages"))["messages"]) == 3, "peek takes nothing"
    assert len(ok(http.get("/v1/queues/chat-anna/messages?messages=1"))["messages"]) == 1

    assert ok(http.delete("/v1/queues/chat-anna/bindings/chat-7?discard=true"))["offsets"][0]["offset"] == 4
    unbound = ok(http.post("/v1/queues/chat-anna/unbind", json={"keys": ["chat-7", "chat-news"]}))
    assert {one["key"]: one["offset"] for one in unbound["offsets"]} == {"chat-7": 0, "chat-news": 1}
    assert ok(http.get("/v1/queues/chat-anna"))["messages"] == 0
    ok(http.delete("/v1/queues/chat-anna"))
    assert http.get("/v1/queues/chat-anna").status_code == 404


def test_publish_to_many_keys_answers_each(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/many-a"))
    ok(http.put("/v1/queues/many-a/bindings/many-1"))
    wanted = [{"key": "many-1", "body": "x"}, {"key": "many-2", "body": "y", "mandatory": True}]
    found = ok(http.post("/v1/messages", json={"messages": wanted}))
    assert found["published"] == 1
    assert found["outcomes"][0]["receipt"]["queues"] == 1
    assert found["outcomes"][1]["problem"]["type"] == "urn:shoal:error:Unroutable"
    bad = {"messages": [{"key": "many-1", "body": "x"}, {"key": "k" * 255, "body_base64": "?"}]}
    assert http.post("/v1/messages", json=bad).status_code == 400
    assert ok(http.get("/v1/queues/many-a"))["messages"] == 1, "bad input publishes nothing"


def test_a_queue_says_farewell(http: httpx.Client) -> None:
    ok(http.post("/v1/queues", json={"queues": ["bye-a", "bye-b"]}))
    ok(http.put("/v1/queues/bye-b/bindings/bye-1"))
    wanted = {"key": "bye-1", "body": "a went offline", "headers": {"who": "a"}}
    assert "farewell" not in ok(http.get("/v1/queues/bye-a"))
    assert http.put("/v1/queues/bye-a/farewell", json=wanted | {"after_s": 86_400}).status_code == 204
    kept = ok(http.get("/v1/queues/bye-a"))["farewell"]
    assert kept.pop("due_ms") > (time.time() + 86_000) * 1000
    assert kept == {"key": "bye-1", "after_s": 86_400}
    odd = {"key_encoded": "%FF", "body": "x", "after_s": 86_400}
    assert http.put("/v1/queues/bye-a/farewell", json=odd).status_code == 204
    assert ok(http.get("/v1/queues/bye-a"))["farewell"]["key_encoded"] == "%FF"
    for _ in range(2):
        assert http.delete("/v1/queues/bye-a/farewell").status_code == 204
    assert http.put("/v1/queues/bye-a/farewell", json=wanted).status_code == 204
    (found,) = pull(http, "bye-b", wait_s=20)
    assert (found["id"], found["body"], found["headers"]) == ("bye-1+1", "a went offline", {"who": "a"})


def test_publishes_wait_for_their_time(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/wait-a"))
    ok(http.put("/v1/queues/wait-a/bindings/wait-1"))
    later, past = int(time.time() * 1000) + 3_600_000, 1_000_000_000_000
    for not_before_ms in (later, past):
        receipt = ok(http.post("/v1/keys/wait-1/messages", json={"body": "1", "not_before_ms": not_before_ms}))
        assert (receipt["offset"], receipt["queues"], receipt["delayed"]) == (0, 0, True)
        batch = {"messages": [{"body": "2"}], "not_before_ms": not_before_ms}
        assert ok(http.post("/v1/keys/wait-1/messages/batch", json=batch))["delayed"]
        many = {"messages": [{"key": "wait-1", "body": "3", "not_before_ms": not_before_ms}]}
        assert ok(http.post("/v1/messages", json=many))["outcomes"][0]["receipt"]["delayed"]
    found: list[str] = []
    while len(found) < 3:
        found += [one["body"] for one in pull(http, "wait-a", wait_s=10)]
    assert found == ["1", "2", "3"], "those of the past; the others wait"
    assert not ok(http.post("/v1/keys/wait-1/messages", json={"body": "x"}))["delayed"]


def test_a_key_keeps_a_history_and_has_a_capacity(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/old-a"))
    assert http.put("/v1/keys/old-1", json={"history_messages": 2, "capacity_messages": 3}).status_code == 204
    for number in range(2):
        receipt = ok(http.post("/v1/keys/old-1/messages", json={"body": str(number)}))
        assert (receipt["offset"], receipt["queues"]) == (number + 1, 0)
    full = http.post("/v1/keys/old-1/messages/batch", json={"messages": [{"body": "x"}] * 3})
    assert (full.status_code, full.json()["subject"], full.json()["limit"]) == (429, "old-1", 3)
    ok(http.put("/v1/queues/old-a/bindings/old-1?start=earliest"))
    assert [one["body"] for one in pull(http, "old-a")] == ["0", "1"]
    assert http.put("/v1/keys/old-1", json={}).status_code == 204


def test_a_repeat_with_an_idempotency_key_is_stored_once(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/orders"))
    ok(http.put("/v1/queues/orders/bindings/shop"))
    once, shop = {"Idempotency-Key": "order-4711"}, "/v1/keys/shop/messages"
    first = ok(http.post(shop, json={"body": "tea", "headers": {"a": "1", "b": "2"}}, headers=once))
    assert ok(http.post(shop, json={"headers": {"b": "2", "a": "1"}, "body": "tea"}, headers=once)) == first
    batch = {"messages": [{"body": "1"}, {"body": "2"}]}
    assert ok(http.post(f"{shop}/batch", json=batch, headers=once)) == ok(
        http.post(f"{shop}/batch", json=batch, headers=once)
    )
    for _ in range(2):
        ok(http.post("/v1/queues/orders/messages", json={"body": "sent"}, headers=once))
    ok(http.post(shop, json={"body": "coffee"}, headers=once))
    found = sorted(one["body"] for one in pull(http, "orders", messages=100))
    assert found == ["1", "2", "coffee", "sent", "tea"]


def test_an_idempotency_key_that_cannot_be_is_refused(http: httpx.Client) -> None:
    for key, body in (("x" * 256, {"body": "x"}), ("1", {"body": "x", "live": True})):
        found = http.post("/v1/keys/shop/messages", json=body, headers={"Idempotency-Key": key})
        assert found.status_code == 400 and "dempotency" in found.json()["detail"], found.text


@pytest.mark.parametrize(
    ("method", "path", "form"),
    [
        ("POST", "/v1/messages", {"messages": [{"key": "once", "body": "x"}]}),
        ("POST", "/v1/transactions", {"steps": [{"publish": {"key": "once", "body": "x"}}]}),
        ("PUT", "/v1/queues/once/farewell", {"key": "once", "body": "x"}),
    ],
)
def test_an_idempotency_key_is_refused_where_a_repeat_would_be_done_again(
    http: httpx.Client, method: str, path: str, form: dict[str, Any]
) -> None:
    ok(http.put("/v1/queues/once"))
    ok(http.put("/v1/queues/once/bindings/once"))
    found = http.request(method, path, json=form, headers={"Idempotency-Key": "order-4711"})
    assert found.status_code == 400 and "Idempotency-Key is for publishes to one key" in found.json()["detail"]
    described = ok(http.get("/v1/queues/once"))
    assert described["messages"] == 0 and "farewell" not in described, "nothing was done"
    ok(http.request(method, path, json=form))
    ok(http.delete("/v1/queues/once"))


def test_send_goes_to_one_queue(http: httpx.Client) -> None:
    assert http.post("/v1/queues/nobody/messages", json={"body": "x"}).status_code == 404
    ok(http.put("/v1/queues/direct"))
    assert ok(http.post("/v1/queues/direct/messages", json={"body": "for you"}))["key"] == "@direct"
    assert [one["body"] for one in pull(http, "direct")] == ["for you"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_may_hold_any_bytes(http: httpx.Client, name: bytes) -> None:
    queue, key = quote(b"q-" + name, safe=""), quote(b"k-" + name, safe="")
    ok(http.put(f"/v1/queues/{queue}"))
    offset = ok(http.put(f"/v1/queues/{queue}/bindings/{key}"))["offsets"][0]
    receipt = ok(http.post(f"/v1/keys/{key}/messages", json={"body": "x"}))
    assert receipt["queues"] == 1
    assert {field: receipt[field] for field in offset if field.startswith("key")} == {
        field: value for field, value in offset.items() if field.startswith("key")
    }
    message = pull(http, queue)[0]
    ok(http.post(f"/v1/queues/{queue}/acks", json={"ids": [message["id"]]}))
    described = ok(http.get(f"/v1/queues/{queue}"))
    assert described["messages"] == 0
    if "queue_encoded" in described:
        again = ok(http.post("/v1/queues", json={"queues_encoded": [described["queue_encoded"]]}))
        assert again == {"declared": 1}
    else:
        ok(http.post("/v1/queues", json={"queues": [described["queue"]]}))
    ok(http.delete(f"/v1/queues/{queue}"))


def test_what_is_not_acked_comes_again_when_its_lease_ends(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/lease"))
    ok(http.post("/v1/queues/lease/messages", json={"body": "x"}))
    assert [one["redelivered"] for one in pull(http, "lease", lease_ms=2_000)] == [0]
    began = time.monotonic()
    assert [one["redelivered"] for one in pull(http, "lease", wait_s=40)] == [1]
    assert time.monotonic() - began < 30, "it was woken, while the backlog stayed the same"


def test_a_pull_waits_for_the_first_message(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/wait"))
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(pull(http, "wait", wait_s=50)))
    waiting.start()
    while waiting_pulls(http) == 0:
        time.sleep(0.02)
    ok(http.post("/v1/queues/wait/messages", json={"body": "x"}))
    waiting.join(60)
    assert [one["body"] for one in found] == ["x"]
    began = time.monotonic()
    assert pull(http, "wait", wait_s=0.3) == []
    assert time.monotonic() - began >= 0.3


def test_a_caller_who_leaves_while_waiting_takes_nothing(http: httpx.Client, running: Running) -> None:
    ok(http.put("/v1/queues/leaver"))
    with httpx.Client(base_url=running.url, trust_env=False, timeout=1) as leaver, pytest.raises(httpx.ReadTimeout):
        pull(leaver, "leaver", wait_s=50)
    while waiting_pulls(http):
        time.sleep(0.02)
    ok(http.post("/v1/queues/leaver/messages", json={"body": "x"}))
    assert [one["redelivered"] for one in pull(http, "leaver")] == [0]


def test_a_queue_dropped_while_waited_for_is_said_so(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/dropped"))
    found: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: found.append(http.post("/v1/queues/dropped/pull", json={"wait_s": 50})))
    waiting.start()
    while waiting_pulls(http) == 0:
        time.sleep(0.02)
    ok(http.delete("/v1/queues/dropped"))
    waiting.join(60)
    assert found[0].status_code == 404


def waiting_pulls(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("shoal_admin_waiting_pulls ")))


def test_a_pull_tells_what_a_full_key_gave_up(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/gap"))
    options = {"capacity_messages": 2, "policy": "drop_oldest"}
    ok(http.put("/v1/keys/gap-1", json=options))
    ok(http.put("/v1/queues/gap/bindings/gap-1"))
    for number in range(5):
        ok(http.post("/v1/keys/gap-1/messages", json={"body": str(number)}))
    found = ok(http.post("/v1/queues/gap/pull", json={}))
    assert [one["body"] for one in found["messages"]] == ["3", "4"]
    assert found["gaps"] == [{"key": "gap-1", "first": 1, "end": 4, "why": "dropped"}]
    refused = http.put("/v1/keys/gap-1", json={"policy": "drop_oldest"})
    assert refused.status_code == 400 and "has no capacity" in refused.json()["detail"]


def test_a_message_with_a_ttl_is_not_delivered_once_it_is_over(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/ttl"))
    ok(http.put("/v1/queues/ttl/bindings/ttl-1"))
    ok(http.post("/v1/keys/ttl-1/messages", json={"body": "soon over", "ttl_ms": 1}))
    batch = {"messages": [{"body": "a year"}], "ttl_ms": 31_536_000_000}
    ok(http.post("/v1/keys/ttl-1/messages/batch", json=batch))
    while not (found := ok(http.post("/v1/queues/ttl/pull", json={"lease_ms": 1, "wait_s": 5}))).get("gaps"):
        time.sleep(0.02)
    assert found["gaps"] == [{"key": "ttl-1", "first": 1, "end": 2, "why": "expired"}]
    (message,) = pull(http, "ttl", wait_s=30)
    assert message["expires_ms"] == message["time_ms"] + 31_536_000_000
    many = {"messages": [{"key": "ttl-1", "body": "x", "live": True, "ttl_ms": 5}]}
    (outcome,) = ok(http.post("/v1/messages", json=many))["outcomes"]
    assert "ttl and live" in outcome["problem"]["detail"]
    assert http.post("/v1/keys/ttl-1/messages", json={"body": "x", "ttl_ms": -1}).status_code == 400
