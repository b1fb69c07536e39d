"""Checks, before Spark starts, what it needs on a machine: its Python libraries and a Java."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from shoal_contract.errors import BadCall

LIBRARIES: Final = ("pyspark", "pandas", "pyarrow", "matplotlib", "numpy")


def check_libraries() -> None:
    """Raises BadCall for a missing library, and says what to install."""
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise BadCall(f"{name} is missing: pip install 'shoal[spark]'", subject=name)


def check_java(environment: Mapping[str, str]) -> None:
    """Raises BadCall where there is no Java, and says what to install."""
    home = environment.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise BadCall(f"JAVA_HOME is {home}, which has no bin/java: set it to a Java 17 or 21", subject="JAVA_HOME")
    if not home and shutil.which("java", path=environment.get("PATH")) is None:
        text = "Java is missing: install a Java 17 or 21 runtime (Debian: apt install openjdk-17-jre-headless)"
        raise BadCall(f"{text}, or set JAVA_HOME", subject="java")
