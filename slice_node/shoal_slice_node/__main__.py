"""`python -m shoal_slice_node`."""

import sys

import shoal_contract.without_forks  # noqa: F401 - before gRPC is imported
from shoal_slice_node.main import main

sys.exit(main())
