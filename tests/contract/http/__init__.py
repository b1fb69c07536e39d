"""A package, so that its tests share what conftest.py has."""
