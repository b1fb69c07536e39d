"""What a request's JSON may cost: too many values are refused before they are parsed, and a form at its first fault."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError

from shoal_ops.http import limits, models, models_transactions
from shoal_ops.http.bounded_json import check_json
from shoal_runtime.http.problem import Refused
from tests.ops.http.calls import ok, problem_of

MAX = limits.BODY_VALUES_MAX


def listed(count: int, item: bytes = b"1") -> bytes:
    return b'{"messages":[' + b",".join([item] * count) + b"]}"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(listed(MAX), id="numbers"),
        pytest.param(listed(MAX, b"[]"), id="empty lists"),
        pytest.param(listed(MAX, b"{}"), id="empty objects"),
        pytest.param(listed(MAX, b'""'), id="empty texts"),
        pytest.param(b"[" * MAX + b"]" * MAX, id="depth"),
        pytest.param(b'{"a":{' + b",".join(b'"%d":1' % number for number in range(MAX)) + b"}}", id="fields"),
        pytest.param(b'["\\\\","\\"",' + b",".join([b'"\\\\\\""'] * MAX) + b"]", id="escapes"),
        pytest.param(b'["' + "\u0122".encode() + b'",' + b",".join([b"[]"] * MAX) + b"]", id="not only ASCII"),
    ],
)
def test_too_many_values_are_refused_unparsed(body: bytes) -> None:
    with pytest.raises(Refused, match="more than 60000 values") as caught:
        check_json(body)
    assert (caught.value.status_code, caught.value.error.limit) == (413, MAX)
    assert caught.value.error.value > MAX


@pytest.mark.parametrize(
    "text",
    [",", "[", "{", '"', "\\", '\\"', '",[', "{\\", "a,b\n"],
)
def test_what_looks_like_values_in_a_text_is_none(text: str) -> None:
    check_json(json.dumps({"body": text * MAX, "headers": {"x": text * MAX}}).encode())


def test_as_many_acks_as_one_call_takes_are_not_too_many() -> None:
    most = limits.ACKS_PER_CALL_MAX
    acks = {"ids": ["a+1"] * most, "ranges": [{"key": "k,", "first": 1, "end": 2}] * most}
    check_json(json.dumps(acks).encode())
    models.Acks.model_validate(acks)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_values_cannot_hide_in_another_encoding(encoding: str) -> None:
    with pytest.raises(Refused, match="not JSON in UTF-8"):
        check_json(('["\u0122",' + "[]," * MAX + '"\u0122"]').encode(encoding))


MANY = {str(number): number for number in range(1000)}


@pytest.mark.parametrize(
    ("form", "given", "told"),
    [
        (models.Publish, MANY | {"body": "x"}, "the field 0 is not known here: it takes body, body_base64, headers"),
        (models.Publish, {"body": "x", "headers": MANY}, "1000 headers; the limit is 64"),
        (models.Publish, {"body": "x", "headers_base64": MANY}, "1000 headers; the limit is 64"),
        (models.Publish, {"body": "x", "headers": {"a": 1, "b": 2}}, "header a is not text"),
        (models.PublishBatch, {"messages": [1] * 1000}, "should be a valid dictionary"),
        (models.PublishBatch, {"messages": [{"no": 1}] * 1000}, "the field no is not known here"),
        (models.PublishMany, {"messages": [{"headers": MANY}] * 1000}, "1000 headers"),
        (models.NameQueues, {"queues": [1] * 1000}, "valid string"),
        (models.NameQueues, {"queues_encoded": [1] * 1000}, "valid string"),
        (models.BindKeys, {"keys": [1] * 1000}, "valid string"),
        (models.BindKeys, {"keys_encoded": [1] * 1000}, "valid string"),
        (models.UnbindKeys, {"keys": [1] * 1000}, "valid string"),
        (models.UnbindKeys, {"keys_encoded": [1] * 1000}, "valid string"),
        (models.Acks, {"ids": [1] * 1000}, "valid string"),
        (models.Acks, {"ranges": [1] * 1000}, "valid dictionary"),
        (models_transactions.Transaction, {"steps": [1] * 1000}, "valid dictionary"),
        (models_transactions.Transaction, {"steps": [{"configure": {"keys": [1] * 1000}}]}, "valid string"),
    ],
)
def test_a_form_is_refused_at_its_first_fault(form: type[Any], given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(form).validate_python(given)
    (only,) = caught.value.errors()
    assert told in only["msg"]


def forms_of(form: type[Any]) -> list[type[Any]]:
    """A form's class with those that it is made of."""
    return [form, *(form_named(name) for name in TypeAdapter(form).json_schema().get("$defs", {}))]


def form_named(name: str) -> type[Any]:
    found = getattr(models, name, None) or getattr(models_transactions, name)
    assert isinstance(found, type)
    return found


def test_every_form_of_a_request_stops_at_its_first_fault(http: httpx.Client) -> None:
    operations = [one for path in ok(http.get("/openapi.json"))["paths"].values() for one in path.values()]
    bodies = [one["requestBody"]["content"]["application/json"]["schema"] for one in operations if "requestBody" in one]
    named = {name for body in bodies for name in json.dumps(body).split('"') if name.startswith("#/")}
    assert len(named) >= 14
    for form in (form_named(one.rpartition("/")[2]) for one in named):
        for one in forms_of(form):
            assert issubclass(one, models.Form), one


def test_over_http_each_is_a_problem(http: httpx.Client) -> None:
    kind = {"content-type": "application/json"}
    found = problem_of(http.post("/v1/keys/k/messages/batch", content=listed(MAX, b"[]"), headers=kind))
    assert (found["status"], found["subject"], found["limit"]) == (413, "values in the body", MAX)
    found = problem_of(http.post("/v1/keys/k/messages", json={"body": "x", "no": 1}))
    assert found["detail"].startswith("the field no is not known here: it takes body")
    found = problem_of(http.post("/v1/keys/k/messages", content='{"body": "x"}'.encode("utf-16"), headers=kind))
    assert found["detail"] == "the body is not JSON in UTF-8"
    text = "a,b;[c]{d}\n" * 20_000
    assert ok(http.post("/v1/keys/k/messages", json={"body": text}))["messages"] == 1


@pytest.mark.parametrize("digits", [limits.DIGITS_MAX + 1, 4_299, 100_000])
@pytest.mark.parametrize("many", [1, 10])
def test_a_number_of_too_many_digits_is_malformed(http: httpx.Client, digits: int, many: int) -> None:
    """Python held its lock while it read one: 960 numbers of 4,299 digits took 0.2 s of all other requests."""
    numbers = b",".join([b"9" * digits] * many)
    body = b'{"body":"x","headers":[' + numbers + b"]}"
    found = problem_of(http.post("/v1/keys/k/messages", content=body, headers={"content-type": "application/json"}))
    assert (found["status"], found["type"], found["limit"]) == (400, "urn:shoal:error:Malformed", limits.DIGITS_MAX)
    assert found["detail"] == f"the body holds a number of more than {limits.DIGITS_MAX} digits"


def test_a_pull_has_a_small_body(http: httpx.Client) -> None:
    """A large one, of blanks, stayed in memory for as long as the pull waited."""
    ok(http.put("/v1/queues/blanks"))
    body = b'{"messages":1}' + b" " * limits.PULL_BODY_BYTES_MAX
    found = problem_of(http.post("/v1/queues/blanks/pull", content=body, headers={"content-type": "application/json"}))
    assert (found["status"], found["limit"], found["value"]) == (413, limits.PULL_BODY_BYTES_MAX, len(body))


@pytest.mark.parametrize("field", ["headers", "headers_base64"])
@pytest.mark.parametrize("value", ['"\\ud800"', '"eA=="', "1"])
@pytest.mark.parametrize(
    ("path", "around"),
    [
        ("/v1/keys/k/messages", "{%s}"),
        ("/v1/keys/k/messages/batch", '{"messages":[{%s}]}'),
        ("/v1/messages", '{"messages":[{"key":"k",%s}]}'),
        ("/v1/transactions", '{"steps":[{"publish":{"key":"k",%s}}]}'),
    ],
)
def test_a_header_s_name_that_is_no_unicode_is_malformed(
    http: httpx.Client, field: str, value: str, path: str, around: str
) -> None:
    message = f'"body":"x","{field}":{{"\\ud800":{value}}}'
    bad = http.post(path, content=around % message, headers={"content-type": "application/json"})
    found = problem_of(bad)
    assert (found["status"], found["type"]) == (400, "urn:shoal:error:Malformed")
