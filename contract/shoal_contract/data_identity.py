"""Identifies the owner of a folder's data. A slice node's store, each segment of its journal and etcd's record have it.

So a folder that is empty, foreign, or of another life is noticed before any of its data is served. The identity is
stored as JSON; fields that a newer version adds are ignored.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from shoal_contract.errors import Malformed


@dataclass(frozen=True, slots=True)
class DataIdentity:
    """Identifies data. `cluster_id`: the cluster's, "" for a node that runs alone. `incarnation`: the life of the
    slice's data, 32 hex digits; a new one begins wherever data begins empty."""

    cluster_id: str
    slice: str
    node: str
    incarnation: str

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes) -> DataIdentity:
        """Returns the identity that `data` encodes. Raises Malformed."""
        try:
            found = json.loads(data)
            return DataIdentity(*(str(found[name]) for name in ("cluster_id", "slice", "node", "incarnation")))
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"the identity of the data cannot be read: {error!r}", subject="identity") from None

    def __str__(self) -> str:
        cluster = f"cluster {self.cluster_id[:8]}" if self.cluster_id else "no cluster"
        return f"slice {self.slice}, node {self.node}, {cluster}, incarnation {self.incarnation[:8]}"
