"""`python -m shoal_loadtest.residents`: runs the residents' load test."""

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported
from shoal_loadtest.residents.run import main

if __name__ == "__main__":
    raise SystemExit(main())
