"""One small population for all of these tests: 2,000 queues, made once."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs keep their populations."""
    return tmp_path_factory.mktemp("loadtest")
