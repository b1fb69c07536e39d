"""Residents that come, go and talk as the evaluation's did, driven by Locust; every message is checked. See
../../DESIGN.md."""
