"""Administration over HTTP on a real cluster: cluster, slices, partitions, places, pages of names, purge, figures."""

from __future__ import annotations

import time
from typing import Any

import httpx

from shoal_contract.limits import KEY_UNACKED_MAX
from tests.ops.http.calls import ok, pull
from tests.ops.http.conftest import Running


def test_the_cluster_and_its_slices(http: httpx.Client) -> None:
    cluster = ok(http.get("/v1/cluster"))
    while not cluster["healthy"]:
        cluster = ok(http.get("/v1/cluster"))
    assert [one["slice"] for one in cluster["slices"]] == ["s01", "s02"]
    assert sum(one["partitions"] for one in cluster["slices"]) == cluster["partitions"] == 4096
    runs = ok(http.get("/v1/partitions"))["runs"]
    assert [(run["first"], run["last"], run["slice"]) for run in runs] == [(0, 2047, "s01"), (2048, 4095, "s02")]
    figures = ok(http.get("/v1/slices/s01"))
    assert (figures["slice"], figures["partitions"]) == ("s01", 2048)
    assert figures["journal"]["lsn"] >= figures["checkpoint"]["lsn"] >= 0
    assert figures["memory"]["resident_bytes"] > 1 << 20


def test_keys_are_located_whatever_their_bytes(http: httpx.Client) -> None:
    found = ok(http.get("/v1/locate?key=group-7&key=%ff&key=a%2Fb"))["keys"]
    assert found[0] == {"key": "group-7", "partition": 1629, "slice": "s01"}
    assert found[1]["key_encoded"] == "%FF"
    assert found[2]["key"] == "a/b"
    assert ok(http.get("/v1/keys/group-7"))["partition"] == 1629


def test_queues_keys_members_and_bindings_in_pages(http: httpx.Client) -> None:
    queues = [f"page-{number:03d}" for number in range(25)]
    ok(http.post("/v1/queues", json={"queues": queues}))
    keys = [f"paged-{number:03d}" for number in range(12)]
    for queue in queues:
        ok(http.post(f"/v1/queues/{queue}/bindings", json={"keys": keys}))

    def pages(path: str, field: str, **more: str) -> list[list[dict[str, object]]]:
        found = []
        after = ""
        while True:
            page = ok(http.get(path, params={"limit": 10, "after": after, **more}))
            found.append(page[field])
            after = page["next"]
            if not after:
                return found

    listed = pages("/v1/queues", "queues", prefix="page")
    assert [len(page) for page in listed] == [10, 10, 5]
    assert [one["queue"] for page in listed for one in page] == queues
    assert [one for page in pages("/v1/keys", "keys", prefix="page") for one in page] == [
        {"key": key, "queues": len(queues)} for key in keys
    ]
    members = [one["queue"] for page in pages("/v1/keys/paged-003/members", "queues") for one in page]
    assert sorted(map(str, members)) == queues
    bindings = [one for page in pages("/v1/queues/page-007/bindings", "bindings") for one in page]
    assert sorted(str(one["key"]) for one in bindings) == keys
    described = ok(http.get("/v1/keys/paged-003"))
    assert (described["exists"], described["queues"], described["head"]) == (True, 25, 1)


def test_what_rests_for_the_delay_of_a_nack_is_unacked_in_the_queue_and_in_its_binding(http: httpx.Client) -> None:
    """Of a binding nothing was told, and the queue had 0: why a pull brought nothing was not to be seen."""
    ok(http.put("/v1/queues/rests"))
    messages = {"messages": [{"body": "x"}] * 1_000}
    ok(http.put("/v1/queues/rests/bindings/rests-1"))
    for _ in range(5):
        ok(http.post("/v1/keys/rests-1/messages/batch", json=messages))
    while found := pull(http, "rests", messages=1_000):
        ids = [one["id"] for one in found]
        ok(http.post("/v1/queues/rests/nacks", json={"ids": ids, "delay_ms": 3_600_000}))
    binding = ok(http.get("/v1/queues/rests/bindings"))["bindings"][0]
    assert (binding["messages"], binding["unacked"], binding["full"]) == (5_000, KEY_UNACKED_MAX, True)
    assert ok(http.get("/v1/queues/rests"))["unacked"] == KEY_UNACKED_MAX
    ok(http.delete("/v1/queues/rests/messages"))
    binding = ok(http.get("/v1/queues/rests/bindings"))["bindings"][0]
    assert (binding["unacked"], binding["full"]) == (0, False)


def test_purge_drops_the_backlog_and_keeps_the_bindings(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/purged"))
    ok(http.put("/v1/queues/purged/bindings/purge-1"))
    for body in "abc":
        ok(http.post("/v1/keys/purge-1/messages", json={"body": body}))
    binding = ok(http.get("/v1/queues/purged/bindings"))["bindings"][0]
    assert (binding["cursor"], binding["head"], binding["messages"]) == (1, 4, 3)
    assert ok(http.delete("/v1/queues/purged/messages")) == {"messages": 3}
    found = ok(http.get("/v1/queues/purged"))
    assert (found["messages"], found["bindings"]) == (0, 1)
    ok(http.post("/v1/keys/purge-1/messages", json={"body": "later"}))
    assert ok(http.post("/v1/queues/purged/pull"))["messages"][0]["offset"] == 4


def test_a_queue_tells_when_the_oldest_message_of_its_backlog_was_published(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/aged"))
    keys = [f"aged-{number}" for number in range(6)]
    ok(http.post("/v1/queues/aged/bindings", json={"keys": keys}))
    assert ok(http.get("/v1/queues/aged"))["oldest_ms"] == 0
    for key in keys:
        ok(http.post(f"/v1/keys/{key}/messages", json={"body": "x"}))
    messages: list[dict[str, Any]] = []
    while len(messages) < len(keys):
        messages += ok(http.post("/v1/queues/aged/pull", json={"messages": 100}))["messages"]
    for message in sorted(messages, key=lambda one: one["time_ms"]):
        assert ok(http.get("/v1/queues/aged"))["oldest_ms"] == message["time_ms"]
        ok(http.post("/v1/queues/aged/acks", json={"ids": [message["id"]]}))
    assert ok(http.get("/v1/queues/aged"))["oldest_ms"] == 0


def test_the_overview_follows_what_happens(http: httpx.Client, running: Running) -> None:
    ok(http.put("/v1/queues/glance"))
    ok(http.put("/v1/queues/glance/bindings/glance-1"))
    end = time.monotonic() + 60
    seen = 0.0
    while not seen:
        assert time.monotonic() < end
        ok(http.post("/v1/keys/glance-1/messages", json={"body": "x"}))
        overview = ok(http.get("/v1/overview?samples=5"))
        seen = overview["rates"]["publishes"]
    for one in overview["slices"]:
        assert one["state"] == "serving"
        assert all(len(history) == len(overview["times_ms"]) for history in one["history"].values())
    assert len(overview["times_ms"]) <= 5


def test_metrics_have_routes_and_no_names(http: httpx.Client) -> None:
    for number in range(5):
        http.get(f"/v1/queues/secret-{number}")
        http.get(f"/nowhere/secret-{number}")
        http.request(f"VERB{number}", "/v1/queues")
    deadline_s = time.monotonic() + 30
    while "/v1/queues/{queue}" not in (text := http.get("/metrics").text):  # Said again for a moment.
        assert time.monotonic() < deadline_s
    assert "secret" not in text
    assert "VERB" not in text
    assert 'shoal_admin_requests_total{method="GET",route="/v1/queues/{queue}",status="4xx"}' in text
    assert 'shoal_admin_request_seconds_bucket{le="0.01",route="/v1/queues/{queue}"}' in text
    assert "# TYPE shoal_admin_swept_parts_total counter" in text
    assert "\nshoal_admin_swept_dropped_parts_total 0.0" in text
    assert 'route="none"' in text


def test_a_running_gateway_is_healthy_and_ready(http: httpx.Client) -> None:
    assert ok(http.get("/healthz")) == {"healthy": True}
    assert ok(http.get("/readyz")) == {"ready": True}


def test_many_queues_are_purged_and_dropped_in_one_request_each(http: httpx.Client) -> None:
    queues = [f"storm-{number}" for number in range(5)]
    ok(http.post("/v1/queues", json={"queues": queues}))
    for queue in queues[:2]:
        ok(http.post(f"/v1/queues/{queue}/messages", json={"body": "x"}))
    purged = ok(http.post("/v1/purge", json={"queues": queues[:1], "queues_encoded": ["storm%2D2"]}))
    assert purged == {"queues": [{"queue": "storm-0", "messages": 1}, {"queue": "storm-2", "messages": 0}]}
    refused = http.post("/v1/drop", json={"queues": ["nobody", *queues[:3]], "if_empty": True})
    found = refused.json()
    assert refused.status_code == found["status"] == 404 and found["subject"] == "nobody"
    assert {one["name"]: one["type"] for one in found["failed"]} == {
        "nobody": "urn:shoal:error:NoSuchQueue",
        "storm-1": "urn:shoal:error:Conflict",
    }
    assert [http.get(f"/v1/queues/{queue}").status_code for queue in queues[:3]] == [404, 200, 404]
    assert http.delete("/v1/queues/storm-1?if_empty=true").status_code == 409
    assert http.delete("/v1/queues/storm-1?if_unused=true").status_code == 204
    assert ok(http.post("/v1/drop", json={"queues": queues[3:], "if_unused": True})) == {"dropped": 2}
    assert http.post("/v1/drop", json={}).status_code == 400
    assert http.post("/v1/purge", json={"queues": ["x"], "if_empty": True}).status_code == 400
