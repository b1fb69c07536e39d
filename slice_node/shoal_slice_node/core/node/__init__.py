"""Decides what a node does: a pure node, told the time and what is durable, without a loop, a clock or files."""
