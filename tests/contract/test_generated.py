"""Generated files of the contract are what `make proto` would write now."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

GENERATE = Path(__file__).parents[2] / "contract" / "generate.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contract_generate", GENERATE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("protos", ["SHOAL", "ETCD"])
def test_wire_is_not_stale(generator: ModuleType, tmp_path: Path, protos: str) -> None:
    tree = getattr(generator, protos)
    generator.generate_wire(tmp_path, tree)
    fresh = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in tree.wire.glob("*.py*")}
    assert committed.keys() == fresh.keys()
    stale = [name for name, text in fresh.items() if committed[name] != text]
    assert not stale, "run `make proto`"


def test_every_proto_tree_is_generated(generator: ModuleType) -> None:
    trees = {path for path in generator.HERE.glob("proto*") if path.is_dir()}
    assert trees == {generator.SHOAL.tree, generator.ETCD.tree}


def test_vectors_are_not_stale(generator: ModuleType, tmp_path: Path) -> None:
    generator.generate_vectors(tmp_path / "vectors.json")
    committed = generator.VECTORS.read_text()
    assert (tmp_path / "vectors.json").read_text() == committed, "run `make proto`"
    assert "Generated" in committed.splitlines()[0]
