"""Spark jobs over journal archives and snapshots. See ../DESIGN.md."""
