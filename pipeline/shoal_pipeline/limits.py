"""Bounds of the pipeline. Each with its unit and its reason."""

from typing import Final

ARROW_ROWS: Final = 20_000
"""Rows in one Arrow batch: a few MB between Python and the JVM, whatever a segment holds."""

LOCAL_MEMORY: Final = "2g"
"""The memory of Spark's JVM on one machine, unless `--memory` says otherwise. Its Python workers need about 90 MB a
core more."""

LOCAL_MEMORY_MIB_MIN: Final = 512
"""Spark refuses to start a driver with less than 471 MiB."""

LOCAL_SHUFFLE_PARTITIONS: Final = 8
"""Shuffle partitions on one machine: four rounds on two cores. A cluster keeps Spark's own 200."""

OWNERSHIP_LOOK_RECORDS: Final = 1_000
"""Records of a slice's first segment that are searched for the number of partitions: a slice writes it before anything
else."""

CLOCK_SLACK_MS: Final = 3_600_000
"""The milliseconds that the clock of a slice's next leader may be behind; beyond this, a filter on time could leave out
a segment."""

STREAM_SEGMENTS_MAX: Final = 100_000
"""The most segments that a user may ask for in one step of a stream: 6 TB."""

SNAPSHOT_RANGES: Final = 4
SNAPSHOT_RANGES_MAX: Final = 4_096
"""Spark partitions for one slice's store: each opens the store once, in some milliseconds."""

KEY_NAMES_CACHED: Final = 100_000
"""Names of keys kept in memory while bindings are listed: 30 MB; keys with many members come again and again."""

INTERVALS_MAX: Final = 2_000
"""Intervals of one census: the driver holds figures for each pair of them, and a plot is no wider."""

INTERVALS_AIM: Final = 100
"""Intervals to aim at where no length is asked for: as many as a plot shows well."""

HOTTEST: Final = 20
"""Keys named for each kind of heat."""

HOTTEST_PLACES: Final = 10
"""Partitions that the page names for each kind of heat; the table `places` has all."""

NOTE_SLICES_MAX: Final = 8
"""Slices named in one note; the table `slices` has all."""

BAR_NAMES_MAX: Final = 40
"""Slices that a plot names one by one; more are shown by rank."""

# Bulk load and export.

CLUSTER_ANSWER_S_MAX: Final = 15.0
"""The seconds for one answer of a redirector or slice that needs no work: after that, it counts as away."""

ROWS_PER_PART: Final = 1_000_000
"""Memberships sorted by one Spark task: about 100 MB, in memory."""

CHUNKS_PER_BATCH: Final = 64
"""Chunks in one Arrow batch, about 50 KB each: a few MB between Python and the JVM."""

IMPORT_ATTEMPTS_MAX: Final = 6
RETRY_S: Final = 5.0
"""Attempts of an import, and the seconds between two. A slice that restarts is back within seconds, and the import goes
on; one that stays away ends the load."""

PROGRESS_S: Final = 2.0
"""The seconds between two lines of progress of a load."""

SLICES_AT_ONCE_MAX: Final = 64
"""Slices imported into at the same time: each takes a thread of the driver. Spark runs as many tasks as it has
cores."""

HEADS_AT_ONCE_MAX: Final = 32
"""Heads of segments read at the same time when a query is planned: 16,000 of them, at 1 ms each over NFS, take half a
second."""

REFUSALS_SHOWN_MAX: Final = 100
"""Refused queues that are named, for each slice; all are counted."""

MARKED_POINTS_MAX: Final = 40
"""The most points of a line that a plot marks one by one: with more, the marks touch."""

UPRIGHT_NAMES_MAX: Final = 12
"""The most bars whose names stand side by side in a plot; with more bars, names are turned."""
