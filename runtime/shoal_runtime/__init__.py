"""What every process of Shoal needs to run: tasks, gRPC and HTTP servers, start and stop, and a bound for memory."""
