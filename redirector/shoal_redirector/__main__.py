"""Runs `python -m shoal_redirector`: see main.py."""

import sys

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported
from shoal_redirector.main import main

if __name__ == "__main__":
    sys.exit(main())
