"""The token's file: whose it must be, and that a change of it is seen, as Kubernetes makes it too."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from shoal_contract.errors import PermissionDenied
from shoal_ops.http.token_file import TokenFile

FIRST = "0123456789abcdef"
SECOND = "fedcba9876543210"


class Clock:
    """Goes on by a second with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666, 0o777, 0o644])
def test_a_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(PermissionDenied, match=f"mode {mode:04o}.*chmod 600"):
        TokenFile(written(tmp_path / "token", FIRST, mode))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_ones_own_is_taken(tmp_path: Path, mode: int) -> None:
    assert TokenFile(written(tmp_path / "token", FIRST, mode)).tokens() == (FIRST,)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of root and of others")
def test_roots_file_may_be_read_by_its_group_as_secrets_of_kubernetes_are(tmp_path: Path) -> None:
    assert TokenFile(written(tmp_path / "token", FIRST, 0o440)).tokens() == (FIRST,)
    file = written(tmp_path / "theirs", FIRST)
    os.chown(file, 65532, 65532)
    with pytest.raises(PermissionDenied, match="belongs to another user"):
        TokenFile(file)


def test_a_swapped_link_is_a_change(tmp_path: Path) -> None:
    for name, token in (("..first", FIRST), ("..second", SECOND)):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "token", token)
    (tmp_path / "..data").symlink_to("..first")
    (tmp_path / "token").symlink_to("..data/token")
    file = TokenFile(tmp_path / "token", Clock())
    assert file.tokens() == (FIRST,)
    (tmp_path / "..new").symlink_to("..second")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert file.tokens() == (SECOND,)


def test_it_is_looked_at_once_a_second_at_most(tmp_path: Path) -> None:
    now = 0.0
    file = TokenFile(written(tmp_path / "token", FIRST), lambda: now)
    written(tmp_path / "token", SECOND)
    now = 0.9
    assert file.tokens() == (FIRST,)
    now = 1.0
    assert file.tokens() == (SECOND,)


def test_a_bad_change_is_logged_once_and_the_tokens_before_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "token", FIRST)
    file = TokenFile(path, Clock())
    with caplog.at_level(logging.WARNING):
        written(path, "short")
        assert {file.tokens() for _ in range(5)} == {(FIRST,)}
        written(path, SECOND, 0o644)
        assert {file.tokens() for _ in range(5)} == {(FIRST,)}
        path.unlink()
        assert {file.tokens() for _ in range(5)} == {(FIRST,)}
        written(path, SECOND)
        assert {file.tokens() for _ in range(5)} == {(SECOND,)}
    lines = [record.getMessage() for record in caplog.records]
    assert ["stay valid" in line for line in lines] == [True, True, True, False]
    assert "1 tokens are valid now" in lines[3]
    assert not [line for line in lines if FIRST in line or SECOND in line]
