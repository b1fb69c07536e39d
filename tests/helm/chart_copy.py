"""A copy of the chart with changes: what Helm would find in a cluster, another version of the chart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python
import yaml

from shoal_chart.chart import CHART, Manifest, Values

LOOKUP = (
    '{{- lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-slice" (include "shoal.name" .)) | toJson -}}'
)


def copied(folder: Path, *, living: Mapping[str, Any] | None = None, version: str = "") -> Path:
    """`living`: the slices' StatefulSet that Helm finds; rendering here asks no cluster. `version`: of the chart."""
    chart = folder / "shoal"
    shutil.copytree(CHART, chart)
    if living is not None:
        checks = chart / "templates" / "_checks.tpl"
        text = checks.read_text(encoding="utf-8")
        assert text.count(LOOKUP) == 1
        checks.write_text(text.replace(LOOKUP, json.dumps(living)), encoding="utf-8")
    if version:
        about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
        (chart / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": version}), encoding="utf-8")
    return chart


def rendered(chart: Path, values: Values) -> list[Manifest]:
    """As shoal_chart.chart.render, of a copy. Raises HelmError."""
    with helm_python.Chart.load(chart) as loaded:
        loaded.validate_schema(values)
        texts = loaded.render(values, name="demo", namespace="chat", is_upgrade=True)
    files = sorted(name for name in texts if name.endswith(".yaml"))
    return [found for name in files for found in yaml.safe_load_all(texts[name]) if found is not None]
