"""Makes the lists of what the image installs, with hashes, from constraints.txt: `make lock`. Asks the package index.

helm/requirements.txt         the command line and the servers (extra `cli`)
helm/requirements-spark.txt   the same and Spark (extras `cli`, `spark`)
helm/requirements-build.txt   the packages that build the two, in a stage that is thrown away
"""

from __future__ import annotations

import sys
from pathlib import Path

from shoal_chart.locking import BUILD, LOCKS, lock_of, locked

HELM = Path(__file__).parents[1]


def main() -> int:
    for name, wanted in (*LOCKS.items(), BUILD):
        text = locked(lock_of(HELM.parent, wanted))
        (HELM / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}: {text.count('==')} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
