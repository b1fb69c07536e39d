"""What an upgrade may change and what it may not: refused by name before anything is sent, or without a restart."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import helm_python
import pytest

from shoal_chart.chart import CHART, Manifest, merged, read_values, render
from shoal_chart.pods import template_of, workloads
from tests.helm.chart_copy import copied, rendered

VALUES: dict[str, Any] = {"slices": {"persistence": {"size": "200Gi", "storageClass": "network-ssd"}}}


def slices_of(manifests: list[Manifest]) -> Manifest:
    (found,) = [one for one in manifests if one["kind"] == "StatefulSet" and one["metadata"]["name"].endswith("-slice")]
    return found


@pytest.fixture(scope="module")
def living() -> Manifest:
    """What an install with VALUES has made."""
    return slices_of(render(VALUES))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another name": (
        {"cluster": {"name": "other"}, "slices": {"count": 4}},
        'cluster.name: these slices are of the cluster "shoal", not "other"',
    ),
    "more slices": ({"slices": {"count": 4}}, "slices.count: this cluster has 3 slices, not 4"),
    "fewer slices": ({"slices": {"count": 2}}, "slices.count: this cluster has 3 slices, not 2"),
    "larger volumes": (
        {"slices": {"persistence": {"size": "300Gi"}}},
        "slices.persistence.size: the slices' claims are made for 200Gi, not 300Gi",
    ),
    "another class": (
        {"slices": {"persistence": {"storageClass": "fast"}}},
        'slices.persistence.storageClass: the slices\' claims are of the class "network-ssd", not "fast"',
    ),
    "another access mode": (
        {"slices": {"persistence": {"accessMode": "ReadWriteOncePod"}}},
        "slices.persistence.accessMode: the slices' claims are ReadWriteOnce, not ReadWriteOncePod",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_change_is_refused_with_what_to_do(case: str, living: Manifest, tmp_path: Path) -> None:
    changed, sentence = REFUSED[case]
    with pytest.raises(helm_python.HelmError) as refused:
        rendered(copied(tmp_path, living=living), merged(VALUES, changed))
    text = str(refused.value).replace("\\", "")
    assert sentence in text
    assert "Nothing was changed" in text
    if "persistence" in sentence:
        assert 'docs/kubernetes.md, "Grow a volume", says how' in text
        guide = (CHART.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
        assert "## Grow a volume" in guide


def test_what_a_living_release_does_not_hold_may_change(living: Manifest, tmp_path: Path) -> None:
    chart = copied(tmp_path, living=living)
    for changed in ({}, {"slices": {"memoryMiB": 4096, "stopSeconds": 90}}, {"image": {"tag": "0.2.0"}}):
        assert rendered(chart, merged(VALUES, changed))
    without_class = merged(VALUES, {"slices": {"persistence": {"storageClass": ""}}})
    assert rendered(chart, without_class), "empty means: whatever there is"


@pytest.mark.parametrize(
    ("held", "wanted", "same"),
    [
        ("1Ti", "1024Gi", True),
        ("1536Mi", "1.5Gi", True),
        ("200Gi", "200G", False),
        ("20Gi", "20.5Gi", False),
    ],
)
def test_sizes_are_compared_by_their_bytes(
    held: str, wanted: str, same: bool, living: Manifest, tmp_path: Path
) -> None:
    """The API server writes them in its own way."""
    found = deepcopy(living)
    found["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = held
    chart, values = copied(tmp_path, living=found), merged(VALUES, {"slices": {"persistence": {"size": wanted}}})
    if same:
        assert rendered(chart, values)
    else:
        with pytest.raises(helm_python.HelmError, match=r"slices\.persistence\.size"):
            rendered(chart, values)


def test_the_first_install_and_a_checked_off_check_compare_nothing(living: Manifest, tmp_path: Path) -> None:
    assert rendered(copied(tmp_path / "a", living={}), VALUES)
    off = merged(VALUES, {"cluster": {"name": "other", "checkBeforeUpgrade": False}})
    assert rendered(copied(tmp_path / "b", living=living), off)


def test_a_release_of_the_chart_alone_restarts_nothing(tmp_path: Path) -> None:
    values = read_values([CHART / "examples" / "three-slices.yaml"])
    before, after = (rendered(copied(tmp_path / one, version=one), values) for one in ("0.1.0", "0.1.1"))
    templates = [
        {(one["kind"], one["metadata"]["name"]): template_of(one) for one in workloads(manifests)}
        for manifests in (before, after)
    ]
    assert templates[0] == templates[1]
    versions = {slices_of(manifests)["metadata"]["labels"]["helm.sh/chart"] for manifests in (before, after)}
    assert versions == {"shoal-0.1.0", "shoal-0.1.1"}


def test_a_new_version_of_the_program_restarts_everything() -> None:
    before, after = (slices_of(render({"image": {"tag": tag}})) for tag in ("0.1.0", "0.2.0"))
    assert template_of(before) != template_of(after)
