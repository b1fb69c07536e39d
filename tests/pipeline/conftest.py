"""One Spark session for all tests of the pipeline: starting it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from shoal_pipeline.session import open_session
from shoal_pipeline.source import register


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("shoal tests", "local[2]")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    register(session)
    yield session
    session.stop()
