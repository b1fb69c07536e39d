"""An empty root with what the image's base has: Python in /usr/local, a shell, the tools of accounts, their libraries.

It stands in for the base where no container engine can fetch it: this machine's own files, copied by name, with every
library that they need and nothing else. Not here: what the Dockerfile adds (image_root.py).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

TOOLS = ("sh", "env", "ls", "cat", "rm", "mkdir", "id", "groupadd", "useradd", "setpriv")
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
    "etc/gshadow": "root:*::\n",
    "etc/login.defs": "UID_MAX 65533\nGID_MAX 65533\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/ld.so.conf": "/usr/local/lib\n",
}
DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}
_NEEDED = re.compile(r"(?:=> )?(/[^ ]+) \(0x")
LOADED_BY_NAME = ("libgcc_s.so.1",)
"""pthread_exit(3) loads it: pip aborted now and then where it was not there. Every base image of Debian has it."""
RUN_S = 120


def make_base(root: Path) -> None:
    """Fills an empty folder. Needs root's rights (devices)."""
    for folder in ("bin", "dev", "proc", "tmp", "root", "usr/bin", "usr/sbin", "usr/local/bin", "var", "opt", "home"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "root").chmod(0o700)
    for name, text in ACCOUNTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    for name, (major, minor) in DEVICES.items():
        os.mknod(root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        (root / "dev" / name).chmod(0o666)
    for tool in TOOLS:
        _copy_program(root, tool)
    _copy_python(root)
    add_libraries(root, root.joinpath("usr/local").rglob("*"))
    _copy_loaded_by_name(root)
    subprocess.run(["ldconfig", "-r", str(root)], check=True, timeout=RUN_S)


def add_libraries(root: Path, files: Iterable[Path]) -> None:
    """Copies every system library that one of `files` needs and that lies at the same place of this machine."""
    binaries = [str(path) for path in files if path.is_file() and not path.is_symlink() and _is_elf(path)]
    if not binaries:
        return
    told = subprocess.run(["ldd", *binaries], capture_output=True, text=True, timeout=RUN_S, check=False).stdout
    for library in sorted(set(_NEEDED.findall(told))):
        if not library.startswith((str(root), sys.base_prefix)):
            target = root / library.removeprefix("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(Path(library).resolve(), target)


def _copy_program(root: Path, name: str) -> None:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert found is not None, f"this machine has no {name}"
    place = "usr/sbin" if name.endswith("add") else "bin" if name == "sh" else "usr/bin"
    target = root / place / name
    shutil.copy2(Path(found).resolve(), target)
    add_libraries(root, [target])


def _copy_loaded_by_name(root: Path) -> None:
    """Copies libraries that the C library loads when they are needed, and that no file names as needed."""
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=RUN_S, check=True).stdout
    for name in LOADED_BY_NAME:
        library = next(line.split(" => ")[1] for line in known.splitlines() if line.split()[:1] == [name])
        target = root / library.removeprefix("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(library).resolve(), target)


def _copy_python(root: Path) -> None:
    """As the official image has it: /usr/local, without its tests; pip as Python itself brings it."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    prefix, local = Path(sys.base_prefix), root / "usr" / "local"
    left_out = shutil.ignore_patterns("test", "tests", "idlelib", "__pycache__", "site-packages", "config-*")
    shutil.copytree(prefix / "lib" / version, local / "lib" / version, ignore=left_out, symlinks=True)
    (local / "lib" / version / "site-packages").mkdir()
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy2(library, local / "lib" / library.name, follow_symlinks=False)
    shutil.copy2((prefix / "bin" / version).resolve(), local / "bin" / version)
    for name in ("python", "python3"):
        (local / "bin" / name).symlink_to(version)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
