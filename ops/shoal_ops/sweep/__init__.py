"""Sweeping: parts of queues that drops left behind on other slices are found and dropped."""
