"""Reads the PEM files of a TLS client, and proves that they hold certificates and fit each other.

Belongs here: making values from files. Does not: when they are read (arguments.py at the start, channels.py for each
channel).
"""

from __future__ import annotations

import ssl
from pathlib import Path

from shoal_contract.errors import Malformed
from shoal_coordination.options import PemFiles, Tls

Stamp = tuple[tuple[int, int, int], ...]
"""Each file's time of last change in ns, inode and size. Another stamp means: read the files again."""


def pem_files(ca: Path, certificate: Path | None, key: Path | None) -> PemFiles:
    """Reads the files for the first time. Raises Malformed, OSError."""
    if (certificate is None) != (key is None):
        raise Malformed("a certificate and its key are given together: --etcd-certificate and --etcd-key")
    return PemFiles(ca, certificate, key, read_tls(ca, certificate, key)[0])


def read_tls(ca: Path, certificate: Path | None, key: Path | None) -> tuple[Tls, Stamp]:
    """Returns what the files hold, and their stamp. Raises Malformed for files that do not fit or that change now,
    OSError."""
    paths = [path for path in (ca, certificate, key) if path is not None]
    stamp = stamp_of(paths)
    tls = Tls(*(None if path is None else _pem(path) for path in (ca, certificate, key)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
        if certificate is not None:
            # With the empty password an encrypted key is an error; without it, OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        names = " and ".join(map(str, paths[1:] or paths))
        raise Malformed(f"{names} cannot be used: {error.reason or error}", subject=str(paths[-1])) from None
    if stamp_of(paths) != stamp:
        raise Malformed(f"{paths[-1]} is being replaced", subject=str(paths[-1]))
    return tls, stamp


def stamp_of(paths: list[Path]) -> Stamp:
    """Returns the files' stamp. Raises OSError if one is missing."""
    found = [path.stat() for path in paths]
    return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)


def _pem(path: Path) -> bytes:
    """Returns a file's content. Raises Malformed if it holds no PEM: an empty authority would mean the system's."""
    text = path.read_bytes()
    if b"-----BEGIN " not in text:
        raise Malformed(f"{path} holds nothing in PEM form", subject=str(path))
    return text
