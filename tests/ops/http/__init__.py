"""A package, so that its tests share one cluster (conftest.py) which ends with the last of them."""
