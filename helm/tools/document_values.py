"""Makes the table of values in helm/README.md from the comments of values.yaml: `make chart`."""

from __future__ import annotations

import sys

from shoal_chart.chart import CHART
from shoal_chart.documented import with_table

README = CHART.parent / "README.md"


def main() -> int:
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
