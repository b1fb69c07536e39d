"""`python -m shoal_loadtest`."""

import os

# Nodes are started by fork and exec; gRPC's own fork handlers would only complain.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if __name__ == "__main__":
    from shoal_loadtest.main import main

    raise SystemExit(main())
