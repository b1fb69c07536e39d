"""`python -m shoal_slice_node`."""

import os
import sys

# The one child, the checkpointer, is spawned: gRPC need not prepare for forks, nor say so in the log.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from shoal_slice_node.main import main

sys.exit(main())
