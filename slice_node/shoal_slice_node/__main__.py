"""`python -m shoal_slice_node`."""

import logging
import os
import sys

import shoal_contract.without_forks  # noqa: F401 - before gRPC is imported
from shoal_slice_node.main import main

code = main()
# All is on disk and every port is closed. Freeing what a large slice had in memory, object by object, would take
# seconds, and a supervisor waits.
logging.shutdown()
sys.stdout.flush()
os._exit(code)
