"""`shoal pipeline`: starts a Spark job as a process of its own. The job itself reports what else is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from shoal_ops.extras import require


def run_job(arguments: Sequence[str]) -> int:
    """Returns the job's exit code. Raises BadCall where Spark's libraries are missing."""
    require("shoal pipeline", "pyspark")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    return subprocess.run([sys.executable, "-m", "shoal_pipeline", *arguments], env=environment, check=False).returncode
