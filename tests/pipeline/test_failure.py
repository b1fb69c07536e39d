"""Errors as one line: what Spark refuses is a bad call, what fails in our own code stays a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shoal_contract.errors import BadCall, Corrupt
from shoal_pipeline.failure import exit_code, typed


def failed(work: object) -> BaseException:
    with pytest.raises(Exception) as caught:
        work()  # type: ignore[operator]
    return caught.value


def test_what_spark_refuses_is_a_bad_call_of_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("hello")
    cases = (
        (lambda: spark.read.parquet("nofile.parquet"), "Path does not exist"),
        (lambda: spark.read.parquet(str(tmp_path / "text.parquet")), "is not a Parquet file"),
        (lambda: spark.range(1).write.parquet("/proc/nothing/x"), "Mkdirs failed"),
        (lambda: spark.range(1).selectExpr("nothing_like_it"), "cannot be resolved"),
    )
    for work, words in cases:
        error = typed(failed(work))
        assert isinstance(error, BadCall) and words in error.message, words
        assert "\n" not in error.message and error.message.startswith("Spark: ")
        assert exit_code(error) == 3


def test_an_error_of_ours_comes_out_of_a_worker_as_it_was(spark: SparkSession) -> None:
    def damaged(batches: object) -> object:
        raise Corrupt("journal record 2 is damaged: x, byte 7")

    frame = spark.range(1).mapInArrow(damaged, "id long")  # type: ignore[arg-type]
    error = typed(failed(frame.collect))
    assert isinstance(error, Corrupt) and error.message == "journal record 2 is damaged: x, byte 7"
    assert exit_code(error) == 7


def test_a_bug_in_a_worker_or_here_stays_a_traceback(spark: SparkSession) -> None:
    def broken(batches: object) -> object:
        raise KeyError("oops")

    frame = spark.range(1).mapInArrow(broken, "id long")  # type: ignore[arg-type]
    assert typed(failed(frame.collect)) is None
    assert typed(KeyError("oops")) is None
