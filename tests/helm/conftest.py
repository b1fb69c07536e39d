"""What the chart's examples render to, and the defaults. Rendered once a session: Helm takes half a second for each."""

from __future__ import annotations

import pytest

from shoal_chart.chart import Manifest, read_values, render
from tests.helm.examples import FILES, NAMESPACE


@pytest.fixture(scope="session", params=FILES)
def rendered(request: pytest.FixtureRequest) -> list[Manifest]:
    """Every object of one set of values after the other."""
    return render(read_values(FILES[request.param]), namespace=NAMESPACE)
