"""Tells the members of a key, and how many members the keys under a prefix have: first the state, then changes."""
