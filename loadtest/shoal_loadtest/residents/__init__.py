"""Residents who live as the evaluation's did, driven by Locust, every message checked. See ../../DESIGN.md."""
