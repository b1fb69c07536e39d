"""`python -m shoal_coordination`: see main.py."""

import os
import sys

# Nothing forks: gRPC need not prepare for it, nor say so.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

from shoal_coordination.main import main

if __name__ == "__main__":
    sys.exit(main())
