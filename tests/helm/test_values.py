"""Values: what is refused, what each is for, and what they change."""

from __future__ import annotations

import json
from typing import Any

import helm_python
import pytest
import yaml

from shoal_chart.chart import CHART, merged, notes, render
from shoal_chart.documented import documented_values, schema_values, with_table
from shoal_chart.pods import template_of
from shoal_contract.limits import PARTITIONS_DEFAULT, PARTITIONS_MAX
from shoal_coordination.limits import ENDPOINTS_MAX, NAME_CHARACTERS_MAX

EXTERNAL: dict[str, Any] = {"builtIn": {"enabled": False}, "external": {"endpoints": ["etcd:2379"]}}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a word that means nothing": ({"slizes": {"count": 3}}, "slizes"),
    "a word that means nothing, deeper": ({"slices": {"cuont": 3}}, "cuont"),
    "no slices": ({"slices": {"count": 0}}, "/slices/count"),
    "slices in words": ({"slices": {"count": "three"}}, "/slices/count"),
    "too many partitions": ({"cluster": {"partitions": PARTITIONS_MAX + 1}}, "/cluster/partitions"),
    "a name that etcd's keys cannot have": ({"cluster": {"name": "My Cluster"}}, "/cluster/name"),
    "a cluster's name that is too long": ({"cluster": {"name": "a" * (NAME_CHARACTERS_MAX + 1)}}, "/cluster/name"),
    "an image that floats": ({"image": {"tag": "latest"}}, "/image/tag"),
    "a digest that is none": ({"image": {"digest": "sha256:12"}}, "/image/digest"),
    "an etcd that floats": ({"etcd": {"builtIn": {"image": "quay.io/coreos/etcd"}}}, "/etcd/builtIn/image"),
    "an etcd that floats by name": ({"etcd": {"builtIn": {"image": "etcd:latest"}}}, "/etcd/builtIn/image"),
    "root": ({"pods": {"userId": 0}}, "/pods/userId"),
    "a size without its unit": ({"slices": {"persistence": {"size": "20"}}}, "/slices/persistence/size"),
    "an access mode for many": ({"slices": {"persistence": {"accessMode": "ReadWriteMany"}}}, "accessMode"),
    "no etcd at all": ({"etcd": {"builtIn": {"enabled": False}}}, "/etcd/external/endpoints"),
    "two etcds": ({"etcd": {"external": {"endpoints": ["etcd:2379"]}}}, "/etcd/external/endpoints"),
    "an endpoint as a URL": (
        {"etcd": merged(EXTERNAL, {"external": {"endpoints": ["https://etcd:2379"]}})},
        "/etcd/external/endpoints/0",
    ),
    "more endpoints than the client takes": (
        {"etcd": merged(EXTERNAL, {"external": {"endpoints": ["etcd:2379"] * (ENDPOINTS_MAX + 1)}})},
        "/etcd/external/endpoints",
    ),
    "a login without a password": ({"etcd": merged(EXTERNAL, {"external": {"user": {"name": "shoal"}}})}, "user"),
    "a certificate without its secret": (
        {"etcd": merged(EXTERNAL, {"external": {"tls": {"clientCertificate": True}}})},
        "/etcd/external/tls",
    ),
    "an ingress without a host": ({"admin": {"ingress": {"enabled": True, "tlsSecret": "x"}}}, "/admin/ingress/host"),
    "an ingress without TLS": ({"admin": {"ingress": {"enabled": True, "host": "a.example"}}}, "tlsSecret"),
    "a census without an archive": ({"census": {"enabled": True}}, "/archive/enabled"),
    "a schedule that is none": ({"census": {"schedule": "daily"}}, "/census/schedule"),
    "a peer of no known kind": ({"networkPolicy": {"clientsFrom": [{"pods": {}}]}}, "clientsFrom"),
    "a peer that is everyone": ({"networkPolicy": {"clientsFrom": [{}]}}, "clientsFrom"),
    "a service of another kind": ({"redirector": {"service": {"type": "NodePort"}}}, "/redirector/service/type"),
    "a scaler upside down": (
        {"redirector": {"autoscaling": {"enabled": True, "minReplicas": 4, "maxReplicas": 2}}},
        "maxReplicas is below minReplicas",
    ),
    "more slices than partitions": (
        {"slices": {"count": 10}, "cluster": {"partitions": 4}},
        "slices.count is 10 and cluster.partitions 4",
    ),
    "more memory asked for a slice than it may take": (
        {"slices": {"memoryMiB": 640, "resources": {"requests": {"memory": "2Gi"}}}},
        "slices.resources.requests.memory is 2Gi, above its limit of 640Mi, which is slices.memoryMiB",
    ),
    "more memory asked for a redirector than it may take": (
        {"redirector": {"resources": {"requests": {"memory": 1 << 29}}}},
        "redirector.resources.requests.memory is 536870912, above its limit of 256Mi",
    ),
    "more processor asked for a slice than it may take": (
        {"slices": {"resources": {"limits": {"cpu": "400m"}}}},
        "slices.resources.requests.cpu is 500m, above its limit of 400m",
    ),
    "more memory asked for admin than it may take": (
        {"admin": {"resources": {"requests": {"memory": "1.5Gi"}}}},
        "admin.resources.requests.memory is 1.5Gi, above its limit of 512Mi",
    ),
    "more memory asked for etcd than it may take": (
        {"etcd": {"builtIn": {"resources": {"requests": {"memory": "1e9"}}}}},
        "etcd.builtIn.resources.requests.memory is 1e9, above its limit of 512Mi",
    ),
    "more memory asked for the census than it may take": (
        {"archive": {"enabled": True}, "census": {"enabled": True, "resources": {"requests": {"memory": "1Ti"}}}},
        "census.resources.requests.memory is 1Ti, above its limit of 4Gi",
    ),
    "more of a large unit asked than a slice may take": (
        {"slices": {"resources": {"requests": {"memory": "8Ei"}}}},
        "slices.resources.requests.memory is 8Ei, above its limit of",
    ),
    "more of a small unit asked than a slice may take": (
        {"slices": {"resources": {"requests": {"cpu": "1500000000n"}, "limits": {"cpu": 1}}}},
        "slices.resources.requests.cpu is 1500000000n, above its limit of 1",
    ),
    "a request in words": ({"slices": {"resources": {"requests": {"memory": "abc"}}}}, "/resources/requests/memory"),
    "a request of nothing": ({"admin": {"resources": {"requests": {"memory": ""}}}}, "/resources/requests/memory"),
    "a request below zero": ({"redirector": {"resources": {"requests": {"cpu": "-1"}}}}, "/resources/requests/cpu"),
    "a limit below zero": ({"slices": {"resources": {"limits": {"cpu": -1}}}}, "/resources/limits/cpu"),
    "a claim that a journal fills": (
        {"slices": {"persistence": {"size": "64Mi"}}},
        "slices.persistence.size is 64Mi; it needs 1Gi or more",
    ),
    "a claim that is a little too small": (
        {"slices": {"persistence": {"size": "1G"}}},
        "slices.persistence.size is 1G; it needs 1Gi or more",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_values_are_refused_by_name(case: str) -> None:
    values, named = REFUSED[case]
    with pytest.raises(helm_python.HelmError) as refused:
        render(values)
    assert named in str(refused.value).replace("'", "")


def test_the_neighbours_of_bad_values_pass() -> None:
    good: list[dict[str, Any]] = [
        {"etcd": EXTERNAL},
        {"pods": {"userId": 1}},
        {"cluster": {"partitions": PARTITIONS_MAX}},
        {"admin": {"ingress": {"enabled": True, "host": "a.example", "plainText": True}}},
        {"archive": {"enabled": True}, "census": {"enabled": True}},
        {"networkPolicy": {"clientsFrom": [], "adminFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}},
        {"admin": {"enabled": False}, "global": {"x": 1}},
        {"slices": {"count": 4, "persistence": {"size": "1Gi"}}, "cluster": {"partitions": 4}},
        {"slices": {"memoryMiB": 1024, "resources": {"limits": {"cpu": 0.5}}}},
        {"slices": {"memoryMiB": 1 << 20, "resources": {"requests": {"memory": 1 << 40}}}},
        {"redirector": {"resources": {"requests": {"memory": "268435456000m"}}}},
        {"admin": {"resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}}},
        {"admin": {"resources": {"requests": {"cpu": "3"}, "limits": None}}},
        {"admin": {"enabled": False, "resources": {"requests": {"memory": "99Gi"}}}},
        {"etcd": merged(EXTERNAL, {"builtIn": {"resources": {"requests": {"memory": "99Gi"}}}})},
        {"census": {"resources": {"requests": {"memory": "99Gi"}}}},
        {"slices": {"persistence": {"size": "10Pi"}}},
        {"slices": {"resources": {"requests": {"cpu": "100u"}, "limits": {"cpu": "1m"}}}},
        {"slices": {"resources": {"requests": {"cpu": ".5"}, "limits": {"cpu": "500m"}}}},
    ]
    for values in good:
        assert render(values)


def test_every_value_is_documented_and_in_the_schema() -> None:
    documented = documented_values()
    assert len(documented) > 60
    assert [one.name for one in documented if not one.text.endswith(".")] == []
    assert sorted(one.name for one in documented) == sorted(schema_values())


def test_the_table_in_the_readme_is_current() -> None:
    readme = (CHART.parent / "README.md").read_text(encoding="utf-8")
    assert with_table(readme) == readme, "stale: run `make chart`"


def test_defaults_agree_with_the_program() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert defaults["cluster"]["partitions"] == PARTITIONS_DEFAULT
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["cluster"]["properties"]["partitions"]["maximum"] == PARTITIONS_MAX


def test_the_token_is_random_unless_it_is_given() -> None:
    def secrets(values: dict[str, Any]) -> list[dict[str, str]]:
        return [one["data"] for one in render(values) if one["kind"] == "Secret"]

    (first,), (second,) = secrets({}), secrets({})
    assert len(first["token"]) >= 43
    assert first != second
    given = {"admin": {"token": {"existingSecret": "mine", "key": "word"}}}
    assert secrets(given) == []
    (admin,) = [one for one in render(given) if one["kind"] == "Deployment" and "admin" in one["metadata"]["name"]]
    (secret,) = [one["secret"] for one in template_of(admin)["spec"]["volumes"] if "secret" in one]
    assert secret == {"secretName": "mine", "defaultMode": 0o440, "items": [{"key": "word", "path": "token"}]}


def test_a_digest_wins_over_a_tag() -> None:
    digest = f"sha256:{'ab' * 32}"
    images = {
        container["image"]
        for one in render({"image": {"repository": "host:5000/shoal", "tag": "1", "digest": digest}})
        if one["kind"] == "Deployment"
        for container in template_of(one)["spec"]["containers"]
    }
    assert images == {f"host:5000/shoal@{digest}"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "plain text"),
        ({}, "number of slices is fixed"),
        ({}, "built-in etcd is for trials"),
        ({"networkPolicy": {"enabled": False}}, "network policy is OFF"),
        ({"admin": {"ingress": {"enabled": True, "host": "a.example", "plainText": True}}}, "no TLS, as asked for"),
    ],
)
def test_the_notes_say_what_to_mind(values: dict[str, Any], said: str) -> None:
    assert said in notes(values)
