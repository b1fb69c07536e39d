"""Tells gRPC that nothing here forks without exec, and to log nothing. Every program of Shoal imports it first.

gRPC reads these variables when it is imported. Without them its fork handlers complain of each child process that is
started, and a client could make gRPC log a line for each of its calls. Failures are raised to us, and reported there.
Belongs here: these variables. An application that imports `shoal` decides for itself.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
