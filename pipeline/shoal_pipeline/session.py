"""Opens the Spark session of a job, with the settings that jobs need on one machine and on a cluster alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from shoal_pipeline.limits import ARROW_ROWS, LOCAL_SHUFFLE_PARTITIONS
from shoal_pipeline.memory import heap_of

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(LOCAL_SHUFFLE_PARTITIONS),
    "spark.sql.adaptive.enabled": "false",  # it plans again at each shuffle, which costs more than the shuffle here
}


def open_session(
    name: str, master: str | None, settings: Mapping[str, str] | None = None, *, memory: str = "", quiet: bool = True
) -> SparkSession:
    """Opens a session. `master` None: spark-submit decides it. On local[...] Spark listens on loopback only, has no web
    page, and logs nothing where `quiet`: its errors are raised. `memory`: as for memory.heap_of, used only on
    local[...]. `settings`: Spark's, which win over ours. Raises BadCall."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = master is not None and master.startswith("local")
    builder = SparkSession.builder.appName(name)
    ours = dict(_ALWAYS)
    if master is not None:
        builder = builder.master(master)
        ours["spark.ui.showConsoleProgress"] = "true" if sys.stderr.isatty() else "false"
    if local:
        ours |= _LOCAL | {"spark.driver.memory": heap_of(memory), _JAVA_OPTIONS: _log_options(quiet)}
    for key, value in (ours | dict(settings or {})).items():
        both = key == _JAVA_OPTIONS and key in ours and value != ours[key]
        builder = builder.config(key, f"{ours[key]} {value}" if both else value)
    session = builder.getOrCreate()
    if not local:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _log_options(quiet: bool) -> str:
    place = Path(__file__).with_name("log4j2.properties")
    return f'"-Dlog4j2.configurationFile={place}" -Dshoal.spark.log={"off" if quiet else "error"}'
