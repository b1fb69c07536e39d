"""The arguments by which every server is told where etcd is, and how to speak to it.

Belongs here: names, help and reading of these arguments. Not here: the environment, which each `main.py` reads.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from shoal_contract.errors import Malformed
from shoal_coordination.options import EtcdOptions, Tls, parse_endpoints

PASSWORD_VARIABLE: Final = "SHOAL_ETCD_PASSWORD"
ENDPOINTS_METAVAR: Final = "HOST:PORT,..."


def add_etcd_arguments(parser: argparse.ArgumentParser) -> None:
    """TLS and login; `--etcd` itself is the program's own, as not all require it."""
    parser.add_argument("--etcd-ca", type=Path, metavar="PEM", help="speak TLS to etcd, and trust this authority")
    parser.add_argument("--etcd-certificate", type=Path, metavar="PEM", help="this process's own, with --etcd-key")
    parser.add_argument("--etcd-key", type=Path, metavar="PEM")
    parser.add_argument("--etcd-user", default="", metavar="NAME", help=f"its password is in {PASSWORD_VARIABLE}")


def etcd_options(given: argparse.Namespace, password: str) -> EtcdOptions:
    """Reads the files. Raises Malformed for bad endpoints and files without PEM, OSError."""
    return EtcdOptions(parse_endpoints(given.etcd), _tls(given), given.etcd_user, password)


def _tls(given: argparse.Namespace) -> Tls | None:
    if given.etcd_ca is None:
        return None
    files = (given.etcd_ca, given.etcd_certificate, given.etcd_key)
    return Tls(*(None if path is None else _pem(path) for path in files))


def _pem(path: Path) -> bytes:
    """An empty authority would mean the system's: what a file lacks is told at the start."""
    text = path.read_bytes()
    if b"-----BEGIN " not in text:
        raise Malformed(f"{path} holds nothing in PEM form", subject=str(path))
    return text
