"""Compiles the slice node's core with mypyc: `make compiled`, and the wheel's build hook. See COMPILED.md.

`python slice_node/compile_core.py FOLDER [--if-possible]` makes FOLDER hold one extension module for each module of the
core, the library with their code, and the stamp. It does nothing where FOLDER is up to date. With `--if-possible` it
says in one line what is missing where it cannot compile, and ends with 0.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "contract", ROOT / "slice_node")
sys.path[:0] = map(str, PACKAGES)
os.environ["SHOAL_CORE"] = "python"

from shoal_slice_node.core_stamp import (  # noqa: E402 - after the path to it
    COMPILED,
    LIBRARY,
    python_tag,
    read_stamp,
    sources_digest,
    why_unusable,
    write_stamp,
)

# Types are checked by `make check`, with every library's types; a build has only what compiling needs.
MYPY_SETTINGS = """[mypy]
mypy_path = {path}
explicit_package_bases = True
follow_imports_for_stubs = True
[mypy-google.*,grpc.*]
ignore_missing_imports = True
follow_imports = skip
"""
CORE_FLAGS = ("-O2", "-g0")
SHIM_FLAGS = ("-O0", "-g0")
FLAGS = ("-fPIC", "-fwrapv", "-DNDEBUG", "-w")


class CannotCompile(Exception):
    """Is raised where this machine cannot compile the core; the message says what is missing or what failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="compile_core", description="Compiles the slice node's core.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--if-possible", action="store_true", help="end with 0 where it cannot be compiled")
    given = parser.parse_args(arguments)
    try:
        say(bring_up_to_date(given.folder.absolute()))
    except CannotCompile as error:
        # What lies there would be refused: away with it, so that its being there says that it can be used.
        if why_unusable(given.folder):
            shutil.rmtree(given.folder, ignore_errors=True)
        say(f"the core stays plain Python, which does the same, only slower: {error}")
        return 0 if given.if_possible else 1
    return 0


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def bring_up_to_date(folder: Path) -> str:
    """Compiles into `folder` if what is there does not fit. Returns a line about what was done. Raises CannotCompile.
    Of several processes that call it at once one compiles, and the others wait."""
    mypyc = mypyc_version()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = read_stamp(folder)
        if stamp is not None and stamp.mypyc == mypyc and not why_unusable(folder):
            return "the compiled core is up to date"
        compiler = compiler_of_machine()
        say("compiling the slice node's core, once until it changes: a minute on two quiet cores")
        started_s = monotonic()
        sources = sources_digest()
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
            made = Path(place) / "made"
            modules = compile_into(made, Path(place), compiler)
            write_stamp(made, mypyc, sources)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    return f"compiled {modules} modules of the core in {monotonic() - started_s:.0f} s"


def compiler_of_machine() -> list[str]:
    """Returns the words that start the C compiler. Raises CannotCompile where it or Python's headers are missing."""
    words = shlex.split(os.environ.get("CC", "") or str(sysconfig.get_config_var("CC") or "cc"))
    found = next((name for name in (words[0], "cc", "gcc", "clang") if shutil.which(name)), None)
    if found is None:
        raise CannotCompile("there is no C compiler (gcc or clang)")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise CannotCompile("Python's headers are not installed")
    return words if found == words[0] else [found]


def mypyc_version() -> str:
    """Returns the version of mypyc. Raises CannotCompile where it or setuptools, which it needs, is not installed."""
    try:
        version("setuptools")
        return version("mypy")
    except PackageNotFoundError as error:
        raise CannotCompile(f"{error.name} is not installed") from None


def compile_into(made: Path, work: Path, compiler: Sequence[str]) -> int:
    """Compiles every module of the core into `made`. Returns how many there are. Raises CannotCompile."""
    library, *shims = extensions(work)
    folders = [f"-I{path}" for path in (*library.include_dirs, sysconfig.get_path("include"))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def compile_all(commands: Iterable[Sequence[str]]) -> None:
            for done in pool.map(run_compiler, commands):
                assert done is None

        objects = {source: f"{source}.o" for source in library.sources}
        assert len(objects) == len(library.sources)
        compile_all(
            [*compiler, "-c", source, "-o", target, *CORE_FLAGS, *FLAGS, *folders] for source, target in objects.items()
        )
        made.mkdir()
        linked = str(made / f"{LIBRARY}{python_tag()}")
        link = pool.submit(run_compiler, [*compiler, "-shared", *objects.values(), "-o", linked])
        commands = []
        for shim in shims:
            target = made / Path(*shim.name.split(".")).with_suffix(python_tag())
            target.parent.mkdir(parents=True, exist_ok=True)
            commands.append([*compiler, "-shared", *shim.sources, "-o", str(target), *SHIM_FLAGS, *FLAGS, *folders])
        compile_all(commands)
        link.result()
    return len(shims)


def extensions(work: Path) -> list[Any]:
    """Returns what mypyc makes of the core: first the library, then one small module for each of the core's. Raises
    CannotCompile."""
    from mypyc.build import mypycify
    from mypyc.ir.rtypes import bytes_rprimitive
    from mypyc.irbuild.specialize import dunder_specializers

    # mypyc 2.4.1 takes X of every `row[X]` of bytes for a number, and the core has slices as constants (key_row.ID):
    # "'slice' object cannot be interpreted as an integer". Without this shortcut it looks at the type.
    dunder_specializers.pop(("__getitem__", bytes_rprimitive), None)
    settings = work / "mypy.ini"
    settings.write_text(MYPY_SETTINGS.format(path=":".join(map(str, PACKAGES))), encoding="utf-8")
    slice_node = ROOT / "slice_node"
    sources = sorted(
        str(path.relative_to(slice_node)) for path in slice_node.joinpath(*COMPILED.split(".")).rglob("*.py")
    )
    # Relative names: they stand in tracebacks, and nothing of this machine may be in them.
    # What mypyc warns of concerns developers of the core; it is shown only where it ends with an error.
    words = StringIO()
    with chdir(slice_node), redirect_stdout(words), redirect_stderr(words):
        try:
            return list(
                mypycify(
                    [f"--config-file={settings}", f"--cache-dir={work / 'cache'}", *sources],
                    opt_level="2", debug_level="0", multi_file=True, target_dir=str(work / "c"),
                    group_name=LIBRARY.removesuffix("__mypyc"),
                )
            )  # fmt: skip
        except SystemExit as error:
            raise CannotCompile(f"mypyc ended with {error.code}: {words.getvalue()[-500:].strip()}") from None


def run_compiler(command: Sequence[str]) -> None:
    """Runs one call of the C compiler. Raises CannotCompile with the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCompile(f"{command[0]} ended with {done.returncode}: {done.stderr[-500:].strip()}")


if __name__ == "__main__":
    sys.exit(main())
