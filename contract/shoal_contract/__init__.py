"""Holds what all sides share: wire, names, limits, errors, partition map, hash, journal record. See ../DESIGN.md."""
