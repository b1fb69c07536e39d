"""The token: where it comes from, when it may be missing, what is answered without it, who may call where it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from shoal_contract.errors import Malformed, Unauthenticated
from shoal_ops import exits
from shoal_ops.http.token import Token, check_start, read_token
from tests.ops.http.conftest import Running, said, started

TOKEN = "0123456789abcdef"


def test_a_token_comes_from_the_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-of-the-file\n", encoding="utf-8")
    assert read_token(file, TOKEN) == f"{TOKEN}-of-the-file"
    assert read_token(None, TOKEN) == TOKEN
    assert read_token(None, None) == ""


@pytest.mark.parametrize("content", ["", "short", "two words that are long enough", "ümlaut-ümlaut-ümlaut"])
def test_a_bad_token_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(Malformed, match="at least 16 printable ASCII"):
        read_token(file, None)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0", "localhost:0"])
def test_loopback_needs_no_token(listen: str) -> None:
    check_start(listen, "")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.org:0", ":0"])
def test_anything_else_needs_one(listen: str) -> None:
    check_start(listen, TOKEN)
    with pytest.raises(Unauthenticated, match="is not loopback"):
        check_start(listen, "")


@pytest.mark.parametrize("header", [None, b"", b"Bearer", b"Bearer wrong", b"Basic 0123456789abcdef", TOKEN.encode()])
def test_only_the_right_token_passes(header: bytes | None) -> None:
    Token(TOKEN).check(f"bearer {TOKEN}".encode())
    with pytest.raises(Unauthenticated):
        Token(TOKEN).check(header)


def test_the_start_is_refused_without_a_token(running: Running) -> None:
    command = [sys.executable, "-m", "shoal_ops", "admin", "--listen", "0.0.0.0:0", "--at", running.at]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == exits.NO_RIGHTS
    assert "is not loopback, so a token is needed" in found.stderr


def test_all_but_health_page_and_description_needs_the_token(running: Running, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN, encoding="utf-8")
    arguments = ["admin", "--listen", "127.0.0.1:0", "--at", running.at, "--token-file", str(file)]
    with (
        started(arguments, tmp_path / "admin.log") as log,
        httpx.Client(base_url=said(log, "ready at "), trust_env=False, timeout=60) as http,
    ):
        for path in ("/", "/page/app.js", "/healthz", "/readyz", "/metrics", "/openapi.json"):
            assert http.get(path).status_code == 200, path
        for method, path in (("GET", "/v1/cluster"), ("PUT", "/v1/queues/q"), ("GET", "/v1/queues/q/events")):
            refused = http.request(method, path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert refused.json()["type"] == "urn:shoal:error:Unauthenticated"
        assert http.get("/v1/nothing").status_code == 401, "nothing is said about paths either"
        assert http.get("/v1/cluster", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
        allowed = http.get("/v1/cluster", headers={"authorization": f"Bearer {TOKEN}", "host": "shoal.example"})
        assert allowed.status_code == 200


def test_without_a_token_other_hosts_and_web_pages_are_refused(http: httpx.Client) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}):
        refused = http.put("/v1/queues/q", headers=headers)
        assert (refused.status_code, refused.json()["title"]) == (403, "Permission denied"), headers
    assert http.put("/v1/queues/q", headers={"origin": str(http.base_url).rstrip("/")}).status_code == 200
