"""The generated etcd wire package is what `make proto` makes now."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

GENERATE = Path(__file__).parents[2] / "contract" / "generate.py"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contract_generate", GENERATE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_modules_are_current(tmp_path: Path) -> None:
    generator = _generator()
    generator.generate_wire(tmp_path, generator.ETCD)
    fresh = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in generator.ETCD.wire.glob("*.py*")}
    assert fresh == kept, "stale: run `make proto`"
