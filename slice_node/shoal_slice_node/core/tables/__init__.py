"""What rows lie in: by protocol, in memory, and as changes over a checkpoint."""
