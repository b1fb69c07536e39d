"""Renders the chart's manifests with Helm's own code. Belongs here: values in, objects out. Not here: what they
mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

CHART = Path(__file__).parents[2] / "shoal"
Values = dict[str, Any]
Manifest = dict[str, Any]
"""One Kubernetes object, as YAML gives it."""


def read_values(files: Iterable[Path], settings: Sequence[str] = ()) -> Values:
    """Returns the values of files. Later files win over earlier ones, and `settings` ("a.b=1", as --set) win over all.
    Raises OSError, HelmValuesError."""
    values: Values = {}
    for file in files:
        values = merged(values, helm.values_from_yaml(file.read_text(encoding="utf-8")))
    for setting in settings:
        values = merged(values, helm.parse_set_string(setting))
    return values


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """Merges values as Helm does: mappings are merged, anything else is replaced."""
    result = dict(below)
    for key, value in above.items():
        held = result.get(key)
        both = isinstance(held, dict) and isinstance(value, dict)
        result[key] = merged(held, value) if isinstance(held, dict) and both else value
    return result


def render(values: Values, *, release: str = "demo", namespace: str = "chat") -> list[Manifest]:
    """Returns every object, in the order of Helm's files. Raises HelmError; HelmValuesError for values that the schema
    refuses."""
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name=release, namespace=namespace)
    files = sorted(name for name in texts if name.endswith(".yaml"))
    return [found for name in files for found in yaml.safe_load_all(texts[name]) if found is not None]


def notes(values: Values, *, release: str = "demo", namespace: str = "chat") -> str:
    """Returns what Helm prints after an install."""
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name=release, namespace=namespace)
    return next(text for name, text in texts.items() if name.endswith("NOTES.txt"))


def hooks_of(manifest: Manifest) -> list[str]:
    """Returns "pre-upgrade" and the like; nothing for an object of the release itself."""
    annotations = manifest["metadata"].get("annotations") or {}
    return [hook for hook in annotations.get("helm.sh/hook", "").split(",") if hook]
