"""Benchmarks over real processes. See ../DESIGN.md."""
