"""Checks row by row what holds in every store."""
