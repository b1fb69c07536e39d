"""Sweeping: what is dropped, and what never is."""
