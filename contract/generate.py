"""Generates the files that other languages and the wheel take from the contract: `make proto`. A test finds stale ones.

Belongs here: the wire packages from the .proto files (ours, and the part of etcd's that we call), and the partition
hash's published vectors. Not here: what is compared for compatibility (published.binpb; `make publish-contract`).
"""

import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grpc_tools import protoc

from shoal_contract.limits import PARTITIONS_DEFAULT, PARTITIONS_MAX
from shoal_contract.names import direct_key
from shoal_contract.partition_hash import partition_of

HERE = Path(__file__).parent
NOTICE = "Generated from contract/{source} by `make proto`; do not edit."


@dataclass(frozen=True)
class Protos:
    """Names a tree of .proto files, which lie in one folder, and the Python package that this folder becomes."""

    tree: Path
    folder: str
    """The folder of the files in `tree`; protoc would make it the package's name."""
    package: str

    @property
    def wire(self) -> Path:
        return HERE.joinpath(*self.package.split("."))


SHOAL = Protos(HERE / "proto", "shoal/v1", "shoal_contract.wire")
ETCD = Protos(HERE / "proto_etcd", "etcd/v3", "shoal_coordination.wire")

# The plugins lie beside this Python, so that no environment needs to be active.
PLUGINS = [f"--plugin={Path(sys.executable).parent / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]

VECTORS = HERE / "shoal_contract" / "partition_vectors.json"
HASH = (
    "CRC-32/ISO-HDLC, mod P, of the key; of the bytes in braces alone if the key, or its part after @, begins with them"
)
VECTOR_KEYS = (
    *(text.encode() for text in ("a", "123456789", "lobby", "7d9f4c1e-5b7a-4c53-9f64-0b6f2a1c8e3d")),
    *(text.encode() for text in ("Zürich", "Zu\u0308rich", "村の広場", "🐟🐠")),
    *(b"\x00", b"\xff", b"\x00" * 4, bytes(range(255)), b"k" * 255),
    *(direct_key(queue) for queue in (b"a", "Zürich".encode(), b"k" * 255)),
    *(text.encode() for text in ("room-7", "{room-7}", "{room-7}/votes", "{room-7}}", "@{room-7}anna", "{村}の広場")),
    *(text.encode() for text in ("{}", "{}a", "{room-7", "@{}", "@{room-7", "a{room-7}", "@a{room-7}", "{{room-7}}")),
)


def generate_wire(target: Path, protos: Protos) -> None:
    """Writes a wire package's modules into `target` (an existing folder). Raises RuntimeError if protoc fails."""
    files = sorted(str(path.relative_to(protos.tree)) for path in protos.tree.rglob("*.proto"))
    notice = f"# {NOTICE.format(source=protos.tree.name)}\n"
    imported = re.compile(rf"\b{protos.folder.replace('/', '[.]')}(?= import|[.]\w+_pb2)")
    (target / "__init__.py").write_text(notice)
    with tempfile.TemporaryDirectory() as scratch:
        outputs = [f"--{kind}_out={scratch}" for kind in ("python", "mypy", "grpc_python", "mypy_grpc")]
        if protoc.main(["protoc", f"-I{protos.tree}", *PLUGINS, *outputs, *files]) != 0:
            raise RuntimeError("protoc failed; its message is above")
        for path in sorted(Path(scratch, protos.folder).iterdir()):
            (target / path.name).write_text(notice + imported.sub(protos.package, path.read_text()))


def generate_vectors(target: Path) -> None:
    """Writes the file of vectors: a list of {"key_hex", "text" where it is UTF-8, "partitions": {P: partition}}."""
    lines = []
    for key in VECTOR_KEYS:
        partitions = {str(p): partition_of(key, p) for p in (1, PARTITIONS_DEFAULT, PARTITIONS_MAX)}
        lines.append(json.dumps({"key_hex": key.hex(), **_readable(key), "partitions": partitions}))
    head = f'{{"notice": "{NOTICE.format(source="generate.py")}",\n"hash": "{HASH}",\n'
    target.write_text(head + '"vectors": [\n' + ",\n".join(lines) + "\n]}\n")


def _readable(key: bytes) -> dict[str, str]:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return {}
    return {"text": text} if text.isprintable() else {}


if __name__ == "__main__":
    for each in (SHOAL, ETCD):
        generate_wire(each.wire, each)
    generate_vectors(VECTORS)
