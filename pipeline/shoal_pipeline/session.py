"""The Spark session of a job: what the jobs need set, on one machine and on a cluster alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from shoal_pipeline.limits import ARROW_ROWS, LOCAL_MEMORY, LOCAL_SHUFFLE_PARTITIONS

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": LOCAL_MEMORY,
    "spark.sql.shuffle.partitions": str(LOCAL_SHUFFLE_PARTITIONS),
    "spark.sql.adaptive.enabled": "false",  # it plans anew at each shuffle: more than the shuffle itself costs here
}


def open_session(name: str, master: str | None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """`master` None: as spark-submit says. On local[...] Spark listens on loopback only and has no web page.
    `settings`: of Spark, above ours."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    ours = dict(_ALWAYS)
    if master is not None:
        builder = builder.master(master)
        ours["spark.ui.showConsoleProgress"] = "true" if sys.stderr.isatty() else "false"
        ours |= _LOCAL if master.startswith("local") else {}
    for key, value in (ours | dict(settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
