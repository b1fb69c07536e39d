"""One Spark session for all tests of the pipeline: starting it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from shoal_pipeline.session import open_session
from shoal_pipeline.source import register


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    light = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short queries, compiled briefly
        "spark.sql.shuffle.partitions": "2",
    }
    session = open_session("shoal tests", "local[2]", light)
    register(session)
    yield session
    session.stop()
