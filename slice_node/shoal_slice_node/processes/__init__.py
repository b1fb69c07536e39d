"""Processes beside the node's: the checkpointer, and one for each snapshot; and how they are spoken with."""
