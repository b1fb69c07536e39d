"""One small population for all of these tests: 2,000 queues, made once."""

from pathlib import Path

import pytest

from tests.folders import NewFolder


@pytest.fixture(scope="session")
def data(session_folder: NewFolder) -> Path:
    """Where runs keep their populations."""
    return session_folder("loadtest")
