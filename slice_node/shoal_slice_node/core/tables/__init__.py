"""Keeps rows in tables: the interfaces, tables in memory, and tables of changes over a checkpoint."""
