"""Bulk load and export of memberships. The jobs are load.py and export.py."""
