"""The chat's page in headless Chromium: several tabs, and a slice that is killed between."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.folders import NewFolder
from tests.ops.http.conftest import WAIT_S, chromium, needs_chromium, said  # noqa: F401 - chromium is a fixture

from .conftest import EXAMPLES

PICTURE = "SHOAL_CHAT_PICTURE"
"""Where to put a picture of the page, for the README."""

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.fixture(scope="module")
def chat(module_folder: NewFolder) -> Iterator[tuple[str, psutil.Process]]:
    """The chat's address, and its process, whose children are the cluster's."""
    folder = module_folder("chat")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--listen", f"127.0.0.1:{port}", "--data", str(folder / "data")]
    log = folder / "chat.log"
    with log.open("wb") as out:
        command = [sys.executable, str(EXAMPLES / "chat" / "server.py"), *arguments]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield said(log, "chat at "), psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()


class Tab:
    """One tab of the browser."""

    def __init__(self, browser: webdriver.Chrome, url: str, person: str) -> None:
        self._browser = browser
        browser.switch_to.new_window("tab")
        self._handle = browser.current_window_handle
        browser.get(f"{url}?as={person}")
        self.until(lambda: self.text("#state") == "connected")

    def text(self, selector: str) -> str:
        self._browser.switch_to.window(self._handle)
        return str(self._browser.find_element(By.CSS_SELECTOR, selector).text)

    def write(self, name: str, text: str) -> None:
        self._browser.switch_to.window(self._handle)
        self._browser.find_element(By.NAME, name).send_keys(text, Keys.ENTER)

    def until(self, look: Callable[[], object]) -> None:
        WebDriverWait(self._browser, WAIT_S, 0.05, ignored_exceptions=(Exception,)).until(lambda _: look())

    def lines(self) -> list[str]:
        """What the log shows, without the times."""
        self._browser.switch_to.window(self._handle)
        found = self._browser.find_elements(By.CSS_SELECTOR, "#log li:not(.unsent)")
        return [" ".join(one.find_element(By.TAG_NAME, tag).text.strip() for tag in ("b", "span")) for one in found]

    def until_people(self, names: str) -> None:
        self.until(lambda: self.text("#people") == f"here: {names}")

    def until_lines(self, told: set[str]) -> None:
        """Each once, in whatever order."""
        self.until(lambda: len(self.lines()) == len(told) and set(self.lines()) == told)

    def picture(self, path: Path) -> None:
        self._browser.switch_to.window(self._handle)
        self._browser.save_screenshot(str(path))


def test_tabs_chat_and_lose_nothing_while_a_slice_is_killed(
    chromium: webdriver.Chrome,  # noqa: F811
    chat: tuple[str, psutil.Process],
) -> None:
    url, process = chat
    anna, ben = Tab(chromium, url, "anna"), Tab(chromium, url, "ben")
    anna.write("room", "tea")
    anna.write("text", "anybody here?")
    anna.until(lambda: anna.lines() == ["anna anybody here?"])
    ben.write("room", "tea")
    ben.until(lambda: ben.lines() == ["anna anybody here?"])
    for tab in (anna, ben):
        tab.until_people("anna, ben")
    for slice_name in ("s01", "s02"):
        node = next(one for one in process.children() if slice_name in one.cmdline())
        node.kill()
        ben.write("text", f"although {slice_name} is gone")
        anna.write("text", f"and {slice_name} comes back")
    told = {f"ben although {name} is gone" for name in ("s01", "s02")}
    told |= {f"anna and {name} comes back" for name in ("s01", "s02")} | {"anna anybody here?"}
    late = Tab(chromium, url, "cleo")
    late.write("room", "tea")
    for tab in (anna, ben, late):
        tab.until_lines(told)
    late.write("text", "@ben only for you")
    ben.until(lambda: "@cleo" in ben.text("#rooms"))
    late.write("text", "@nobody hello")
    late.until(lambda: "@nobody" in late.text("#rooms") and "private-nobody" in late.text("#error"))
    ben.write("text", "/notice 3 soon over")
    ben.write("text", "/notice 600 dinner is ready")
    for tab in (anna, ben):
        tab.until(lambda tab=tab: tab.text("#log .notice:last-child span") == "dinner is ready")  # type: ignore[misc]
    ben.write("text", "/notice 0 never")
    ben.until(lambda: "1 to 86400 seconds" in ben.text("#error"))
    for tab in (anna, ben):
        tab.until_lines(told | {"ben dinner is ready"})
    if PICTURE in os.environ:
        anna.picture(Path(os.environ[PICTURE]))
