"""Pages of lists: made in steps, and few at a time; the same answer as their form describes."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import httpx
import pytest

from shoal_contract.names import text
from shoal_ops.http import limits, listing, models_admin, names
from tests.ops.http.test_gateway import ok


async def test_a_page_is_made_in_steps() -> None:
    """A thousand bindings took a tenth of a second, in which nobody else was answered."""
    steps = 0

    async def others() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    answer = await listing.answer("queues", range(1000), lambda number: {"queue": f"q\u00e9{number}"}, "q\u00e9")
    beside.cancel()
    assert steps >= 1000 // limits.LISTED_IN_STEP
    found = json.loads(bytes(answer.body))
    assert [one["queue"] for one in found["queues"]] == [f"q\u00e9{number}" for number in range(1000)]
    assert (found["next"], answer.media_type) == ("q\u00e9", "application/json")


async def test_an_empty_page_is_one() -> None:
    answer = await listing.answer("keys", (), lambda one: {}, "")
    assert json.loads(bytes(answer.body)) == {"keys": [], "next": ""}


@pytest.mark.parametrize("count", [1, limits.LISTED_IN_STEP, limits.LISTED_IN_STEP + 1])
async def test_no_item_is_left_out_between_steps(count: int) -> None:
    answer = await listing.answer("keys", range(count), lambda one: {"n": one}, "")
    assert json.loads(bytes(answer.body))["keys"] == [{"n": number} for number in range(count)]


def test_names_are_shown_as_everywhere() -> None:
    every = [bytes((one, other)) for one in range(256) for other in range(256)]
    every += ["\u00e9\U0001f600".encode() + bytes((one,)) + b"\xed\xa0\x80" for one in range(256)]
    for name in every:
        assert names.encoded(name) == quote(name, safe="")
        shown = names.fields("key", name)
        assert shown["key"] == text(name)
        assert ("key_encoded" in shown) is (text(name).encode() != name)


def test_pages_are_as_their_forms_say(http: httpx.Client) -> None:
    ok(http.post("/v1/queues", json={"queues": ["listed-a"], "queues_encoded": ["listed-%ff"]}))
    for queue in ("listed-a", "listed-%ff"):
        ok(http.post(f"/v1/queues/{queue}/bindings", json={"keys": ["listed-k"], "keys_encoded": ["listed-%fe"]}))
    queues = models_admin.QueuePage.model_validate(ok(http.get("/v1/queues?prefix=listed-")), extra="forbid")
    assert [(one.queue, one.queue_encoded) for one in queues.queues] == [
        ("listed-a", None),
        ("listed-\\xff", "listed-%FF"),
    ]
    keys = models_admin.KeyPage.model_validate(ok(http.get("/v1/keys?prefix=listed-")), extra="forbid")
    assert [(one.key_encoded, one.queues) for one in keys.keys] == [(None, 2), ("listed-%FE", 2)]
    members = models_admin.QueuePage.model_validate(ok(http.get("/v1/keys/listed-k/members?limit=1")), extra="forbid")
    assert len(members.queues) == 1 and members.next
    bindings = models_admin.BindingPage.model_validate(ok(http.get("/v1/queues/listed-a/bindings")), extra="forbid")
    assert sorted(one.key for one in bindings.bindings) == ["listed-\\xfe", "listed-k"]
    assert "null" not in http.get("/v1/queues/listed-a/bindings").text
