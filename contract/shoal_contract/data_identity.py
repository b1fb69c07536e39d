"""Whose data a folder holds: a slice node's store and each segment of its journal name it, and etcd's record knows it.

A folder that is empty, foreign, or another life's is so noticed before anything of it is served. Stored as JSON, in
which fields that a newer version adds are ignored.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from shoal_contract.errors import Malformed


@dataclass(frozen=True, slots=True)
class DataIdentity:
    """`cluster_id`: of the cluster, "" for a node that runs alone. `incarnation`: which life of the slice's data, 32
    hex digits; another one begins wherever data begins empty."""

    cluster_id: str
    slice: str
    node: str
    incarnation: str

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes) -> DataIdentity:
        """Raises Malformed."""
        try:
            found = json.loads(data)
            return DataIdentity(*(str(found[name]) for name in ("cluster_id", "slice", "node", "incarnation")))
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"the identity of the data cannot be read: {error!r}", subject="identity") from None

    def __str__(self) -> str:
        cluster = f"cluster {self.cluster_id[:8]}" if self.cluster_id else "no cluster"
        return f"slice {self.slice}, node {self.node}, {cluster}, incarnation {self.incarnation[:8]}"
