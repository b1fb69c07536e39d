"""Sweeping: finds and drops the parts of queues that drops left behind on other slices."""
