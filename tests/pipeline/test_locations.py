"""Folders and URLs: an archive or store must be a folder, and a URL is refused by name; a missing input is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shoal_contract.errors import BadCall
from shoal_pipeline.failure import typed
from shoal_pipeline.locations import check_inputs, folder_of, scheme_of

URLS = ("s3a://bucket/archive", "hdfs:///archive", "hdfs://host:9000/a", "gs://b", "abfss://c@a.host/x", "dbfs:/mnt/x")


@pytest.mark.parametrize("path", ["archive", "/a/b", "./a", "file:/a", "file:///a", "a:b", "C:x"])
def test_plain_paths_have_no_scheme(path: str) -> None:
    assert scheme_of(path) == ""


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_refused_by_name_with_what_to_do(url: str) -> None:
    with pytest.raises(BadCall, match="mount it") as refused:
        folder_of(url, "archive")
    assert f"archive {url} is a URL" in str(refused.value)


@pytest.mark.parametrize(("path", "folder"), [("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("a/b", "a/b")])
def test_file_urls_are_folders(path: str, folder: str) -> None:
    assert folder_of(path, "archive") == Path(folder)


def test_the_data_source_refuses_urls_and_takes_file_urls(spark: SparkSession, tmp_path: Path) -> None:
    for options in ({}, {"table": "queues"}):
        with pytest.raises(Exception) as caught:
            spark.read.format("shoal").options(**options).load("s3a://bucket/archive").collect()
        error = typed(caught.value)
        assert isinstance(error, BadCall) and "s3a://bucket/archive is a URL (s3a:)" in error.message
    assert spark.read.format("shoal").load(f"file://{tmp_path}").count() == 0


def test_an_input_that_is_not_there_is_named_and_patterns_and_urls_are_left_to_spark(tmp_path: Path) -> None:
    check_inputs(["hdfs:///x", str(tmp_path / "*.parquet"), str(tmp_path), f"file://{tmp_path}"])
    with pytest.raises(BadCall, match=r"nofile\.parquet is not there"):
        check_inputs([str(tmp_path), "nofile.parquet"])
