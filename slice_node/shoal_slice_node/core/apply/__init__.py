"""Applies records to the tables: total, deterministic, in bounded steps."""
