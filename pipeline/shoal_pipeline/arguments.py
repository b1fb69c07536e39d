"""Arguments that several jobs take. Not here: the jobs, the environment (main.py)."""

from __future__ import annotations

import argparse
from typing import Final

from shoal_contract.addresses import REDIRECTOR_PORT

AT_VARIABLE: Final = "SHOAL_REDIRECTOR"
AT_DEFAULT: Final = f"127.0.0.1:{REDIRECTOR_PORT}"


def add_at(parser: argparse.ArgumentParser) -> None:
    """Adds `--at`, as the `shoal` command has it; main.py fills in the rest."""
    parser.add_argument(
        "--at",
        default="",
        metavar="HOST[:PORT][,...]",
        help=f"redirectors of the cluster; default {AT_VARIABLE}, else {AT_DEFAULT}",
    )
