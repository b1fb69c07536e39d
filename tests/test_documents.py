"""The house rules of documents: how long they are, and that what they name and link to is there.

Belongs here: what a look at the documents decides. Not here: tests that a document cites (test_citations.py), sources
(test_tidy.py).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.limits import LEASE_BACK_RANGES_MAX, LEASE_BACK_S, LEASE_LEFT_MAX
from shoal_contract.limits import KEY_UNACKED_MAX
from shoal_slice_node.storage.lmdb_layout import FORMAT
from tests.repository import COMPONENTS, ROOT

DESIGN_WORDS_MAX = 2500
LINKED = re.compile(r"\]\(((?!https?:)[^)#\s]*)(?:#([^)\s]+))?\)")
GUIDE = re.compile(r"\bdocs/[\w/-]+\.md\b")
CITED = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|md|proto|yaml|toml))`")


def documents() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [path for name in (*COMPONENTS, "helm") for path in (ROOT / name).glob("*.md")]
    return sorted(path.relative_to(ROOT) for path in found)


FILES = [
    path.relative_to(ROOT).as_posix()
    for name in (*COMPONENTS, "docs", "helm", "tests")
    for path in (ROOT / name).rglob("*.*")
]


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_has_a_design_document(component: str) -> None:
    design = ROOT / component / "DESIGN.md"
    assert design.is_file(), f"{component}/DESIGN.md is missing"
    words = len(design.read_text(encoding="utf-8").split())
    assert words <= DESIGN_WORDS_MAX, f"{component}/DESIGN.md has {words} words; the limit is {DESIGN_WORDS_MAX}"


@pytest.mark.parametrize("document", ["docs/library.md", "docs/http.md"])
def test_guides_tell_the_bounds_of_what_pulls_give_back(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    bounds = f"{LEASE_LEFT_MAX} pulls", f"{LEASE_BACK_RANGES_MAX:,} ranges", f"within {LEASE_BACK_S:g} s"
    assert [bound for bound in (*bounds, f"{KEY_UNACKED_MAX:,}") if bound not in text] == []


def unnamed_modules(text: str) -> list[str]:
    """Modules of the client that a text does not name, besides those of `testing`. `*_verbs.py` names several."""
    folder = ROOT / "client" / "shoal"
    names = set(re.findall(r"[\w*]+\.py", text))
    modules = (path for path in folder.rglob("*.py") if path.name != "__init__.py")
    modules = (path for path in modules if path.relative_to(folder).parts[0] != "testing")
    return sorted(path.name for path in modules if not any(path.match(name) for name in names))


def test_the_clients_design_names_each_of_its_modules() -> None:
    text = (ROOT / "client" / "DESIGN.md").read_text(encoding="utf-8")
    assert unnamed_modules(text) == []
    assert unnamed_modules(text.replace("returning.py", "").replace("*_verbs.py", "")) == [
        "binding_verbs.py",
        "publish_verbs.py",
        "queue_verbs.py",
        "returning.py",
    ]


@pytest.mark.parametrize("document", documents(), ids=str)
def test_files_that_a_document_cites_exist(document: Path) -> None:
    """By its path in the repository, or the end of it."""
    cited = set(CITED.findall((ROOT / document).read_text(encoding="utf-8")))
    missing = [name for name in sorted(cited) if not any(f"/{path}".endswith(f"/{name}") for path in FILES)]
    assert not missing


def broken_links(document: Path, text: str) -> list[str]:
    """Links of a document to files that are not there, or to headings that their file does not have."""
    found = []
    for target, heading in LINKED.findall(text):
        path = (ROOT / document).parent / target if target else ROOT / document
        if not path.exists() or (heading and heading not in headings(path.read_text(encoding="utf-8"))):
            found.append(f"{target}#{heading}" if heading else target)
    return found


def headings(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    names = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in names}


@pytest.mark.parametrize("document", documents(), ids=str)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    assert broken_links(document, (ROOT / document).read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found() -> None:
    text = "[a](docs/gone.md) [b](docs/concepts.md#gone) [c](docs/concepts.md#words) [d](https://example.org/x)"
    assert broken_links(Path("README.md"), text) == ["docs/gone.md", "docs/concepts.md#gone"]


def test_guides_that_code_and_documents_name_exist() -> None:
    """`docs/concepts.md` in a docstring, in a message to an operator, or in a document. This file names some that are
    not there."""
    files = [ROOT / path for path in FILES if path.endswith((".py", ".md", ".yaml", ".tpl"))] + list(ROOT.glob("*.md"))
    named = {(path, name) for path in files for name in GUIDE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 40
    gone = [(path, name) for path, name in sorted(named) if not (ROOT / name).exists()]
    assert [(path, name) for path, name in gone if path != Path(__file__)] == []


def test_the_index_names_every_guide() -> None:
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    guides = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert guides - {target for target, _ in LINKED.findall(text)} == set()


def test_what_operators_read_of_the_stores_format_is_so() -> None:
    text = (ROOT / "docs" / "administration.md").read_text(encoding="utf-8")
    newest = int(FORMAT)
    assert re.findall(r"has format (\d+); this version reads format (\d+)", text) == [(str(newest - 1), str(newest))]
    versions = text.partition("\n## Versions\n")[2].partition("\n## ")[0]
    assert [int(number) for number in re.findall(r"(\d+) that of [0-9a-f]{7}", versions)][-1] == newest
