"""Runs the processes beside the node's: the checkpointer, and one for each snapshot; and talks with them."""
