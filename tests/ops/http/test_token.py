"""The token: where it comes from, when it may be missing, what is answered without it, who may call where it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from shoal_contract.errors import Malformed, Unauthenticated
from shoal_ops import exits
from shoal_ops.http.serving import Settings
from shoal_ops.http.token import Token, check_start, token_from
from tests.ops.http.conftest import Running, said, started, until

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"


def holding(*tokens: str) -> Token:
    return Token(lambda: tokens)


def private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return path


def passes(token: Token, given: str) -> bool:
    try:
        token.check(f"Bearer {given}")
    except Unauthenticated:
        return False
    return True


def test_a_token_comes_from_the_file_before_the_environment(tmp_path: Path) -> None:
    file = private(tmp_path / "token", f"{OTHER}\n")
    assert passes(token_from(file, TOKEN), OTHER)
    assert not passes(token_from(file, TOKEN), TOKEN)
    assert passes(token_from(None, TOKEN), TOKEN)
    assert not token_from(None, None).required
    assert not token_from(None, " ").required


@pytest.mark.parametrize(
    "content", ["", "\n", "short", "two words that are long enough", "ümlaut-ümlaut-ümlaut", "\n".join([TOKEN] * 3)]
)
def test_a_bad_token_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(Malformed, match="at least 16 printable ASCII"):
        token_from(private(tmp_path / "token", content), None)


def test_two_tokens_are_valid_while_one_is_changed(tmp_path: Path) -> None:
    token = token_from(private(tmp_path / "token", f"{TOKEN}\r\n\n {OTHER} \n"), None)
    assert passes(token, TOKEN)
    assert passes(token, OTHER)
    assert not passes(token, f"{TOKEN}\n{OTHER}")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0", "localhost:0"])
def test_loopback_needs_no_token(listen: str) -> None:
    check_start(listen, Token())


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.org:0", ":0"])
def test_an_address_that_is_not_loopback_needs_a_token(listen: str) -> None:
    check_start(listen, holding(TOKEN))
    with pytest.raises(Unauthenticated, match="is not loopback"):
        check_start(listen, Token())


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"])
def test_only_the_right_token_passes(header: str | None) -> None:
    holding(TOKEN).check(f"bearer {TOKEN}")
    with pytest.raises(Unauthenticated):
        holding(TOKEN).check(header)


def test_the_token_is_in_no_text_that_may_be_logged() -> None:
    assert TOKEN not in repr(Settings("127.0.0.1:0", ("127.0.0.1:1",), token_from(None, TOKEN)))


def test_the_start_is_refused_without_a_token(running: Running) -> None:
    command = [sys.executable, "-m", "shoal_ops", "admin", "--listen", "0.0.0.0:0", "--at", running.at]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == exits.NO_RIGHTS
    assert "is not loopback, so a token is needed" in found.stderr


def test_the_start_is_refused_with_a_token_that_others_may_read(running: Running, tmp_path: Path) -> None:
    file = private(tmp_path / "token", TOKEN)
    file.chmod(0o644)
    arguments = ["admin", "--listen", "127.0.0.1:0", "--at", running.at, "--token-file", str(file)]
    found = subprocess.run([sys.executable, "-m", "shoal_ops", *arguments], capture_output=True, text=True, timeout=60)
    assert found.returncode == exits.NO_RIGHTS
    assert f"chmod 600 {file}" in found.stderr
    assert TOKEN not in found.stderr


def test_all_but_health_and_page_needs_the_token(running: Running, tmp_path: Path) -> None:
    file = private(tmp_path / "token", TOKEN)
    arguments = ["admin", "--listen", "127.0.0.1:0", "--at", running.at, "--token-file", str(file)]
    with (
        started([*arguments, "--metrics", "127.0.0.1:0"], tmp_path / "admin.log") as log,
        httpx.Client(base_url=said(log, "ready at "), trust_env=False, timeout=60) as http,
    ):
        for path in ("/", "/page/app.js", "/healthz", "/readyz"):
            assert http.get(path).status_code == 200, path
        assert http.get("/readyz").json() == {"ready": True}
        closed = [("PUT", "/v1/queues/q"), ("GET", "/v1/queues/q/events"), ("GET", "/v1/nothing"), ("GET", "/nothing")]
        for method, path in [("GET", "/v1/cluster"), ("GET", "/metrics"), ("GET", "/openapi.json"), *closed]:
            refused = http.request(method, path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer"), path
            assert refused.json()["type"] == "urn:shoal:error:Unauthenticated"
        right = {"authorization": f"Bearer {TOKEN}"}
        assert http.get("/v1/cluster", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
        for path in ("/v1/cluster", "/metrics", "/openapi.json"):
            assert http.get(path, headers=right).status_code == 200
        assert http.get("/v1/cluster", headers=right | {"host": "shoal.example"}).status_code == 200
        twice = [("authorization", "Bearer wrong"), ("authorization", f"Bearer {TOKEN}")]
        assert http.get("/v1/cluster", headers=twice).status_code == 400
        side = said(log, "metrics at ").removesuffix("/metrics;")
        for path in ("/healthz", "/readyz", "/metrics"):
            assert httpx.get(side + path, trust_env=False).status_code == 200, path
        assert httpx.get(f"{side}/v1/cluster", trust_env=False).status_code == 404
        # A new token, while the old one is still there; then without it.
        private(tmp_path / "token", f"{TOKEN}\n{OTHER}\n")
        new = {"authorization": f"Bearer {OTHER}"}
        until(lambda: "changed" if http.get("/v1/cluster", headers=new).status_code == 200 else "")
        assert http.get("/v1/cluster", headers=right).status_code == 200
        private(tmp_path / "token", OTHER)
        until(lambda: "gone" if http.get("/v1/cluster", headers=right).status_code == 401 else "")
        assert http.get("/v1/cluster", headers=new).status_code == 200
        lines = log.read_text(encoding="utf-8")
        assert "a wrong token was refused, from 127.0.0.1 port" in lines
        assert TOKEN not in lines
        assert OTHER not in lines


def test_without_a_token_other_hosts_and_web_pages_are_refused(http: httpx.Client) -> None:
    own = str(http.base_url).rstrip("/")
    foreign = [
        {"host": "evil.example"},
        {"host": "[127.0.0.1"},
        {"host": "[[[::1]]]"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": own.replace("http://", "https://")},
        {"origin": own.replace("http://", "ftp://")},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "unheard-of"},
    ]
    for headers in foreign:
        refused = http.put("/v1/queues/q", headers=headers)
        assert (refused.status_code, refused.json()["title"]) == (403, "Permission denied"), headers
    for headers in ({"origin": own}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert http.put("/v1/queues/q", headers=headers).status_code == 200, headers
    twice = http.put("/v1/queues/q", headers=[("origin", "https://evil.example"), ("origin", own)])
    assert (twice.status_code, twice.json()["subject"]) == (400, "origin")
    assert http.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200, "a link to the page is no harm"


def test_a_browser_does_not_open_an_event_stream_as_a_page(http: httpx.Client) -> None:
    http.put("/v1/queues/q")
    refused = http.get("/v1/queues/q/events", headers={"sec-fetch-site": "none", "sec-fetch-mode": "navigate"})
    assert (refused.status_code, refused.json()["subject"]) == (403, "sec-fetch-mode")


def test_ack_auto_needs_what_no_foreign_page_can_send(http: httpx.Client) -> None:
    http.put("/v1/queues/mine")
    http.post("/v1/queues/mine/messages", json={"body": "x"})
    refused = http.get("/v1/queues/mine/events?ack=auto")
    assert (refused.status_code, refused.json()["subject"]) == (400, "x-shoal")
    assert http.get("/v1/queues/mine/events?ack=auto", headers={"x-shoal": "2"}).status_code == 400
    assert http.get("/v1/queues/mine").json()["messages"] == 1
