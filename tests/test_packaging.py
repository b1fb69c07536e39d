"""What a user installs and what a developer types: types reach the user's door, and tests change nothing outside."""

from __future__ import annotations

import re
import tomllib

from trove_classifiers import classifiers

from tests.repository import ROOT, recipe

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages() -> list[str]:
    found: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return found


def test_every_package_says_that_it_is_typed() -> None:
    assert len(packages()) >= 8
    assert [name for name in packages() if not (ROOT / name / "py.typed").exists()] == []


def test_the_metadata_says_who_made_it_and_what_it_is() -> None:
    project = PROJECT["project"]
    assert project["authors"] and len(project["keywords"]) >= 5
    assert set(project["classifiers"]) <= set(classifiers)
    assert "Typing :: Typed" in project["classifiers"]


def test_running_the_tests_installs_nothing_into_the_system() -> None:
    waiting, seen = ["test"], set()
    while waiting:
        target = waiting.pop()
        if target not in seen and target not in ("pyproject.toml", "constraints.txt"):
            seen.add(target)
            needs, commands = recipe(re.escape(target))
            assert "apt-get" not in commands, target
            waiting += needs
    assert {"test", "setup", ".venv/.ready"} <= seen
    assert "apt-get" in recipe("chromium")[1]
    assert "make chromium" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_changelog_is_grouped() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text.split("\n## ")[1]
    groups = re.findall(r"^### (\w.*)$", newest, re.MULTILINE)
    assert groups[:3] == ["Added", "Changed", "Fixed"]
