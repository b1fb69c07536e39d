"""`make docs`: the reference of the library has an entry with text for every public name, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import shoal
import shoal.testing
from tests.repository import ROOT, recipe

WAIT_S = 60


class Entries(HTMLParser):
    """Collects the docstring of each section of a page; "" where there is none. pdoc makes one section for each name of
    the module, with the members of a class in `div`s of their own."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self._name = ""
        self._open: list[str] = []
        """The classes of the `div`s that are open, the outermost first."""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "section":
            self._name = attributes.get("id") or ""
            self.texts[self._name], self._open = "", []
        elif tag == "div":
            self._open.append(attributes.get("class") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[:1] == ["docstring"]:
            self.texts[self._name] += data


def pages(folder: Path) -> list[str]:
    """Runs the command of `make docs` with another folder to write to."""
    _, commands = recipe("docs")
    assert commands == "\t$(BIN)/python client/write_reference.py dist/docs\n"
    command = [sys.executable, "client/write_reference.py", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    return [(folder / name).read_text(encoding="utf-8") for name in ("shoal.html", "shoal/testing.html")]


def test_the_reference_has_an_entry_with_text_for_every_public_name(tmp_path: Path) -> None:
    for module, page in zip((shoal, shoal.testing), pages(tmp_path), strict=True):
        texts = Entries(page).texts
        texts.pop("")
        assert sorted(texts) == sorted(module.__all__)
        assert [name for name, text in texts.items() if len(text.split()) < 3] == []


def test_an_entry_without_text_is_found() -> None:
    found = Entries("""
        <section><div class="docstring">Says what the module is.</div></section>
        <section id="A"><div class="attr">class A</div><div class="docstring"><div><p>Does a.</p></div></div></section>
        <section id="B"><div class="attr">class B</div><div id="B.b"><div class="docstring">b</div></div></section>
        <section id="C"><div class="docstring"></div></section><section id="D"><div class="attr">D</div></section>
    """)
    assert found.texts == {"": "Says what the module is.", "A": "Does a.", "B": "", "C": "", "D": ""}
