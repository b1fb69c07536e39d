"""A web page of somewhere else, in a real browser on the machine of a gateway without a token: it changes nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.ops.http.calls import ok
from tests.ops.http.conftest import WAIT_S, Running, needs_chromium

pytestmark = needs_chromium
MESSAGES = 5
NUMBERS = itertools.count()


class ForeignPage(BaseHTTPRequestHandler):
    """An empty page; what it does is written into it by the test, as its own script could."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title><body>foreign</body>")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    """The page's URL: another site than 127.0.0.1, as far as a browser knows."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ForeignPage)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://localhost:{server.server_address[1]}/"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def queue(http: httpx.Client) -> str:
    name = f"victim-{next(NUMBERS)}"
    ok(http.put(f"/v1/queues/{name}"))
    for number in range(MESSAGES):
        ok(http.post(f"/v1/queues/{name}/messages", json={"body": str(number)}))
    return name


WAYS = {
    "navigation": "location.href = url",
    "window": "window.open(url)",
    "iframe": "add('iframe', 'src')",
    "image": "add('img', 'src')",
    "script": "add('script', 'src')",
    "stylesheet": "const link = add('link', 'href'); link.rel = 'stylesheet'",
    "event source": "window.source = new EventSource(url)",
    "fetch": "fetch(url).catch(() => 0)",
    "fetch without cors": "fetch(url, {mode: 'no-cors'}).catch(() => 0)",
    "fetch with our header": "fetch(url, {headers: {'X-Shoal': '1'}}).catch(() => 0)",
    "form": "const form = add('form', 'action'); form.method = 'get'; form.submit()",
}
ADD = """
const add = (tag, name) => {
  const one = document.createElement(tag);
  one[name] = url;
  document.body.append(one);
  return one;
};"""


@pytest.mark.parametrize("way", WAYS)
def test_it_takes_no_messages(
    chromium: webdriver.Chrome, running: Running, foreign: str, http: httpx.Client, queue: str, way: str
) -> None:
    refused_before = refused(http)
    for ack in ("auto", "explicit"):
        chromium.get(foreign)
        url = f"{running.url}/v1/queues/{queue}/events?ack={ack}"
        chromium.execute_script(f"const url = arguments[0]; {ADD} {WAYS[way]};", url)
    # The requests have come, and nothing of them is left.
    until_refused(chromium, http, refused_before + 2)
    found = ok(http.get(f"/v1/queues/{queue}"))
    assert (found["messages"], found["attached_sessions"]) == (MESSAGES, 0)
    assert [one["redelivered"] for one in ok(http.post(f"/v1/queues/{queue}/pull"))["messages"]] == [0] * MESSAGES


def test_a_foreign_page_posts_nothing(
    chromium: webdriver.Chrome, running: Running, foreign: str, http: httpx.Client, queue: str
) -> None:
    for path in (f"/v1/queues/{queue}/pull", f"/v1/queues/{queue}/unbind"):
        chromium.get(foreign)
        refused_before = refused(http)
        post = (
            f"const url = arguments[0]; {ADD} const form = add('form', 'action'); form.method = 'post'; form.submit();"
        )
        chromium.execute_script(post, running.url + path)
        until_refused(chromium, http, refused_before + 1)
    assert [one["redelivered"] for one in ok(http.post(f"/v1/queues/{queue}/pull"))["messages"]] == [0] * MESSAGES


def until_refused(chromium: webdriver.Chrome, http: httpx.Client, count: float) -> None:
    WebDriverWait(chromium, WAIT_S, poll_frequency=0.05).until(lambda _: refused(http) >= count)


def refused(http: httpx.Client) -> float:
    """Requests answered with 4xx so far."""
    lines = http.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("shoal_admin_requests_total") and '"4xx"' in line
    )
