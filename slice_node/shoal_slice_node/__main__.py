"""Runs the slice node: `python -m shoal_slice_node`."""

import logging
import os
import sys

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported
from shoal_slice_node.core_choice import refusal

if problem := refusal():
    sys.stderr.write(f"shoal_slice_node: {problem}\n")
    sys.exit(1)

from shoal_slice_node.main import main

code = main()
# Everything is on disk and every port is closed. Freeing the memory of a large slice, object by object, would take
# seconds while a supervisor waits.
logging.shutdown()
sys.stdout.flush()
os._exit(code)
