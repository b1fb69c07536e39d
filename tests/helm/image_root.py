"""The image without a container engine: the Dockerfile's own lines, run one after the other in an empty root.

Each RUN is a shell inside the root (chroot, in a mount namespace of its own). COPY takes only what the .dockerignore
lets in. pip finds its files in a folder that was filled before, from the index, by the same lists: the hashes are
checked all the same. Programs are started as Kubernetes starts them: user 65532, no capabilities, no new privileges,
every file read-only but the mounts. Not here: the base (base_root.py), the format (dockerfile.py).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.helm.base_root import RUN_S, add_libraries, make_base
from tests.helm.dockerfile import HELM, read_stages, variables, whole

ROOT = HELM.parent
WHEELHOUSE = ROOT / ".tools" / "image-wheels"
BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = "65532"
FETCH_S = 300


_LAID_OUT = "import sys, sysconfig; sys.exit(sysconfig.get_default_scheme() != 'posix_prefix')"


def possible() -> bool:
    """Whether this machine lets us: root's rights, the tools for it, and a Python that is laid out as the image's:
    Debian's own keeps its packages elsewhere, and has no ensurepip outside of virtual environments."""
    tools = all(
        shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for tool in ("unshare", "chroot", "ldd")
    )
    asked = ["unshare", "--mount", "true"]
    laid_out = [str(Path(sys.base_prefix) / "bin" / "python3"), "-c", _LAID_OUT]
    return (
        tools
        and os.geteuid() == 0
        and all(
            subprocess.run(command, check=False, capture_output=True).returncode == 0 for command in (asked, laid_out)
        )
    )


def fetch_wheels(*lists: str) -> Path:
    """The files of some of helm/requirements*.txt, each checked against its hash; kept for the next time."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    for name in lists:
        command = [*pip, "--dest", str(WHEELHOUSE), "--find-links", str(WHEELHOUSE), "--requirement", str(HELM / name)]
        subprocess.run(command, check=True, timeout=FETCH_S)
    return WHEELHOUSE


class ImageRoot:
    """The image's file system, below `folder`. Made stage by stage: `build`, then `runtime` with what is copied."""

    def __init__(self, folder: Path) -> None:
        self.stages = read_stages((HELM / "Dockerfile").read_text(encoding="utf-8"))
        self._folder = folder
        self._made: dict[str, Path] = {}

    def make(self, target: str) -> Path:
        """Runs the instructions of a stage, and of those that it needs. Returns its root."""
        if target not in self._made:
            root = self._folder / target
            root.mkdir(parents=True)
            make_base(root)
            self._made[target] = root
            self._run(root, ["python", "-m", "ensurepip"], {"PATH": BASE_PATH})
            shell = '#!/bin/sh\nexec python -m pip "$@"\n'
            (root / "usr/local/bin/pip").write_text(shell)
            (root / "usr/local/bin/pip").chmod(0o755)
            # The root has no packages of Debian, so no compiler: Shoal's wheel is made without the compiled core.
            (root / "usr/local/bin/apt-get").write_text("#!/bin/sh\nexit 0\n")
            (root / "usr/local/bin/apt-get").chmod(0o755)
            for number, (word, rest) in enumerate(whole(self.stages, target)):
                self._instruct(root, target, number, word, rest)
        return self._made[target]

    def environment(self, target: str) -> dict[str, str]:
        return variables(whole(self.stages, target), BASE_PATH)

    def command(self, target: str, mounts: Mapping[str, Path], words: Sequence[str]) -> list[str]:
        """How a pod with these volumes starts a program of the image; its environment is not in it."""
        root = self._made[target]
        steps = ["mount --make-rprivate /", f"mount -t proc proc {root}/proc"]
        for place, source in mounts.items():
            (root / place.removeprefix("/")).mkdir(parents=True, exist_ok=True)
            steps.append(f"mount --bind {shlex.quote(str(source))} {root}{place}")
        locked = [f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}"]
        user = f"setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all"
        work = next(rest for word, rest in reversed(whole(self.stages, target)) if word == "WORKDIR")
        start = f'exec chroot {root} sh -c \'cd {work} && exec {user} --pdeathsig=TERM -- "$@"\' sh "$@"'
        script = "; ".join(["set -e", steps[0], *locked, *steps[1:], start])
        return ["unshare", "--mount", "sh", "-c", script, "sh", *words]

    def run(
        self, target: str, *words: str, mounts: Mapping[str, Path] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One program of the image, as a pod would run it, to its end."""
        command = self.command(target, mounts or {}, words)
        environment = self.environment(target)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False)

    def _instruct(self, root: Path, target: str, number: int, word: str, rest: str) -> None:
        instructions = whole(self.stages, target)
        before = variables(instructions[:number], BASE_PATH)
        folder = next((text for found, text in reversed(instructions[:number]) if found == "WORKDIR"), "/")
        if word == "WORKDIR":
            (root / rest.removeprefix("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            self._copy(root, rest, folder)
        elif word == "RUN":
            arguments = dict(text.partition("=")[::2] for found, text in instructions[:number] if found == "ARG")
            found_here = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheelhouse"}
            self._run(root, ["sh", "-ec", f"cd {folder}; {rest}"], before | arguments | {"CORE": "auto"} | found_here)
        else:
            assert word in ("ENV", "ARG", "LABEL", "CMD", "USER"), word

    def _copy(self, root: Path, rest: str, folder: str) -> None:
        *sources, to = rest.split()
        if sources[0].startswith("--from="):
            stage = self.make(sources[0].removeprefix("--from="))
            shutil.copytree(stage / sources[1].removeprefix("/"), root / to.removeprefix("/"), symlinks=True)
            add_libraries(root, (root / to.removeprefix("/")).rglob("*.so*"))
            return
        for source in sources:
            place = root / folder.removeprefix("/") / to
            target = place / Path(source).name if to.endswith("/") else place
            assert let_in(source), f"{source} is not in the build's context"
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(ROOT / source, target)

    def _run(self, root: Path, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """As root, in the root, with the wheels at hand. Raises CalledProcessError."""
        (root / "wheelhouse").mkdir(exist_ok=True)
        steps = ["set -e", "mount --make-rprivate /", f"mount -t proc proc {root}/proc"]
        steps.append(f"mount --bind {WHEELHOUSE} {root}/wheelhouse")
        script = "; ".join([*steps, f'exec chroot {root} "$@"'])
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *words]
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=RUN_S, check=False
        )
        (root / "wheelhouse").rmdir()
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def let_in(path: str) -> bool:
    """Whether the .dockerignore lets a source into the build's context."""
    lines = (HELM / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    return any(fnmatch(path, line.removeprefix("!")) for line in lines if line.startswith("!"))


@dataclass(frozen=True)
class Target:
    """One target of the image, as pods of the rendered chart use it."""

    image: ImageRoot
    name: str

    def environment(self) -> dict[str, str]:
        return self.image.environment(self.name)

    def command(self, mounts: Mapping[str, Path], words: Sequence[str]) -> list[str]:
        return self.image.command(self.name, mounts, words)
