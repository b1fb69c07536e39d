"""`shoal pipeline`: starts a Spark job as a process of its own, after a look whether Spark can run here at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from shoal_contract.errors import BadCall


def run_job(arguments: Sequence[str]) -> int:
    """The job's exit code. Raises BadCall where Java or PySpark is missing."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    check_spark(environment)
    return subprocess.run([sys.executable, "-m", "shoal_pipeline", *arguments], env=environment, check=False).returncode


def check_spark(environment: dict[str, str]) -> None:
    """Raises BadCall and says what to install."""
    if find_spec("pyspark") is None:
        raise BadCall("PySpark is missing: pip install 'shoal[spark]'", subject="pyspark")
    home = environment.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise BadCall(f"JAVA_HOME is {home}, which has no bin/java: set it to a Java 17 or 21", subject="JAVA_HOME")
    if not home and shutil.which("java", path=environment.get("PATH")) is None:
        text = "Java is missing: install a Java 17 or 21 runtime (Debian: apt install openjdk-17-jre-headless)"
        raise BadCall(f"{text}, or set JAVA_HOME", subject="java")
