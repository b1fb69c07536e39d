"""Reads and writes a slice's files: journal, store, archive; also checks and repairs them while no node runs."""
