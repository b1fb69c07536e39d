"""The sets of values that the chart's tests render: its defaults and its examples."""

from __future__ import annotations

from pathlib import Path

from shoal_chart.chart import CHART

NAMESPACE = "chat"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
FILES: dict[str, tuple[Path, ...]] = {"defaults": (), **{file.stem: (file,) for file in EXAMPLES}}
