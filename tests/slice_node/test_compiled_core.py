"""The compiled core: it passes the core's own tests, a node runs it, and one older than its source is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shoal_slice_node import core_stamp

ROOT = Path(__file__).parents[2]
BUILD_S = 900
RUN_S = 600
TIMED = "test_loop_steps"
"""Measures steps: where they are short in plain Python, they are shorter compiled."""
SLOW = (
    "test_out_of_turn",
    "test_out_of_turn_workers",
    "test_out_of_turn_model",
    "test_small_deliveries",
    "test_logs_read",
)
"""A third of the time: on the compiled core they are part of `make test-long`."""
IMPORTED = re.compile(r"^\s*(?:from|import) (shoal_slice_node\.\w+|tests\.[\w.]+)(?: import (.*))?", re.MULTILINE)
TELL = """
from shoal_slice_node import core_choice
print(core_choice.refusal() or "fits")
from shoal_slice_node.core import limits
print(core_choice.running_core())
"""


def run(words: list[str], *, folder: Path = ROOT, **named: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SHOAL_"))}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={**environment, **named}, capture_output=True, text=True,
        timeout=BUILD_S, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def compiled() -> Path:
    """The checkout's compiled core, brought up to date."""
    folder = core_stamp.checkout_folder()
    assert folder is not None
    done = run(["slice_node/compile_core.py", str(folder), "--if-possible"])
    assert done.returncode == 0, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    if core_stamp.why_unusable(folder):
        if re.search("no C compiler|headers are not installed|is not installed", last):
            pytest.skip(last)
        pytest.fail(last)
    return folder


def test_a_machine_without_a_c_compiler_is_told_that_it_runs_plain_python(tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    for named, code in ((["--if-possible"], 0), ([], 1)):
        done = run(["slice_node/compile_core.py", str(folder), *named], PATH="", CC="")
        assert (done.returncode, done.stdout, folder.exists()) == (code, "", False)
        assert done.stderr == (
            "the core stays plain Python, which does the same, only slower: there is no C compiler (gcc or clang)\n"
        )


def test_what_mypyc_warns_of_is_shown_only_where_it_fails(tmp_path: Path) -> None:
    noisy = """
import sys
sys.path.insert(0, "slice_node")
import mypyc.build
def mypycify(*_, **__):
    print("x.py:1: warning: noise")
    sys.stderr.write("more noise\\n")
    if FAILS: sys.exit(2)
    return []
mypyc.build.mypycify = mypycify
import compile_core
from pathlib import Path
try:
    compile_core.extensions(Path(sys.argv[1]))
except compile_core.CannotCompile as error:
    print(error)
"""
    quiet, failed = (run(["-c", noisy.replace("FAILS", fails), str(tmp_path)]) for fails in ("False", "True"))
    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert failed.stdout == "mypyc ended with 2: x.py:1: warning: noise\nmore noise\n"


def test_a_source_that_changes_while_it_is_compiled_is_noticed(tmp_path: Path) -> None:
    changing = """
import sys
sys.path.insert(0, "slice_node")
import compile_core
from pathlib import Path
from shoal_slice_node import core_stamp
folder, now = Path(sys.argv[1]), ["before"]
def compile_into(made, *_):
    made.mkdir()
    now[0] = "after"
    return 0
compile_core.compile_into = compile_into
compile_core.sources_digest = core_stamp.sources_digest = lambda: now[0]
compile_core.bring_up_to_date(folder)
print(core_stamp.why_unusable(folder))
"""
    assert run(["-c", changing, str(tmp_path / "core")]).stdout == "is older than its source\n"


def core_tests() -> list[str]:
    """The tests of the core alone: of the slice node neither they nor what they import takes anything else."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py")}
    for name in (Path(__file__).stem, TIMED):
        del texts[name]
    return [name for name in sorted(texts) if name.startswith("test_") and used(name, texts, set()) == {"core"}]


def used(name: str, texts: Mapping[str, str], seen: set[str]) -> set[str]:
    """Which parts of the slice node a test module or what it imports takes."""
    seen.add(name)
    found: set[str] = set()
    for module, _ in IMPORTED.findall(texts[name]):
        package, _, part = module.partition(".")
        if package == "shoal_slice_node":
            found.add(part)
        elif (other := module.rpartition(".")[2]) in texts and other not in seen:
            found |= used(other, texts, seen)
    return found


@pytest.mark.slow
@pytest.mark.timeout(BUILD_S + RUN_S)
@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_cores_tests_pass_on_the_compiled_core(compiled: Path, slow: bool) -> None:
    files = [f"tests/slice_node/{name}.py" for name in core_tests() if (name in SLOW) is slow]
    assert len(files) == len(SLOW) if slow else len(files) >= 100
    words = ["-m", "pytest", "-q", "-p", "tests.slice_node.on_compiled_core", "-p", "no:cacheprovider", *files]
    done = run(words, SHOAL_CORE="compiled")
    assert done.returncode == 0, done.stdout[-5000:]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", done.stdout)}
    assert counts["passed"] >= 4 * counts.get("skipped", 0), "most tests hold for both cores"


def test_a_checkout_runs_plain_python_unless_it_is_told_otherwise(compiled: Path) -> None:
    for named, told in (({}, "python"), ({"SHOAL_CORE": "python"}, "python"), ({"SHOAL_CORE": "compiled"}, "compiled")):
        assert run(["-c", TELL], folder=ROOT, **named).stdout.split() == ["fits", told]


def wheel_like(folder: Path, compiled: Path) -> Path:
    """Both packages as a wheel brings them."""
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "contract" / "shoal_contract", folder / "shoal_contract", ignore=left_out)
    shutil.copytree(core_stamp.PACKAGE, folder / "shoal_slice_node", ignore=left_out)
    shutil.copytree(compiled, folder / "shoal_slice_node" / "compiled")
    return folder


def test_an_installed_core_runs_by_itself_and_is_refused_once_a_source_is_newer(compiled: Path, tmp_path: Path) -> None:
    folder = wheel_like(tmp_path, compiled)

    def told(**named: str) -> subprocess.CompletedProcess[str]:
        return run(["-c", TELL], folder=folder, PYTHONPATH=str(folder), **named)

    assert told().stdout.split() == ["fits", "compiled"]
    for changed in ("shoal_slice_node/core/rows/ids.py", "shoal_contract/limits.py"):
        text = (folder / changed).read_text(encoding="utf-8")
        (folder / changed).write_text(f"{text}\n", encoding="utf-8")
        for named in ({}, {"SHOAL_CORE": "compiled"}):
            done = told(**named)
            assert done.returncode == 1
            assert "is older than its source: reinstall Shoal, or set SHOAL_CORE=python" in done.stderr, changed
        assert told(SHOAL_CORE="python").stdout.split() == ["fits", "python"]
        (folder / changed).write_text(text, encoding="utf-8")
    assert told().stdout.split() == ["fits", "compiled"]
    (folder / "shoal_slice_node" / "compiled" / core_stamp.STAMP_FILE).unlink()
    assert "is missing or was not compiled to its end" in told().stderr


def test_a_node_says_in_one_line_why_it_does_not_start() -> None:
    words = ["-m", "shoal_slice_node", "--slice", "s01", "--node", "n01", "--listen", "127.0.0.1:0", "--standalone"]
    done = run([*words, "--data", "nowhere"], SHOAL_CORE="fast")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "shoal_slice_node: SHOAL_CORE=fast: it must be python, compiled or auto\n"


def test_a_node_and_its_children_run_the_core_that_it_names(compiled: Path, tmp_path: Path) -> None:
    words = ["-m", "shoal_slice_node", "--slice", "s01", "--node", "n01", "--listen", "127.0.0.1:0", "--standalone"]
    for core in ("python", "compiled"):
        process = subprocess.Popen(
            [sys.executable, *words, "--data", str(tmp_path / core)], env={**os.environ, "SHOAL_CORE": core},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        mapped = [core_stamp.LIBRARY in Path(f"/proc/{child}/maps").read_text() for child in children]
        process.terminate()
        _, log = process.communicate(timeout=RUN_S)
        assert (ready["core"], process.returncode) == (core, 0)
        assert mapped == [core == "compiled"] * len(mapped) and mapped
        assert f"runs the {core} core" in log
