"""Bounds of the pipeline. Each with its unit and its reason."""

from typing import Final

ARROW_ROWS: Final = 20_000
"""Rows in one Arrow batch: a few MB between Python and the JVM, whatever a segment holds."""

LOCAL_MEMORY: Final = "2g"
"""Of Spark's JVM on one machine; its Python workers come on top."""

LOCAL_SHUFFLE_PARTITIONS: Final = 8
"""On one machine: four rounds on two cores. A cluster keeps Spark's own 200."""
