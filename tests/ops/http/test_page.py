"""The page in headless Chromium, on a real cluster: both themes, phone width, search, token, reconnecting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.ops.http.calls import ok
from tests.ops.http.conftest import WAIT_S, Running, needs_chromium, said, started

TOKEN = "a-token-for-the-page"

pytestmark = needs_chromium


@pytest.fixture
def page(chromium: webdriver.Chrome, running: Running) -> Iterator[webdriver.Chrome]:
    """A window without history, and no complaint in the console at the end."""
    show(chromium, 1320, "light")
    chromium.get(running.url)
    chromium.execute_script("localStorage.clear(); sessionStorage.clear()")
    complaints(chromium)
    chromium.get(running.url)
    yield chromium
    assert complaints(chromium) == []


def complaints(page: webdriver.Chrome) -> list[dict[str, Any]]:
    """Warnings and errors in the console since the last look."""
    lines: list[dict[str, Any]] = page.get_log("browser")  # type: ignore[no-untyped-call]
    return [line for line in lines if line["level"] in ("WARNING", "SEVERE")]


def show(page: webdriver.Chrome, width: int, theme: str) -> None:
    """As a window of this width on a system with this theme."""
    screen = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def find(page: webdriver.Chrome, selector: str) -> Any:
    return page.find_element(By.CSS_SELECTOR, selector)


def until(page: webdriver.Chrome, look: Callable[[], object]) -> None:
    """Elements are replaced with each look at the cluster, so a stale one is looked for again."""
    WebDriverWait(page, WAIT_S, poll_frequency=0.05, ignored_exceptions=(Exception,)).until(lambda _: look())


def state(page: webdriver.Chrome) -> str:
    return str(find(page, "#state .words").text)


def background(page: webdriver.Chrome) -> str:
    return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_it_shows_the_live_cluster(page: webdriver.Chrome, http: httpx.Client) -> None:
    until(page, lambda: state(page) == "All 2 slices serve")
    cards = page.find_elements(By.CSS_SELECTOR, "article.slice")
    assert [card.get_attribute("data-slice") for card in cards] == ["s01", "s02"]
    assert "2,048 partitions, 50 %" in cards[0].text
    assert len(page.find_elements(By.CSS_SELECTOR, "#strip rect")) == 2
    ok(http.put("/v1/queues/page-live"))
    ok(http.put("/v1/queues/page-live/bindings/page-live-key"))

    def publishes() -> bool:
        ok(http.post("/v1/keys/page-live-key/messages", json={"body": "x"}))
        return str(find(page, ".tile .value").text) not in ("", "0/s")

    until(page, publishes)
    until(page, lambda: find(page, "#plot canvas").size["width"] > 600)
    assert page.find_elements(By.CSS_SELECTOR, "article.slice .spark .line.one")


def test_search_finds_queues_and_keys_and_opens_them(page: webdriver.Chrome, http: httpx.Client) -> None:
    names = [f"seek/{number:02d}" for number in range(25)]
    ok(http.post("/v1/queues", json={"queues": names}))
    ok(http.post("/v1/queues/seek%2F03/bindings", json={"keys": ["seek-room", "seek.room"]}))
    ok(http.post("/v1/keys/seek-room/messages", json={"body": "x"}))
    find(page, "#words").send_keys("seek")
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "#found-queues li")) == 21)
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "#found-keys li")) == 2)
    find(page, "#found-queues .more button").click()
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "#found-queues li")) == 25)
    page.find_elements(By.CSS_SELECTOR, "#found-queues button")[3].click()
    until(page, lambda: "seek-room" in find(page, "#detail").text)
    assert "1 message" in find(page, "#detail .facts").text
    find(page, "#detail td .link").click()
    until(page, lambda: "Bound queues" in find(page, "#detail").text and "seek/03" in find(page, "#detail").text)
    find(page, "#detail .close").click()
    find(page, "#words").clear()
    find(page, "#words").send_keys("no such name")
    until(page, lambda: "No queue begins with" in find(page, "#found").text)


def test_a_queue_is_shown_with_its_options_and_its_farewell(page: webdriver.Chrome, http: httpx.Client) -> None:
    ok(http.put("/v1/queues/facts-1", json={"expires_after_s": 7200, "exclusive": "newest"}))
    ok(http.put("/v1/queues/facts-1/farewell", json={"key": "facts <b>", "body": "bye", "after_s": 3600}))
    ok(http.put("/v1/queues/facts-2"))
    find(page, "#words").send_keys("facts-")
    for number, facts in enumerate(
        (
            (
                "2 h without a consumer",
                "one, the newest",
                "to facts <b>, 60 min after the last session has left, due in 60",
            ),
            ("until dropped", "any number", "Farewell\nnone"),
        )
    ):
        until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "#found-queues button")) == 2)
        page.find_elements(By.CSS_SELECTOR, "#found-queues button")[number].click()
        until(page, lambda: "Farewell" in find(page, "#detail").text)
        for fact in facts:
            assert fact in find(page, "#detail .facts").text
        find(page, "#detail .close").click()


def test_dark_and_light_follow_the_system_until_chosen(page: webdriver.Chrome) -> None:
    light = background(page)
    show(page, 1320, "dark")
    until(page, lambda: background(page) != light)
    dark = background(page)
    find(page, "#theme").click()
    until(page, lambda: background(page) == light)
    page.refresh()
    until(page, lambda: state(page) == "All 2 slices serve")
    assert background(page) == light, "the choice is kept"
    find(page, "#theme").click()
    until(page, lambda: background(page) == dark)


@pytest.mark.parametrize("width", [360, 800, 1320])
def test_nothing_is_wider_than_the_window(page: webdriver.Chrome, width: int) -> None:
    show(page, width, "light")
    until(page, lambda: state(page) == "All 2 slices serve")
    wide = page.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


def test_it_asks_for_the_token_and_keeps_it_in_the_tab(
    chromium: webdriver.Chrome, running: Running, tmp_path: Path
) -> None:
    arguments = ["admin", "--listen", "127.0.0.1:0", "--at", running.at]
    with started(arguments, tmp_path / "admin.log", {"SHOAL_ADMIN_TOKEN": TOKEN}) as log:
        chromium.get(said(log, "ready at "))
        until(chromium, lambda: find(chromium, "#token").is_displayed())
        find(chromium, "#token").send_keys("not the token")
        find(chromium, "#ask button").click()
        until(chromium, lambda: find(chromium, "#token-problem").text == "That is not the token.")
        find(chromium, "#token").send_keys(TOKEN)
        find(chromium, "#ask button").click()
        until(chromium, lambda: state(chromium) == "All 2 slices serve")
        chromium.refresh()
        until(chromium, lambda: state(chromium) == "All 2 slices serve")
        assert chromium.execute_script("return [localStorage.length, sessionStorage.length]") == [0, 1]
        find(chromium, "#forget").click()
        until(chromium, lambda: find(chromium, "#token").is_displayed())
    chromium.get("about:blank")


def test_it_says_that_it_reconnects_and_does(chromium: webdriver.Chrome, running: Running, tmp_path: Path) -> None:
    arguments = ["admin", "--listen", "127.0.0.1:0", "--at", running.at]
    with started(arguments, tmp_path / "admin.log") as log:
        url = said(log, "ready at ")
        chromium.get(url)
        until(chromium, lambda: state(chromium) == "All 2 slices serve")
    until(chromium, lambda: state(chromium) == "Reconnecting")
    assert find(chromium, "article.slice").is_displayed(), "what was known stays"
    with started(["admin", "--listen", url.removeprefix("http://"), "--at", running.at], tmp_path / "again.log"):
        until(chromium, lambda: state(chromium) == "All 2 slices serve")
    chromium.get("about:blank")
