"""A job replaces what an earlier one of its kind wrote, and nothing else; a failed one leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shoal_contract.errors import Conflict
from shoal_pipeline.outputs import Outputs, check_replaceable, check_report, mark_of, names_here

OURS = ["_SUCCESS", "._SUCCESS.crc", "part-00000-x.c000.snappy.parquet", mark_of("export")]


def writer(spark: SparkSession, value: str) -> Callable[[str], None]:
    return lambda folder: spark.createDataFrame([(value,)], "value string").write.parquet(folder)


def written(spark: SparkSession, folder: Path) -> list[str]:
    return [row.value for row in spark.read.parquet(str(folder)).collect()]


def test_a_new_folder_is_whole_and_marked(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    Outputs(spark).write(str(out), "export", "--overwrite", writer(spark, "one"))
    assert written(spark, out) == ["one"]
    assert mark_of("export") in {path.name for path in out.iterdir()}
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_only_an_earlier_one_is_replaced_and_only_if_asked(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outputs = Outputs(spark)
    outputs.write(str(out), "export", "--overwrite", writer(spark, "one"))
    with pytest.raises(Conflict, match="is there already: --overwrite replaces it"):
        outputs.write(str(out), "export", "--overwrite", writer(spark, "two"))
    outputs.write(str(out), "export", "", writer(spark, "three"))
    assert written(spark, out) == ["three"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_precious_is_never_touched(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "other"
    out.mkdir()
    (out / "precious.txt").write_text("x")
    with pytest.raises(Conflict, match=r"it has precious\.txt.*nothing was touched"):
        Outputs(spark).write(str(out), "export", "", writer(spark, "one"))
    assert (out / "precious.txt").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_job_that_fails_leaves_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outputs = Outputs(spark)
    outputs.write(str(out), "export", "", writer(spark, "one"))

    def fails(folder: str) -> None:
        writer(spark, "half")(folder)
        raise Conflict("the cluster went away")

    with pytest.raises(Conflict, match="went away"):
        outputs.write(str(out), "export", "", fails)
    assert written(spark, out) == ["one"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (None, ""),
        ([], ""),
        (OURS, ""),
        ([*OURS, "_temporary"], ""),
        ([*OURS, "notes.txt"], r"it has notes\.txt"),
        ([*OURS, "part-0.json"], r"it has part-0\.json"),
        (OURS[:-1], "it has no _shoal-export"),
        ([mark_of("rejects")], "it has _shoal-rejects"),
        ([*OURS, "local-cluster.json"], "holds data of a slice node or cluster"),
        (["journal", "store", "owner"], "holds data of a slice node or cluster"),
    ],
)
def test_only_our_own_outputs_are_replaced(names: list[str] | None, refused: str) -> None:
    if not refused:
        check_replaceable("out", "export", names, "")
        return
    with pytest.raises(Conflict, match=refused):
        check_replaceable("out", "export", names, "")


def test_what_is_never_replaced_is_told_so() -> None:
    with pytest.raises(Conflict, match="choose another folder, or remove it"):
        check_replaceable("out", "export", OURS, None)


def test_a_file_is_no_folder_and_urls_are_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Conflict, match="is a file, and should be a folder"):
        names_here(str(tmp_path / "file"))
    assert names_here("hdfs:///x") is None
    assert names_here(str(tmp_path / "none")) is None
    assert names_here(str(tmp_path)) == ["file"]


def test_a_report_replaces_reports_only(tmp_path: Path) -> None:
    check_report(tmp_path / "new.html")
    report, other = tmp_path / "census.html", tmp_path / "index.html"
    report.write_text('<!doctype html><html lang="en"><meta charset="utf-8"><title>Shoal census</title>')
    other.write_text("<html>mine</html>")
    check_report(report)
    for file in (other, tmp_path):
        with pytest.raises(Conflict, match="is no report of a census"):
            check_report(file)
