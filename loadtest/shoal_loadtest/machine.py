"""Measures what this machine itself can do, in the same run: figures mean little without it."""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import lmdb

from shoal_loadtest.limits import MACHINE_PROBE_S, MACHINE_PUT_ROWS


@dataclass(frozen=True)
class Machine:
    """Says what the machine can do. `syncs_per_s`: fdatasync after each append of 4 KiB. `puts_per_s`: random 16+8 B
    rows in one LMDB transaction."""

    syncs_per_s: float
    puts_per_s: float


def measure_machine(data: Path) -> Machine:
    """Measures in a new folder under `data`, so on the same disk; takes about a second."""
    data.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix="machine-", dir=data))
    try:
        return Machine(_syncs_per_s(folder), _puts_per_s(folder))
    finally:
        shutil.rmtree(folder)


def _syncs_per_s(folder: Path) -> float:
    block = os.urandom(4096)
    descriptor = os.open(folder / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        syncs, started_s = 0, time.perf_counter()
        while (elapsed_s := time.perf_counter() - started_s) < MACHINE_PROBE_S:
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            syncs += 1
    finally:
        os.close(descriptor)
    return syncs / elapsed_s


def _puts_per_s(folder: Path) -> float:
    source = random.Random(1)
    rows = [(source.randbytes(16), source.randbytes(8)) for _ in range(MACHINE_PUT_ROWS)]
    with lmdb.open(str(folder), map_size=1 << 30, sync=False) as environment:
        started_s = time.perf_counter()
        with environment.begin(write=True) as transaction:
            for key, value in rows:
                transaction.put(key, value)
        return len(rows) / (time.perf_counter() - started_s)
