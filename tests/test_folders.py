"""What fixtures of many tests leave behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.folders import new_folders


@pytest.mark.parametrize("fails", [False, True])
def test_folders_go_with_their_scope_unless_a_test_failed(
    fails: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    session = SimpleNamespace(testsfailed=3)
    fixture = new_folders(cast(pytest.FixtureRequest, SimpleNamespace(session=session)), tmp_path_factory)
    new = next(fixture)
    folders = [new("data"), new("data")]
    (folders[0] / "journal").write_bytes(b"1")
    assert all(folder.is_dir() for folder in folders) and folders[0] != folders[1]
    session.testsfailed += fails
    assert next(fixture, None) is None
    assert [folder.exists() for folder in folders] == [fails, fails]
