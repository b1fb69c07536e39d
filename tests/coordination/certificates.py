"""Certificates for loopback, made by openssl for one test run."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


def issue(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for loopback and its key, signed by the folder's authority, which is made if need be."""
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    if not ca.exists():
        openssl("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-subj", "/CN=test authority")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    signed = ("-CA", ca, "-CAkey", ca_key, "-addext", "subjectAltName=IP:127.0.0.1")
    openssl("req", "-x509", *curve, *signed, "-keyout", key, "-out", certificate, "-subj", f"/CN={name}")
    return certificate, key
