"""Makes a pod's volumes as folders of this machine. A path in an argument that lies on no volume is an error: a
container can write nowhere else, and nothing else of it is on this machine.

Belongs here: claims, secrets, empty folders, paths. Not here: their sizes and classes.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from shoal_chart.chart import Manifest
from shoal_chart.pods import Pod

_SECRET_MODE = 0o644
"""The mode of a Secret's files, where a pod asks for none."""
_PATH = re.compile(r"(?<![\w/:.])/[\w./-]+")


class Volumes:
    """Makes volumes below `folder`. `secrets`: contents by name and key, for Secrets that are not among the
    manifests."""

    def __init__(
        self, folder: Path, manifests: Iterable[Manifest], secrets: Mapping[str, Mapping[str, bytes]] | None = None
    ) -> None:
        self._folder = folder
        manifests = list(manifests)
        self._claims = {one["metadata"]["name"] for one in manifests if one["kind"] == "PersistentVolumeClaim"}
        self._secrets: dict[str, dict[str, bytes]] = {name: dict(held) for name, held in (secrets or {}).items()}
        for one in manifests:
            if one["kind"] == "Secret":
                contents = {key: base64.b64decode(value) for key, value in one["data"].items()}
                self._secrets[one["metadata"]["name"]] = contents

    def secret(self, name: str, key: str) -> bytes:
        """Returns the content of a key of a Secret. Raises LookupError."""
        if key not in self._secrets.get(name, {}):
            raise LookupError(f"there is no Secret {name} with a key {key}")
        return self._secrets[name][key]

    def claim(self, name: str) -> Path:
        """Returns the folder of a claim; also of the claim of a set's pod (VOLUME-POD)."""
        return self._folder / "claims" / name

    def own(self, folder: Path, group: int) -> None:
        """Gives a volume to a group, as Kubernetes does with fsGroup. Needs root's rights."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, -1, group)
            if path.is_dir():
                path.chmod(0o2775)

    def mounts(self, pod: Pod, container: Mapping[str, Any]) -> dict[str, Path]:
        """Makes and fills the folders of a container's mounts. Returns them by mount path. Raises LookupError for a
        volume or Secret that is not there."""
        volumes = {one["name"]: one for one in pod.spec.get("volumes", ())}
        return {
            mount["mountPath"]: self._place(pod, mount["name"], volumes.get(mount["name"]))
            for mount in container.get("volumeMounts", ())
        }

    def _place(self, pod: Pod, name: str, volume: Mapping[str, Any] | None) -> Path:
        if volume is None:
            if name not in pod.claims:
                raise LookupError(f"{pod.name} mounts {name}, which is none of its volumes")
            folder = self.claim(f"{name}-{pod.name}")
        elif "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            if claim not in self._claims:
                raise LookupError(f"{pod.name} mounts the claim {claim}, which nothing makes")
            folder = self.claim(claim)
        else:
            folder = self._folder / "pods" / pod.name / name
        folder.mkdir(parents=True, exist_ok=True)
        if volume is not None and "secret" in volume:
            self._fill(folder, volume["secret"])
        elif volume is not None and not {"emptyDir", "persistentVolumeClaim"} & set(volume):
            raise LookupError(f"{pod.name}: a volume of the kind of {name} cannot be had here")
        return folder

    def _fill(self, folder: Path, source: Mapping[str, Any]) -> None:
        name = source["secretName"]
        if name not in self._secrets:
            raise LookupError(f"there is no Secret {name}")
        items = source.get("items") or [{"key": key, "path": key} for key in self._secrets[name]]
        for item in items:
            file = folder / item["path"]
            file.unlink(missing_ok=True)
            file.write_bytes(self.secret(name, item["key"]))
            # In a pod, the file belongs to root, and the process reads it as a member of its group. Here it may belong
            # to this user.
            file.chmod(source.get("defaultMode", _SECRET_MODE) & (0o777 if os.geteuid() == 0 else 0o700))


def translated(text: str, mounts: Mapping[str, Path]) -> str:
    """Returns an argument with every path in it translated to its volume. Raises LookupError."""

    def lead(found: re.Match[str]) -> str:
        path = PurePosixPath(found[0])
        for place in sorted(mounts, key=len, reverse=True):
            if path.is_relative_to(place):
                return str(mounts[place] / path.relative_to(place))
        raise LookupError(f"{path} lies on no volume")

    return _PATH.sub(lead, text)
