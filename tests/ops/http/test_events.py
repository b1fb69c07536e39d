"""Server-sent events on a real cluster: push, nothing lost over a reconnect, acks, competing and slow readers."""

from __future__ import annotations

import threading
import time

import httpx

from shoal_ops.http import limits
from tests.ops.http.calls import ok, streaming
from tests.ops.http.conftest import Running


def publish(http: httpx.Client, key: str, *bodies: str) -> None:
    ok(http.post(f"/v1/keys/{key}/messages/batch", json={"messages": [{"body": body} for body in bodies]}))


def declare(http: httpx.Client, queue: str, key: str) -> None:
    ok(http.put(f"/v1/queues/{queue}"))
    ok(http.put(f"/v1/queues/{queue}/bindings/{key}"))


def test_messages_are_pushed_and_nothing_is_lost_over_a_reconnect(http: httpx.Client) -> None:
    declare(http, "push-a", "push-1")
    publish(http, "push-1", "before")
    with streaming(http, "push-a") as events:
        assert next(events)["body"] == "before"
        publish(http, "push-1", "two", "three")
        found = [next(events), next(events)]
        assert [one["id"] for one in found] == ["push-1+2", "push-1+3"]
        described = ok(http.get("/v1/queues/push-a"))
        assert (described["attached_sessions"], described["unacked"]) == (1, 3)
        ok(http.post("/v1/queues/push-a/acks", json={"ids": ["push-1+2"]}))
    while ok(http.get("/v1/queues/push-a"))["attached_sessions"]:
        time.sleep(0.02)
    publish(http, "push-1", "four")
    with streaming(http, "push-a") as events:
        again = [next(events) for _ in range(3)]
    assert [one["body"] for one in again] == ["before", "three", "four"], "all but what was acked"
    assert [one["redelivered"] for one in again] == [1, 1, 0]


def test_live_messages_are_pushed_without_an_id_and_leave_nothing(http: httpx.Client) -> None:
    declare(http, "push-live", "push-live-1")
    receipt = {"key": "push-live-1", "offset": 0, "queues": 1, "consumed": 0, "messages": 1, "delayed": False}
    assert ok(http.post("/v1/keys/push-live-1/messages", json={"body": "nobody", "live": True})) == receipt
    with streaming(http, "push-live", "auto") as events:
        ok(http.post("/v1/keys/push-live-1/messages", json={"body": "one", "live": True}))
        batch = {"messages": [{"body": "two"}, {"body": "three"}], "live": True}
        assert ok(http.post("/v1/keys/push-live-1/messages/batch", json=batch))["offset"] == 0
        many = {"messages": [{"key": "push-live-1", "body": "four", "live": True}]}
        assert ok(http.post("/v1/messages", json=many))["published"] == 1
        assert ok(http.post("/v1/queues/push-live/messages", json={"body": "five", "live": True}))["consumed"] == 1
        found = [next(events) for _ in range(5)]
    assert [one["body"] for one in found if one["key"] == "push-live-1"] == ["one", "two", "three", "four"]
    assert sorted(one["body"] for one in found)[0] == "five", "its key is on another slice: there is no order"
    assert all(one["live"] and "id" not in one and "offset" not in one for one in found)
    assert ok(http.get("/v1/queues/push-live"))["messages"] == 0


def test_a_stream_of_an_exclusive_queue_ends_when_another_one_takes_over(http: httpx.Client) -> None:
    options = {"exclusive": "newest"}
    ok(http.put("/v1/queues/push-one", json=options))
    ok(http.put("/v1/queues/push-one/bindings/push-one-1"))
    assert ok(http.get("/v1/queues/push-one"))["options"]["exclusive"] == "newest"
    with streaming(http, "push-one") as first:
        publish(http, "push-one-1", "a")
        assert next(first)["body"] == "a"
        with streaming(http, "push-one") as second:
            assert next(second)["body"] == "a"
            assert next(first)["type"] == "urn:shoal:error:Conflict"
            assert next(first, None) is None, "it has ended"
            assert http.post("/v1/queues/push-one/pull", json={}).status_code == 409
            publish(http, "push-one-1", "b")
            assert next(second)["body"] == "b"


def test_streams_of_a_dropped_queue_end_and_say_so(http: httpx.Client) -> None:
    declare(http, "push-gone", "push-gone-1")
    declare(http, "push-stays", "push-stays-1")
    with (
        streaming(http, "push-gone") as first,
        streaming(http, "push-gone") as second,
        streaming(http, "push-stays") as other,
    ):
        publish(http, "push-gone-1", "a")
        ok(http.delete("/v1/queues/push-gone"))
        for stream in (first, second):
            *messages, last = stream
            assert [one["body"] for one in messages] in (["a"], [])
            assert (last["type"], last["subject"]) == ("urn:shoal:error:NoSuchQueue", "push-gone")
        assert http.get("/v1/queues/push-gone/events").status_code == 404, "so a browser does not ask again"
        publish(http, "push-stays-1", "b")
        assert next(other)["body"] == "b"
    declare(http, "push-gone", "push-gone-1")
    with streaming(http, "push-gone") as again:
        publish(http, "push-gone-1", "c")
        assert next(again)["body"] == "c"
    assert 'shoal_admin_streams_ended_total{reason="dropped"} 2.0' in http.get("/metrics").text


def test_a_second_stream_of_a_queue_that_its_oldest_consumer_keeps_is_refused(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/push-oldest", json={"exclusive": "oldest"}))
    with streaming(http, "push-oldest"):
        refused = http.get("/v1/queues/push-oldest/events")
        assert (refused.status_code, refused.json()["subject"]) == (409, "push-oldest")


def test_auto_ack_takes_what_was_written_to_a_stream_that_stands(http: httpx.Client) -> None:
    declare(http, "auto-a", "auto-1")
    publish(http, "auto-1", *map(str, range(20)))
    with streaming(http, "auto-a", "auto") as events:
        assert [next(events)["body"] for _ in range(20)] == [str(number) for number in range(20)]
        began = time.monotonic()
        while ok(http.get("/v1/queues/auto-a"))["messages"]:
            time.sleep(0.02)
        assert time.monotonic() - began < limits.HEARTBEAT_S / 2, "acks do not wait for the next event"


def test_a_stream_and_a_pull_compete_and_acks_count_for_either(http: httpx.Client) -> None:
    declare(http, "both-a", "both-1")
    publish(http, "both-1", "pulled")
    assert len(ok(http.post("/v1/queues/both-a/pull"))["messages"]) == 1
    with streaming(http, "both-a") as events:
        publish(http, "both-1", "pushed")
        assert next(events)["body"] == "pushed"
        ok(http.post("/v1/queues/both-a/acks", json={"ranges": [{"key": "both-1", "first": 1, "end": 3}]}))
        assert ok(http.get("/v1/queues/both-a"))["messages"] == 0


def test_what_is_nacked_or_not_acked_in_time_comes_again_to_the_only_stream(http: httpx.Client) -> None:
    ok(http.put("/v1/queues/again-a", json={"ack_timeout_ms": 1000}))
    ok(http.put("/v1/queues/again-a/bindings/again-1"))
    publish(http, "again-1", "one")
    with streaming(http, "again-a") as events:
        assert next(events)["redelivered"] == 0
        ok(http.post("/v1/queues/again-a/nacks", json={"ids": ["again-1+1"]}))
        assert [next(events)["redelivered"] for _ in range(2)] == [1, 2]
        ok(http.post("/v1/queues/again-a/acks", json={"ids": ["again-1+1"]}))
        assert ok(http.get("/v1/queues/again-a"))["messages"] == 0


def test_streams_of_one_queue_share_it_and_are_bounded(http: httpx.Client) -> None:
    declare(http, "share-a", "share-1")
    with streaming(http, "share-a") as first, streaming(http, "share-a") as second:
        publish(http, "share-1", "one")
        publish(http, "share-1", "two")
        assert {next(first)["body"], next(second)["body"]} == {"one", "two"}
        kept = [http.stream("GET", "/v1/queues/share-a/events") for _ in range(limits.STREAMS_PER_QUEUE_MAX - 2)]
        try:
            assert [stream.__enter__().status_code for stream in kept] == [200] * len(kept)
            refused = http.get("/v1/queues/share-a/events")
            assert (refused.status_code, refused.json()["limit"]) == (429, limits.STREAMS_PER_QUEUE_MAX)
        finally:
            for stream in kept:
                stream.__exit__(None, None, None)


def test_a_slow_reader_holds_only_its_window(http: httpx.Client) -> None:
    declare(http, "slow-a", "slow-1")
    body = "x" * 50_000
    with streaming(http, "slow-a"):
        for _ in range(10):
            publish(http, "slow-1", *[body] * 20)
        assert ok(http.get("/v1/queues/slow-a"))["messages"] == 200
        held = next(
            float(line.split()[1])
            for line in http.get("/metrics").text.splitlines()
            if line.startswith("shoal_admin_stream_held_bytes ")
        )
        assert held <= limits.WINDOW_BYTES + 20 * len(body) * 2, "a window, and the chunk that passed it"


def test_a_dropped_queue_leaves_its_stream_silent_and_others_alive(http: httpx.Client) -> None:
    declare(http, "gone-a", "gone-1")
    declare(http, "stays-a", "gone-1")
    with streaming(http, "gone-a"), streaming(http, "stays-a") as events:
        ok(http.delete("/v1/queues/gone-a"))
        publish(http, "gone-1", "x")
        assert next(events)["body"] == "x"


def test_many_streams_are_served_at_once(running: Running, http: httpx.Client) -> None:
    queues = [f"crowd-{number}" for number in range(40)]
    ok(http.post("/v1/queues", json={"queues": queues}))
    for queue in queues:
        ok(http.put(f"/v1/queues/{queue}/bindings/crowd"))
    found: list[str] = []

    def follow(queue: str, stands: threading.Barrier) -> None:
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as own, streaming(own, queue) as events:
            stands.wait(60)
            found.append(next(events)["body"])

    stands = threading.Barrier(len(queues) + 1)
    readers = [threading.Thread(target=follow, args=(queue, stands)) for queue in queues]
    for reader in readers:
        reader.start()
    stands.wait(60)
    publish(http, "crowd", "to all")
    for reader in readers:
        reader.join(60)
    assert found == ["to all"] * len(queues)


def test_a_stream_tells_what_a_full_key_gave_up_before_what_follows(http: httpx.Client) -> None:
    ok(http.put("/v1/keys/push-gap-1", json={"capacity_messages": 2, "policy": "drop_oldest"}))
    declare(http, "push-gap", "push-gap-1")
    for number in range(5):
        publish(http, "push-gap-1", str(number))
    with streaming(http, "push-gap") as events:
        assert next(events) == {"key": "push-gap-1", "first": 1, "end": 4, "why": "dropped"}
        assert [next(events)["body"], next(events)["body"]] == ["3", "4"]
