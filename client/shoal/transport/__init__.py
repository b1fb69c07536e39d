"""Carries sessions, calls and the map between the client and a cluster.

`base.py` says what a transport is; `grpc.py` is the one that applications get. Not here: when to connect and what to do
about a failure (slice_session.py, map_watch.py, slice_calls.py).
"""
