"""Imported first by every program of Shoal: tells gRPC that nothing here forks without exec, and to log nothing.

gRPC reads this when it is imported. Else its handlers around fork complain of each child process that is started, and a
client could have it write a line for each of its calls. What fails is raised to us, and told there.
Belongs here: these variables. An application that imports `shoal` decides for itself.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
