"""Defines the arguments that tell every server where etcd is, and how to speak to it.

Belongs here: names, help and reading of these arguments. Not here: the environment, which each `main.py` reads.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from shoal_contract.errors import Malformed
from shoal_coordination.options import EtcdOptions, PemFiles, parse_endpoints
from shoal_coordination.pem import pem_files

PASSWORD_VARIABLE: Final = "SHOAL_ETCD_PASSWORD"
ENDPOINTS_METAVAR: Final = "HOST:PORT,..."


def add_etcd_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds TLS and login. Each program adds `--etcd` itself, as not all require it."""
    parser.add_argument(
        "--etcd-ca",
        type=Path,
        metavar="PEM",
        help="speak TLS to etcd, and trust this authority; PEM files are read again when they change",
    )
    parser.add_argument(
        "--etcd-certificate", type=Path, metavar="PEM", help="certificate of this process; needs --etcd-key"
    )
    parser.add_argument("--etcd-key", type=Path, metavar="PEM")
    parser.add_argument(
        "--etcd-user", default="", metavar="NAME", help=f"its password is in {PASSWORD_VARIABLE}, or in a file:"
    )
    parser.add_argument(
        "--etcd-password-file", type=Path, metavar="FILE", help="file with the password; read at each login"
    )


def etcd_options(given: argparse.Namespace, password: str) -> EtcdOptions:
    """Returns the options, and reads the files once. Raises Malformed for bad files and bad endpoints, OSError."""
    options = EtcdOptions(
        parse_endpoints(given.etcd), _tls(given), given.etcd_user, password, password_file=given.etcd_password_file
    )
    options.password_now()
    return options


def _tls(given: argparse.Namespace) -> PemFiles | None:
    if given.etcd_ca is None:
        if given.etcd_certificate or given.etcd_key:
            raise Malformed("--etcd-certificate and --etcd-key mean TLS: say with --etcd-ca which authority to trust")
        return None
    return pem_files(given.etcd_ca, given.etcd_certificate, given.etcd_key)
