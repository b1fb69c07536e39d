"""A real cluster with its HTTP gateway, as `shoal up --admin` starts them: one for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.folders import NewFolder

WAIT_S = 90
CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver: apt-get install chromium chromium-driver"
)


@dataclass(frozen=True)
class Running:
    """`url` of the gateway; `at`: the redirector's host:port; `data`: the cluster's folder."""

    url: str
    at: str
    data: Path


@pytest.fixture(scope="package")
def running(package_folder: NewFolder) -> Iterator[Running]:
    with cluster(package_folder("http"), slices=2) as running:
        yield running


@contextmanager
def cluster(folder: Path, slices: int) -> Iterator[Running]:
    arguments = ["up", "--slices", str(slices), "--data", str(folder / "data"), "--admin", "127.0.0.1:0"]
    arguments += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with started(arguments, folder / "up.log") as log:
        url = said(log, "page and HTTP API at ")
        yield Running(url, said(log, "clients connect to "), folder / "data")


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def chromium(module_folder: NewFolder) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    profile = module_folder("profile")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"):
        options.add_argument(argument)
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    environment = os.environ | {"no_proxy": "127.0.0.1,localhost"}
    browser = webdriver.Chrome(options=options, service=Service(DRIVER, env=environment))
    browser.set_page_load_timeout(WAIT_S)
    yield browser
    browser.quit()


@contextmanager
def started(arguments: list[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[Path]:
    """`shoal ARGUMENTS` with its output in `log`; ended with Ctrl-C."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal_ops", *arguments],
            stdout=out,
            stderr=out,
            env=os.environ | (environment or {}),
        )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, log.read_text(errors="replace")


def said(log: Path, words: str) -> str:
    """What follows these words in the log, up to a blank; waits for it."""

    def found() -> str:
        _, found, rest = log.read_text(errors="replace").partition(words)
        return rest.split()[0].rstrip(",") if found and "\n" in rest else ""

    return until(found)


def until(look: Callable[[], str]) -> str:
    """Waits until `look` finds something."""
    end = time.monotonic() + WAIT_S
    while not (value := look()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    return value
