"""A slice that answers and has trouble is told by the cluster's state, by the overview and by the page, which said that
all was well while a slice took no changes (operator brief of round 11, F2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from shoal_contract.wire.admin_pb2 import FiguresResponse
from tests.ops.fake_slices import FakeSlice, served_beside
from tests.ops.http.calls import ok
from tests.ops.http.conftest import WAIT_S, needs_chromium, said, started

FULL = "the disk of its journal is full: <img src=x onerror=alert(1)> & changes are refused"
FAILS = "checkpoints fail: no space"


@contextmanager
def gateway(folder: Path, *slices: FakeSlice) -> Iterator[str]:
    """Yields the URL of a gateway beside these slices."""
    with (
        served_beside(*slices) as at,
        started(["admin", "--listen", "127.0.0.1:0", "--at", at], folder / "admin.log") as log,
    ):
        yield said(log, "ready at ").rstrip(",")


def until(http: httpx.Client, path: str, fits: Callable[[Any], bool]) -> Any:
    """Samples are taken every 2 s."""
    while not fits(found := ok(http.get(path))):
        pass
    return found


@pytest.mark.timeout(WAIT_S)
def test_the_cluster_and_the_overview_tell_the_trouble_of_each_slice(tmp_path: Path) -> None:
    figures = [FiguresResponse(slice="s01"), FiguresResponse(slice="s02", trouble=FULL)]
    slices = [FakeSlice(one.slice, one) for one in figures]
    with gateway(tmp_path, *slices) as url, httpx.Client(base_url=url, trust_env=False, timeout=WAIT_S) as http:
        cluster, overview = ok(http.get("/v1/cluster")), ok(http.get("/v1/overview?samples=1"))
        for found in (cluster, overview):
            assert [(one["state"], one["problem"]) for one in found["slices"]] == [("serving", "")] * 2
            assert [one["trouble"] for one in found["slices"]] == ["", FULL]
        assert cluster["healthy"] is False, "it answers, but takes no changes"
        figures[1].trouble = ""
        healed = until(http, "/v1/cluster", lambda found: bool(found["healthy"]))
        assert [one["trouble"] for one in healed["slices"]] == ["", ""]


@pytest.mark.timeout(WAIT_S)
def test_a_silent_slice_has_a_problem_and_no_trouble(tmp_path: Path) -> None:
    slices = [FakeSlice("s01", FiguresResponse(slice="s01")), FakeSlice("s02", leads=False)]
    with gateway(tmp_path, *slices) as url, httpx.Client(base_url=url, trust_env=False, timeout=WAIT_S) as http:
        cluster, overview = ok(http.get("/v1/cluster")), ok(http.get("/v1/overview?samples=1"))
        for found in (cluster, overview):
            assert [(one["state"], one["trouble"]) for one in found["slices"]] == [("serving", ""), ("silent", "")]
            assert found["slices"][1]["problem"] == "has no leader"
        assert cluster["healthy"] is False


@needs_chromium
@pytest.mark.timeout(2 * WAIT_S)
def test_the_page_warns_of_slices_with_trouble(chromium: webdriver.Chrome, tmp_path: Path) -> None:
    figures = [FiguresResponse(slice=f"s0{number}") for number in (1, 2, 3)]
    figures[1].trouble = FULL
    slices = [*(FakeSlice(one.slice, one) for one in figures)]

    def header(level: str, words: str) -> None:
        shown = (By.CSS_SELECTOR, f'#state[data-level="{level}"] .words')
        WebDriverWait(chromium, WAIT_S, 0.05, ignored_exceptions=(Exception,)).until(
            lambda _: chromium.find_element(*shown).text == words
        )

    def cards() -> list[tuple[str, str, str]]:
        """Of each slice its level, its state, its trouble. In one step: elements are replaced with each sample."""
        found = chromium.execute_script(
            "return [...document.querySelectorAll('article.slice')].map((card) => ["
            "card.querySelector('.pill').dataset.level, card.querySelector('.pill').textContent,"
            "card.querySelector('p.trouble')?.textContent ?? ''])"
        )
        return [tuple(card) for card in found]

    good = ("good", "serving", "")
    with gateway(tmp_path, *slices) as url:
        chromium.get(url)
        header("warn", "1 of 3 slices has trouble")
        assert cards() == [good, ("warn", "trouble", FULL), good]
        assert not chromium.find_elements(By.CSS_SELECTOR, "article img"), "it is text, whatever stands in it"
        assert len(chromium.find_elements(By.CSS_SELECTOR, "article.troubled .rates")) == 1, "its figures are shown"
        figures[2].trouble = FAILS
        header("warn", "2 of 3 slices have trouble")
        assert cards() == [good, ("warn", "trouble", FULL), ("warn", "trouble", FAILS)]
        figures[1].trouble = figures[2].trouble = ""
        header("good", "All 3 slices serve")
        assert cards() == [good] * 3
    chromium.get("about:blank")


@needs_chromium
@pytest.mark.timeout(2 * WAIT_S)
def test_the_page_tells_of_silence_and_of_trouble_beside_it(chromium: webdriver.Chrome, tmp_path: Path) -> None:
    slices = [FakeSlice("s01", FiguresResponse(slice="s01", trouble=FAILS)), FakeSlice("s02", leads=False)]
    with gateway(tmp_path, *slices) as url:
        chromium.get(url)
        WebDriverWait(chromium, WAIT_S, 0.05, ignored_exceptions=(Exception,)).until(
            lambda _: (
                chromium.find_element(By.CSS_SELECTOR, '#state[data-level="bad"] .words').text
                == "1 of 2 slices silent, 1 has trouble"
            )
        )
    chromium.get("about:blank")
