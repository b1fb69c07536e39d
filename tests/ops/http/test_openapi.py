"""The OpenAPI: an example for everything, and made-up calls, good and bad, are answered as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from shoal_ops.http.application import new_application
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.token import Token
from tests.folders import NewFolder
from tests.ops.http.conftest import Running, cluster, said, started
from tests.repository import with_tests

TOKEN = "a-token-for-made-up-calls"
EXAMPLES_MAX = "1"
"""Calls made up for each operation, besides those that cover each of its parameters."""

CONFIGURATION = """
[checks.negative_data_rejection]
# With 413 and 431: what is made up may be too long.
expected-statuses = [400, 401, 403, 404, 405, 409, 413, 422, 429, 431, "5xx"]
"""


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_everything_has_a_description_and_an_example(http: httpx.Client) -> None:
    schema = http.get("/openapi.json").json()

    def has_example(content: dict[str, Any]) -> bool:
        form = content.get("schema", {})
        name = re.findall(r"schemas/(\w+)", str(form))
        of_form = schema["components"]["schemas"].get(name[0], {}) if name else form
        return "example" in content or "examples" in of_form

    seen = 0
    for name, operation in operations(schema):
        seen += 1
        assert operation["description"], name
        for parameter in operation.get("parameters", ()):
            form = parameter["schema"]
            assert "examples" in form or "enum" in form or "default" in form, f"{name}: {parameter['name']}"
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert has_example(content), f"{name}: its body"
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                assert has_example(content), f"{name}: {status}"
    assert seen >= 25


def test_what_is_stored_and_not_acted_on_yet_is_said_so(http: httpx.Client) -> None:
    options = http.get("/openapi.json").json()["components"]["schemas"]["QueueOptions"]["properties"]
    assert "0: durable" in options["expires_after_s"]["description"]


async def test_the_document_is_made_once_and_not_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway: Any = SimpleNamespace(metrics=Metrics(), is_leaving=lambda: False)
    application = new_application(gateway, Token())

    def render(self: JSONResponse, content: Any) -> bytes:
        raise AssertionError("the document is made anew")

    monkeypatch.setattr(JSONResponse, "render", render)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost") as http:
        answers = [await http.get("/openapi.json") for _ in range(2)]
        assert (await http.head("/openapi.json")).status_code == 200
    assert answers[0].json()["paths"] and answers[0].content == answers[1].content
    assert answers[0].headers["content-type"] == "application/json"


@pytest.fixture(scope="module")
def of_its_own(module_folder: NewFolder) -> Iterator[Running]:
    """A cluster for made-up names alone: where their keys vanish, offsets of other tests' keys do not begin at 1."""
    with cluster(module_folder("made-up"), slices=1) as running:
        yield running


@pytest.mark.parametrize(
    ("which", "calls_min"),
    [
        (["--exclude-path-regex", "(/events|/v1/transactions)$"], 500),
        (["--include-path-regex", "/v1/transactions$"], 300),
    ],
    ids=["all but transactions", "transactions"],
)
def test_made_up_calls_are_answered_as_described(
    of_its_own: Running, tmp_path: Path, which: list[str], calls_min: int
) -> None:
    """All checks of schemathesis but one: that whatever fits the schema is taken. Names are limited in bytes, a body is
    text or base64, keys with @ are reserved: JSON schema can say none of it. Event streams do not end: left out."""
    arguments = ["admin", "--listen", "127.0.0.1:0", "--at", of_its_own.at]
    with started(arguments, tmp_path / "admin.log", {"SHOAL_ADMIN_TOKEN": TOKEN}) as log:
        url = said(log, "ready at ")
        command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {TOKEN}", "--phases", "examples,coverage,fuzzing"]
        command += ["--max-examples", EXAMPLES_MAX, "--generation-deterministic", "--checks", "all"]
        command += ["--exclude-checks", "positive_data_acceptance", *which]
        command += ["--suppress-health-check", "all", "--continue-on-failure", "--request-timeout", "60", "--no-color"]
        (tmp_path / "schemathesis.toml").write_text(CONFIGURATION, encoding="utf-8")
        environment = {"SCHEMATHESIS_HOOKS": "tests.ops.http.made_up_calls", "NO_PROXY": "*", **with_tests()}
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=170, cwd=tmp_path, env=os.environ | environment
        )
    assert found.returncode == 0, found.stdout + found.stderr
    made = re.search(r"(\d+) generated, (\d+) passed", found.stdout)
    assert made is not None, found.stdout
    assert int(made[1]) == int(made[2]) > calls_min
