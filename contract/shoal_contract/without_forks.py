"""Imported first by every program of Shoal: tells gRPC that nothing here forks without exec.

gRPC reads this when it is imported. Else its handlers around fork complain of each child process that is started.
Belongs here: this one variable. An application that imports `shoal` decides for itself.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
