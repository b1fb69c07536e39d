"""Drives real events through a cluster, and compares every queue's content with what the events say."""
