"""The slice node's arguments: what is taken, and that a bad one is refused before anything is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_slice_node.settings import settings_of

ALONE = ("--slice", "s01", "--node", "n01", "--listen", "127.0.0.1:0", "--data", "DIR", "--standalone")


def test_what_is_not_said_has_a_default() -> None:
    settings = settings_of(ALONE)
    assert (settings.data, settings.archive, settings.http, settings.etcd) == (Path("DIR"), None, "", None)
    assert settings.memory.budget_bytes >= 320 << 20 and settings.stop_s > 0 and not settings.accept_empty
    assert settings_of((*ALONE, "--archive", "A")).archive == Path("A/s01/n01")


@pytest.mark.parametrize("archive", ["data", "data/s01", "data/s01/journal", "data/s01/journal/x", "own", "around"])
def test_an_archive_is_no_folder_of_data(tmp_path: Path, archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its segments would lie within the data, and be gone with it."""
    for folder in ("store", "journal/x"):
        (tmp_path / "data" / "s01" / folder).mkdir(parents=True)
    data = tmp_path / ("around/s01/data" if archive == "around" else "own")
    with pytest.raises(SystemExit):
        settings_of((*ALONE, "--data", str(data), "--archive", str(tmp_path / archive)))
    assert f"--archive {tmp_path / archive} is not for an archive" in capsys.readouterr().err
    inside = str(data / "archive")
    assert settings_of((*ALONE, "--data", str(data), "--archive", inside)).archive == Path(inside, "s01", "n01")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--memory-mib", "319", "the least is 320 MiB"),
        ("--memory-mib", "many", "many is not a number"),
        ("--stop-s", "nan", "nan is not a number from 0 on"),
        ("--stop-s", "inf", "inf is not a number from 0 on"),
        ("--archive-every", "-1", "-1 is not a number from 0 on"),
        ("--delta-rows", "0", "0 is not a number from 1 on"),
        ("--advertise", "host", "host is not host:port"),
        ("--admin-advertise", "host:0", "host:0 is not host:port"),
        ("--slice", "a/b", "slice"),
    ],
)
def test_a_bad_argument_is_refused_by_its_name(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        settings_of((*ALONE, option, value))
    assert caught.value.code == 2
    assert told in capsys.readouterr().err
