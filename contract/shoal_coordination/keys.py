"""Names the etcd keys of a cluster's records, all under /shoal/<cluster>/.

config            ClusterConfig
map               PartitionMap, the whole of it
slices/<slice>    SliceRecord
nodes/<node>      NodeRecord, on the node's lease
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from shoal_contract.errors import InvalidName
from shoal_coordination.limits import NAME_CHARACTERS_MAX

_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


def check_record_name(name: str, what: str) -> None:
    """Checks a name of a cluster, slice or node. `what` is for the message. Raises InvalidName."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        problem = f"has {len(name)} characters; it needs 1 to {NAME_CHARACTERS_MAX}"
    elif not _NAME.fullmatch(name):
        problem = "is not a-z, 0-9, and between them . _ -"
    else:
        return
    shown = name[:NAME_CHARACTERS_MAX]
    raise InvalidName(f"{what} name {shown!r} {problem}", subject=shown, limit=NAME_CHARACTERS_MAX, value=len(name))


def check_identity(text: str, what: str) -> None:
    """Checks an id of a cluster or of data: 32 hex digits. `what` is for the message. Raises InvalidName."""
    if not _IDENTITY.fullmatch(text):
        shown = text[:NAME_CHARACTERS_MAX]
        raise InvalidName(f"{what} {shown!r} is not 32 digits of 0-9, a-f", subject=shown)


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """Makes the keys of one cluster's records. Raises InvalidName for a bad name."""

    cluster: str

    def __post_init__(self) -> None:
        check_record_name(self.cluster, "cluster")

    @property
    def prefix(self) -> bytes:
        return f"/shoal/{self.cluster}/".encode()

    @property
    def config(self) -> bytes:
        return self.prefix + b"config"

    @property
    def map(self) -> bytes:
        return self.prefix + b"map"

    @property
    def slices(self) -> bytes:
        """Returns the prefix of all slices' records."""
        return self.prefix + b"slices/"

    def slice(self, name: str) -> bytes:
        check_record_name(name, "slice")
        return self.slices + name.encode()

    def node(self, name: str) -> bytes:
        check_record_name(name, "node")
        return self.prefix + b"nodes/" + name.encode()
